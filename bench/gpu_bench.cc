// Latency and bandwidth of a GPU module's collectives between forked ranks, one device each: a call
// is gate in shared memory, start, poll until done; beside it, if asked for, NCCL: call and stream
// synchronise. The figure is the worst rank's median over blocking calls; every call's time goes to
// --raw. Results are checked before and after timing.
//
//   gpu_bench [--module PATH] [--ranks N] [--colls allreduce,allgather,reduce_scatter_block]
//             [--min BYTES] [--max BYTES] [--step FACTOR] [--in-place] [--lane BYTES] [--ctas N]
//             [--phases] [--linger US] [--set knob=value,...]... [--nccl LIB] [--nccl-windows] [--raw FILE]
//
// Bytes: of the vector (allreduce), of the total output (allgather) or input
// (reduce_scatter_block).
#include <cuda.h>
#include <dlfcn.h>
#include <getopt.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "../test/gpu/harness.hpp"
#include "base/text.hpp"
#include "gpu/module.hpp"

namespace tutti::testing {
namespace {

struct Options {
  std::string module = "cuda";
  int ranks = 2;
  std::vector<Coll> colls = {Coll::allreduce, Coll::allgather, Coll::reduce_scatter_block};
  uint64_t min = 8, max = uint64_t{1} << 30;
  uint64_t step = 4;
  bool in_place = false;
  uint64_t lane_bytes = 0;
  uint32_t ctas = 0;
  std::vector<std::string> settings;
  std::string nccl;
  bool nccl_windows = false;
  bool phases = false;
  uint64_t linger_ns = 0;
  std::string raw;
};

int calls_for(uint64_t bytes) {
  if (bytes <= 64 << 10) return 1000;
  if (bytes <= 1 << 20) return 400;
  if (bytes <= 16 << 20) return 100;
  if (bytes <= 256 << 20) return 24;
  return 8;
}

// What a call moves for a message size, as MPI counts.
struct Shape {
  Coll coll;
  uint64_t count = 0;  // floats, of the vector or a block
  uint64_t send_bytes = 0;
  uint64_t recv_bytes = 0;
};

Shape shape_of(Coll coll, uint64_t bytes, int nranks) {
  Shape shape{coll};
  const uint64_t n = static_cast<uint64_t>(nranks);
  shape.count = coll == Coll::allreduce ? bytes / 4 : bytes / 4 / n;
  shape.send_bytes = 4 * shape.count * (coll == Coll::reduce_scatter_block ? n : 1);
  shape.recv_bytes = 4 * shape.count * (coll == Coll::allgather ? n : 1);
  return shape;
}

float input(int rank, uint64_t i) {
  return static_cast<float>((i * 2654435761u + static_cast<uint64_t>(rank) * 40503u) % 8191) -
         4095.0f;
}

// NCCL by its C interface, opened at run time.
class Nccl {
 public:
  struct Id {
    char bytes[128];
  };
  bool open(Job& job, const Options& options) {
    void* handle = dlopen(options.nccl.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) job.fail(dlerror());
    get(handle, "ncclGetUniqueId", unique_id_);
    get(handle, "ncclCommInitRank", init_rank_);
    get(handle, "ncclAllReduce", allreduce_);
    get(handle, "ncclAllGather", allgather_);
    get(handle, "ncclReduceScatter", reduce_scatter_);
    get(handle, "ncclMemAlloc", allocate_);
    get(handle, "ncclCommWindowRegister", window_);
    auto* id = reinterpret_cast<Id*>(&job.control().blobs[0]);
    if (job.rank() == 0 && unique_id_(id) != 0) job.fail("ncclGetUniqueId");
    job.barrier();
    Id mine = *id;
    job.barrier();
    if (init_rank_(&comm_, job.nranks(), mine, job.rank()) != 0) job.fail("ncclCommInitRank");
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    get(driver, "cuStreamCreateWithPriority", stream_create_);
    get(driver, "cuStreamSynchronize", synchronize_);
    return stream_create_(&stream_, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS;
  }
  // Memory registered as a symmetric window; all ranks together.
  void* window(size_t bytes) {
    void* memory = nullptr;
    void* window = nullptr;
    if (allocate_(&memory, bytes) != 0 || window_(comm_, memory, bytes, &window, 1) != 0)
      return nullptr;
    return memory;
  }
  bool call(const Shape& shape, const void* send, void* recv) {
    constexpr int float32 = 7, sum = 0;
    int result = 1;
    if (shape.coll == Coll::allreduce)
      result = allreduce_(send, recv, shape.count, float32, sum, comm_, stream_);
    else if (shape.coll == Coll::allgather)
      result = allgather_(send, recv, shape.count, float32, comm_, stream_);
    else
      result = reduce_scatter_(send, recv, shape.count, float32, sum, comm_, stream_);
    return result == 0 && synchronize_(stream_) == CUDA_SUCCESS;
  }

 private:
  template <class F>
  void get(void* handle, const char* name, F*& out) {
    out = reinterpret_cast<F*>(dlsym(handle, name));
    if (!out) std::fprintf(stderr, "no %s\n", name);
  }
  int (*unique_id_)(Id*) = nullptr;
  int (*init_rank_)(void**, int, Id, int) = nullptr;
  int (*allreduce_)(const void*, void*, size_t, int, int, void*, CUstream) = nullptr;
  int (*allgather_)(const void*, void*, size_t, int, void*, CUstream) = nullptr;
  int (*reduce_scatter_)(const void*, void*, size_t, int, int, void*, CUstream) = nullptr;
  int (*allocate_)(void**, size_t) = nullptr;
  int (*window_)(void*, void*, size_t, void**, int) = nullptr;
  decltype(&::cuStreamCreateWithPriority) stream_create_ = nullptr;
  decltype(&::cuStreamSynchronize) synchronize_ = nullptr;
  void* comm_ = nullptr;
  CUstream stream_ = nullptr;
};

// One rank's measurements.
class Bench {
 public:
  Bench(Job& job, const Options& options) : job_(job), options_(options) {
    if (!options.raw.empty() && job.rank() == 0) raw_ = std::fopen(options.raw.c_str(), "a");
    const size_t bytes = std::max<uint64_t>(options.max, 4096);
    if (!options.nccl.empty()) nccl_open_ = nccl_.open(job, options);
    send_ = allocate(bytes);
    recv_ = allocate(bytes);
    std::vector<float> values(bytes / 4);
    for (uint64_t i = 0; i < values.size(); ++i) values[i] = input(job.rank(), i);
    must(job.module().copy(job.device(), send_, values.data(), bytes), "fill");
  }

  void run() {
    {
      std::vector<std::string> settings = options_.settings;
      if (settings.empty()) settings.push_back("");
      for (const std::string& setting : settings) {
        apply(setting, false);
        gpu::GroupSpec spec;
        spec.lane_bytes = options_.lane_bytes;
        spec.ctas = options_.ctas;
        spec.linger_ns = options_.linger_ns;
        const double begin = now_seconds();
        must(job_.make_group(spec, &group_), "group");
        if (job_.rank() == 0)
          std::printf("# group made in %.1f ms\n", (now_seconds() - begin) * 1e3);
        sizes(text("tutti{}{}", setting.empty() ? "" : " ", setting), false);
        job_.barrier();
        job_.module().close(group_);
        if (options_.linger_ns) counts();
        apply(setting, true);
      }
    }
    if (nccl_open_) sizes(options_.nccl_windows ? "nccl windows" : "nccl", true);
  }

 private:
  void* allocate(size_t bytes) {
    void* memory = options_.nccl_windows
                       ? nccl_.window(bytes)
                       : job_.memory().allocate(gpu::Kind::device, job_.device(), bytes);
    if (!memory) job_.fail("no device memory");
    return memory;
  }
  void must(Status status, const char* what) {
    if (!status.ok()) job_.fail(text("{}: {}", what, status.text()));
  }
  // knob=value,... ; `back` puts the knobs to 0.
  void apply(const std::string& setting, bool back) {
    void* handle = dlopen(options_.module.c_str(), RTLD_NOW | RTLD_NOLOAD);
    auto set = handle
                   ? reinterpret_cast<int (*)(const char*, long)>(dlsym(handle, "tutti_cuda_set"))
                   : nullptr;
    std::stringstream parts(setting);
    for (std::string part; std::getline(parts, part, ',');) {
      const size_t equals = part.find('=');
      if (!set || equals == std::string::npos ||
          set(part.substr(0, equals).c_str(), back ? 0 : std::atol(part.c_str() + equals + 1)) != 0)
        job_.fail("unknown knob: " + part);
    }
  }

  // What became of the calls that could linger.
  void counts() {
    void* handle = dlopen(options_.module.c_str(), RTLD_NOW | RTLD_NOLOAD);
    auto get =
        handle ? reinterpret_cast<long (*)(const char*)>(dlsym(handle, "tutti_cuda_get")) : nullptr;
    if (get && job_.rank() == 0)
      std::printf("# rung %ld launched to stay %ld missed %ld\n", get("rung"), get("launched"),
                  get("missed"));
  }

  void sizes(const std::string& who, bool nccl) {
    for (Coll coll : options_.colls)
      for (uint64_t bytes = options_.min; bytes <= options_.max; bytes *= options_.step) {
        const Shape shape = shape_of(coll, bytes, job_.nranks());
        if (shape.count > 0) measure(who, shape, bytes, nccl);
      }
  }

  // Where the time of a call goes: until the gate is closed, in start(), until poll() says done.
  void phases(const Shape& shape, uint64_t bytes) {
    constexpr int calls = 1000;
    std::vector<double> parts[3];
    for (int i = 0; i < calls; ++i) {
      gpu::Call call = call_of(shape, send_);
      const double begin = now_seconds();
      job_.gate(0, ++calls_);
      const double closed = now_seconds();
      must(job_.module().start(group_, call), "start");
      const double started = now_seconds();
      while (!job_.module().poll(group_).finished()) {
      }
      const double done = now_seconds();
      parts[0].push_back(closed - begin);
      parts[1].push_back(started - closed);
      parts[2].push_back(done - started);
    }
    double medians[3];
    for (int i = 0; i < 3; ++i) {
      std::sort(parts[i].begin(), parts[i].end());
      medians[i] = job_.worst(parts[i][calls / 2]) * 1e6;
    }
    if (job_.rank() == 0)
      std::printf("phases %-20s %11llu B gate %.2f us start %.2f us wait %.2f us\n",
                  name(shape.coll), static_cast<unsigned long long>(bytes), medians[0], medians[1],
                  medians[2]);
  }

  gpu::Call call_of(const Shape& shape, const void* send) const {
    gpu::Call call;
    call.agreed.coll = shape.coll;
    call.agreed.dtype = Dtype::f32;
    call.agreed.count = shape.count;
    call.send = send;
    call.recv = recv_;
    call.recv_kind = gpu::Kind::device;
    call.send_kind = gpu::Kind::device;
    return call;
  }

  void one(const Shape& shape, bool nccl, const void* send) {
    if (nccl) {
      if (!nccl_.call(shape, send, recv_)) job_.fail("NCCL");
      return;
    }
    const gpu::Call call = call_of(shape, send);
    job_.gate(0, ++calls_);
    must(job_.module().start(group_, call), "start");
    while (true) {
      Poll poll = job_.module().poll(group_);
      if (poll.finished()) return must(poll.status(), "poll");
    }
  }

  // Compares the result: all of it to 16 MiB, then every 1021st float.
  void check(const Shape& shape, bool nccl) {
    std::vector<float> result(shape.recv_bytes / 4, -1.0f);
    must(job_.module().copy(job_.device(), recv_, result.data(), shape.recv_bytes), "poison");
    if (in_place(shape, nccl))
      must(job_.module().copy(job_.device(), recv_, send_, shape.send_bytes), "fill in place");
    job_.barrier();
    one(shape, nccl, in_place(shape, nccl) ? recv_ : send_);
    must(job_.module().copy(job_.device(), result.data(), recv_, shape.recv_bytes), "read");
    const uint64_t stride = shape.recv_bytes <= 16 << 20 ? 1 : 1021;
    for (uint64_t i = 0; i < result.size(); i += stride) {
      float want = 0;
      if (shape.coll == Coll::allgather) {
        want = input(static_cast<int>(i / shape.count), i % shape.count);
      } else {
        const uint64_t at = shape.coll == Coll::allreduce
                                ? i
                                : i + static_cast<uint64_t>(job_.rank()) * shape.count;
        for (int r = 0; r < job_.nranks(); ++r) want += input(r, at);
      }
      if (result[i] != want)
        job_.fail(text("{} count {} element {}: {} instead of {}", name(shape.coll), shape.count, i,
                       result[i], want));
    }
  }

  bool in_place(const Shape& shape, bool) const {
    return options_.in_place && shape.coll == Coll::allreduce;
  }

  void measure(const std::string& who, const Shape& shape, uint64_t bytes, bool nccl) {
    check(shape, nccl);
    const int calls = calls_for(bytes), warm = std::max(2, calls / 10);
    std::vector<double> times;
    job_.barrier();
    for (int i = 0; i < warm + calls; ++i) {
      const double begin = now_seconds();
      one(shape, nccl, in_place(shape, nccl) ? recv_ : send_);
      if (i >= warm) times.push_back(now_seconds() - begin);
    }
    job_.barrier();
    check(shape, nccl);
    if (options_.phases && !nccl) phases(shape, bytes);
    write_raw(who, shape, bytes, times);
    std::sort(times.begin(), times.end());
    const double median = job_.worst(times[times.size() / 2]);
    const double p99 = job_.worst(times[times.size() * 99 / 100]);
    if (job_.rank() != 0) return;
    std::printf("%-14s %-20s %11llu B median %9.2f us p99 %9.2f us %7.1f GB/s\n", who.c_str(),
                name(shape.coll), static_cast<unsigned long long>(bytes), median * 1e6, p99 * 1e6,
                static_cast<double>(bytes) / median * 1e-9);
    std::fflush(stdout);
  }

  void write_raw(const std::string& who, const Shape& shape, uint64_t bytes,
                 const std::vector<double>& times) {
    if (!raw_) return;
    std::fprintf(raw_, "%s,%s,%llu", who.c_str(), name(shape.coll),
                 static_cast<unsigned long long>(bytes));
    for (double t : times) std::fprintf(raw_, ",%.0f", t * 1e9);
    std::fprintf(raw_, "\n");
    std::fflush(raw_);
  }

  Job& job_;
  const Options& options_;
  Nccl nccl_;
  bool nccl_open_ = false;
  gpu::Group* group_ = nullptr;
  void* send_ = nullptr;
  void* recv_ = nullptr;
  uint64_t calls_ = 0;
  std::FILE* raw_ = nullptr;
};

std::vector<Coll> parse_colls(const char* list) {
  std::vector<Coll> colls;
  std::stringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');)
    if (auto coll = find_coll(part))
      colls.push_back(*coll);
    else
      std::exit(2);
  return colls;
}

Options parse(int argc, char** argv) {
  Options o;
  const option names[] = {
      {"module", 1, nullptr, 'm'},   {"ranks", 1, nullptr, 'r'}, {"colls", 1, nullptr, 'c'},
      {"min", 1, nullptr, 'a'},      {"max", 1, nullptr, 'b'},   {"step", 1, nullptr, 'f'},
      {"in-place", 0, nullptr, 'i'}, {"lane", 1, nullptr, 'l'},  {"ctas", 1, nullptr, 't'},
      {"set", 1, nullptr, 's'},      {"nccl", 1, nullptr, 'n'},  {"nccl-windows", 0, nullptr, 'w'},
      {"phases", 0, nullptr, 'p'},   {"raw", 1, nullptr, 'o'},   {"linger", 1, nullptr, 'g'},
      {nullptr, 0, nullptr, 0}};
  for (int c; (c = getopt_long(argc, argv, "", names, nullptr)) != -1;) switch (c) {
      case 'm':
        o.module = optarg;
        break;
      case 'r':
        o.ranks = std::atoi(optarg);
        break;
      case 'c':
        o.colls = parse_colls(optarg);
        break;
      case 'a':
        o.min = std::strtoull(optarg, nullptr, 0);
        break;
      case 'b':
        o.max = std::strtoull(optarg, nullptr, 0);
        break;
      case 'f':
        o.step = std::max<uint64_t>(2, std::strtoull(optarg, nullptr, 0));
        break;
      case 'i':
        o.in_place = true;
        break;
      case 'l':
        o.lane_bytes = std::strtoull(optarg, nullptr, 0);
        break;
      case 't':
        o.ctas = static_cast<uint32_t>(std::atoi(optarg));
        break;
      case 's':
        o.settings.push_back(optarg);
        break;
      case 'n':
        o.nccl = optarg;
        break;
      case 'w':
        o.nccl_windows = true;
        break;
      case 'p':
        o.phases = true;
        break;
      case 'g':
        o.linger_ns = std::strtoull(optarg, nullptr, 0) * 1000;
        break;
      case 'o':
        o.raw = optarg;
        break;
      default:
        std::exit(2);
    }
  return o;
}

int bench(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (access("/dev/nvidiactl", R_OK | W_OK) != 0) {
    std::printf("skipped: no NVIDIA device\n");
    return 77;
  }
  return run_ranks(options.ranks, 590, [&](Control* control, int rank) {
    std::string why;
    std::unique_ptr<Memory> memory = cuda_memory(&why);
    if (!memory) {
      std::fprintf(stderr, "%s\n", why.c_str());
      return 1;
    }
    Result<const gpu::Module*> module = gpu::open_module(options.module);
    if (!module.ok()) return 1;
    Job job(control, rank, options.ranks, *module, memory.get());
    Bench(job, options).run();
    job.barrier();
    return 0;
  });
}

}  // namespace
}  // namespace tutti::testing

int main(int argc, char** argv) {
  return tutti::testing::bench(argc, argv);
}
