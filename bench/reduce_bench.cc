// Speed of the reductions on host memory: bytes of all parts and of the result, per second.
// copy/<bytes> is memcpy of that many bytes, counted likewise (read + written): the machine's limit.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "shm/reduce.hpp"

namespace {

using namespace tutti;

// Each part on pages of its own, as ranks' buffers are, touched before.
std::vector<std::unique_ptr<char[]>> make_parts(int nparts, size_t bytes) {
  std::vector<std::unique_ptr<char[]>> parts;
  for (int k = 0; k < nparts; ++k) {
    parts.push_back(std::make_unique<char[]>(bytes + 4096));
    std::memset(parts.back().get(), 0, bytes + 4096);
  }
  return parts;
}

void reduce(benchmark::State& state, shm::Variant variant, Op op, Dtype dtype) {
  const int nparts = static_cast<int>(state.range(0));
  const size_t bytes = static_cast<size_t>(state.range(1));
  const size_t count = bytes / info(dtype).extent;
  const auto memory = make_parts(nparts + 1, bytes);
  std::vector<const void*> parts;
  for (int k = 0; k < nparts; ++k) parts.push_back(memory[k].get());
  void* to = memory[nparts].get();
  shm::force_variant(variant);
  const shm::Reducer* reducer = shm::find_reducer(op, dtype);
  for (auto _ : state) {
    if (nparts == 2)
      reducer->two(to, parts[0], parts[1], count);
    else
      reducer->many(to, parts.data(), nparts, count);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes) * (nparts + 1));
}

void copy(benchmark::State& state) {
  const size_t bytes = static_cast<size_t>(state.range(0));
  const auto memory = make_parts(2, bytes);
  for (auto _ : state) {
    std::memcpy(memory[0].get(), memory[1].get(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes) * 2);
}

void add_benchmarks() {
  struct Pair {
    Op op;
    Dtype dtype;
  };
  const Pair pairs[] = {{Op::sum, Dtype::f32},  {Op::sum, Dtype::f64},  {Op::sum, Dtype::f16},
                        {Op::sum, Dtype::bf16}, {Op::max, Dtype::f32},  {Op::min, Dtype::u64},
                        {Op::prod, Dtype::c32}, {Op::band, Dtype::byte}};
  for (size_t bytes : {65536, 1 << 20, 16 << 20})
    benchmark::RegisterBenchmark("copy", copy)->Arg(static_cast<int64_t>(bytes));
  for (shm::Variant variant : shm::variants) {
    if (!shm::supported(variant)) continue;
    for (const Pair& pair : pairs) {
      const std::string title =
          std::string(shm::name(variant)) + "/" + name(pair.op) + "_" + name(pair.dtype);
      auto* b = benchmark::RegisterBenchmark(title.c_str(), reduce, variant, pair.op, pair.dtype);
      for (int64_t nparts : {2, 8, 32})
        for (int64_t bytes : {64, 1024, 65536, 1 << 20}) b->Args({nparts, bytes});
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  add_benchmarks();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
