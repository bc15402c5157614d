// How long a rank of 4,096 takes to make its schedule, by every algorithm, and how much memory that
// takes: 512 nodes of 8 GPUs, vectors of 64 MiB or blocks of 4,000 bytes.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "base/text.hpp"
#include "coll/cache.hpp"
#include "coll/registry.hpp"

namespace {

using namespace tutti;

constexpr int nranks = 4096;

void generate_one(benchmark::State& state, const Algorithm* algorithm, Coll coll) {
  static const Topology topology = *parse_topology("node:512 gpu:8 nic:8");
  static const std::vector<uint64_t> blocks(nranks, 1000);
  const Params params = algorithm->standard_params();
  const int rank = static_cast<int>(state.range(0));
  Problem problem;
  problem.agreed.coll = coll;
  problem.agreed.dtype = reduces(coll) ? Dtype::f32 : Dtype::byte;
  const bool vector = coll == Coll::allreduce || coll == Coll::reduce || coll == Coll::bcast ||
                      coll == Coll::scan || coll == Coll::exscan;
  problem.agreed.count = coll == Coll::barrier ? 0 : vector ? 16 << 20 : 1000;
  if (coll == Coll::allgatherv || coll == Coll::reduce_scatter) problem.agreed.counts = blocks;
  if (coll == Coll::alltoallv || coll == Coll::alltoallw)
    problem.local.send_counts = problem.local.recv_counts = blocks;
  problem.local.count = 1000;
  if (rank == 0 && coll == Coll::gatherv) problem.local.recv_counts = blocks;
  if (rank == 0 && coll == Coll::scatterv) problem.local.send_counts = blocks;
  if (!algorithm->applies(problem.agreed, topology, params)) {
    state.SkipWithError("does not apply");
    return;
  }
  size_t bytes = 0;
  for (auto _ : state) {
    Schedule schedule;  // fresh: its memory is part of the cost
    if (!generate(*algorithm, problem, Place{rank, topology, params}, schedule).ok())
      state.SkipWithError("no schedule");
    bytes = bytes_of(schedule);
  }
  state.counters["MiB"] = static_cast<double>(bytes) / (1 << 20);
}

}  // namespace

int main(int argc, char** argv) {
  for (const Algorithm* algorithm : algorithms())
    for (Coll coll : algorithm->collectives)
      benchmark::RegisterBenchmark(text("{}_{}", name(coll), algorithm->scheme).c_str(),
                                   generate_one, algorithm, coll)
          ->Arg(0)
          ->Arg(2047)
          ->Unit(benchmark::kMillisecond);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
