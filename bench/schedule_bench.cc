// How long a rank of 4,096 takes to make its schedule, by every algorithm, and how much memory that
// takes: 512 nodes of 8 GPUs, vectors of 64 MiB or blocks of 1,000 elements. With --once: each one time,
// for bench/instructions.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "coll/cache.hpp"
#include "coll/registry.hpp"

using namespace tutti;

namespace {

constexpr int nranks = 4096;

const Topology& topology() {
  static const Topology value = *parse_topology("node:512 gpu:8 nic:8");
  return value;
}

Problem problem(Coll coll, int rank) {
  static const std::vector<uint64_t> blocks(nranks, 1000);
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
  return problem;
}

}  // namespace

// Where bench/instructions begins and ends to count.
extern "C" [[gnu::noinline]] bool tutti_generate_one(const tutti::Algorithm* algorithm,
                                                     const tutti::Problem* call, int rank,
                                                     tutti::Schedule* schedule) {
  const Params params = algorithm->standard_params();
  return generate(*algorithm, *call, Place{rank, topology(), params}, *schedule).ok();
}

namespace {

void generate_one(benchmark::State& state, const Algorithm* algorithm, Coll coll) {
  const int rank = static_cast<int>(state.range(0));
  const Problem call = problem(coll, rank);
  size_t bytes = 0;
  for (auto _ : state) {
    Schedule schedule;  // fresh: its memory is part of the cost
    if (!tutti_generate_one(algorithm, &call, rank, &schedule)) state.SkipWithError("no schedule");
    bytes = bytes_of(schedule);
  }
  state.counters["MiB"] = static_cast<double>(bytes) / (1 << 20);
}

// Each once, with its name and memory, in the order in which they are counted.
int each_once() {
  for (const Algorithm* algorithm : algorithms())
    for (Coll coll : algorithm->collectives)
      for (int rank : {0, 2047}) {
        const Problem call = problem(coll, rank);
        Schedule schedule;
        if (!tutti_generate_one(algorithm, &call, rank, &schedule)) return 1;
        std::printf("%s_%s/%d %zu\n", name(coll), algorithm->scheme, rank, bytes_of(schedule));
      }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--once") return each_once();
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
