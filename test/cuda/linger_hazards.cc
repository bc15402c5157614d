// What a program does with its GPU between small collectives, while a kernel of ours may linger there:
// it frees memory, synchronises the device, runs kernels on streams of every sort, captures a stream,
// forks, fills the whole device. Each is interleaved with calls whose results are checked, and must end:
// an alarm says which one did not. Beside each stands the median time of the program's own operation,
// without and with a lingering kernel, for the reader; no time is asserted.
//
//   linger_hazards [--module PATH] [--ranks N] [--linger US] [--calls N] [--only NAME]
//
// Also to be run with CUDA_LAUNCH_BLOCKING=1 and under compute-sanitizer: there a launch or a kernel
// takes long, and still everything ends.
#include <cuda.h>
#include <dlfcn.h>
#include <getopt.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "../gpu/harness.hpp"
#include "base/text.hpp"
#include "gpu/module.hpp"

namespace tutti::testing {
namespace {

// The program's kernels. fill: p[i] = value + i; spin: busy for so many ns.
constexpr const char* program_ptx = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry fill(.param .u64 pp, .param .u32 pn, .param .u32 pv) {
  .reg .u32 %n, %v, %i, %c, %t, %b;
  .reg .u64 %p, %o;
  .reg .pred %out;
  ld.param.u64 %p, [pp];
  ld.param.u32 %n, [pn];
  ld.param.u32 %v, [pv];
  mov.u32 %c, %ctaid.x;
  mov.u32 %b, %ntid.x;
  mov.u32 %t, %tid.x;
  mad.lo.u32 %i, %c, %b, %t;
  setp.ge.u32 %out, %i, %n;
  @%out bra end;
  cvta.to.global.u64 %p, %p;
  mul.wide.u32 %o, %i, 4;
  add.u64 %p, %p, %o;
  add.u32 %v, %v, %i;
  st.global.u32 [%p], %v;
end:
  ret;
}
.visible .entry spin(.param .u64 pns) {
  .reg .u64 %ns, %begin, %now;
  .reg .pred %more;
  ld.param.u64 %ns, [pns];
  mov.u64 %begin, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %more, %now, %ns;
  @%more bra again;
  ret;
}
)";

struct Options {
  std::string module = "cuda";
  int ranks = 2;
  uint64_t linger_ns = 50'000;
  int calls = 300;
  std::string only;
};

// The driver, as the program uses it. <cuda.h> maps the names to their current versions.
#define TUTTI_TEXT(name) #name
#define TUTTI_ENTRY(member, name) \
  decltype(&::name) member = find<decltype(&::name)>(TUTTI_TEXT(name));
struct Cuda {
  template <class F>
  static F find(const char* name) {
    static void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    void* found = driver ? dlsym(driver, name) : nullptr;
    if (found) return reinterpret_cast<F>(found);
    std::fprintf(stderr, "the driver lacks %s\n", name);
    std::exit(1);
  }
  TUTTI_ENTRY(alloc, cuMemAlloc)
  TUTTI_ENTRY(free, cuMemFree)
  TUTTI_ENTRY(read, cuMemcpyDtoHAsync)
  TUTTI_ENTRY(synchronize_context, cuCtxSynchronize)
  TUTTI_ENTRY(synchronize, cuStreamSynchronize)
  TUTTI_ENTRY(create_stream, cuStreamCreate)
  TUTTI_ENTRY(load_module, cuModuleLoadData)
  TUTTI_ENTRY(unload_module, cuModuleUnload)
  TUTTI_ENTRY(function, cuModuleGetFunction)
  TUTTI_ENTRY(launch, cuLaunchKernel)
  TUTTI_ENTRY(begin_capture, cuStreamBeginCapture)
  TUTTI_ENTRY(end_capture, cuStreamEndCapture)
  TUTTI_ENTRY(instantiate, cuGraphInstantiate)
  TUTTI_ENTRY(launch_graph, cuGraphLaunch)
  TUTTI_ENTRY(destroy_exec, cuGraphExecDestroy)
  TUTTI_ENTRY(destroy_graph, cuGraphDestroy)
  TUTTI_ENTRY(pin, cuMemHostRegister)
  TUTTI_ENTRY(unpin, cuMemHostUnregister)
};
#undef TUTTI_ENTRY
#undef TUTTI_TEXT

constexpr uint32_t most_elements = 32 << 10;  // 128 KiB of int32: the largest call that lingers

// One rank of the program.
class Program {
 public:
  Program(Job& job, const Options& options)
      : job_(job), options_(options), random_(static_cast<unsigned>(job.rank()) + 1) {
    // Hazards are what makes stays rare.
    entry<int(const char*, long)>("tutti_cuda_set")("linger_eager", 1);
    must(cuda_.load_module(&module_, program_ptx), "load the program's kernels");
    must(cuda_.function(&fill_, module_, "fill"), "fill");
    must(cuda_.function(&spin_, module_, "spin"), "spin");
    must(cuda_.create_stream(&stream_, CU_STREAM_NON_BLOCKING), "stream");
    must(cuda_.create_stream(&blocking_, CU_STREAM_DEFAULT), "stream");
    must(cuda_.alloc(&send_, 4 * most_elements), "memory");
    must(cuda_.alloc(&recv_, 4 * most_elements), "memory");
    must(cuda_.alloc(&graph_memory_, 64), "memory");
  }

  void run() {
    const std::vector<Hazard> hazards = list();
    for (const Hazard& hazard : hazards) {
      if (!options_.only.empty() && options_.only != hazard.name) continue;
      double medians[2];
      long rung = 0;
      for (const bool lingering : {false, true}) {
        phase = hazard.name;
        alarm(60);
        const long before = count("rung");
        medians[lingering] = interleave(hazard, lingering ? options_.linger_ns : 0);
        rung = count("rung") - before;
        alarm(0);
      }
      if (job_.rank() == 0)
        std::printf("ok %-34s %8.1f us, with a lingering kernel %8.1f us; %ld of %d calls rung\n",
                    hazard.name, medians[0], medians[1], rung, 4 * options_.calls);
      std::fflush(stdout);
    }
  }

  static const char* phase;  // for the alarm

 private:
  struct Hazard {
    const char* name;
    std::function<void()> before;  // a call lies between the two
    std::function<void()> after;   // timed
  };

  std::vector<Hazard> list() {
    static std::vector<char> host(1 << 16);
    const auto none = [] {};
    return {
        {"nothing", none, none},
        {"free 1 MiB", [this] { must(cuda_.alloc(&scratch_, 1 << 20), "memory"); },
         [this] { must(cuda_.free(scratch_), "free"); }},
        {"free 64 MiB", [this] { must(cuda_.alloc(&scratch_, 64 << 20), "memory"); },
         [this] { must(cuda_.free(scratch_), "free"); }},
        {"allocate 1 MiB", none,
         [this] {
           must(cuda_.alloc(&scratch_, 1 << 20), "memory");
           must(cuda_.free(scratch_), "free");
         }},
        {"synchronise the device", none,
         [this] { must(cuda_.synchronize_context(), "cuCtxSynchronize"); }},
        {"kernel, nonblocking stream", none, [this] { spin_on(stream_, 1, 1000); }},
        {"kernel, blocking stream", none, [this] { spin_on(blocking_, 1, 1000); }},
        {"kernel, legacy default stream", none, [this] { spin_on(nullptr, 1, 1000); }},
        {"kernel that fills the device", none, [this] { spin_on(stream_, 2112, 20'000); }},
        {"register host memory", none,
         [this] {
           must(cuda_.pin(host.data(), host.size(), 0), "cuMemHostRegister");
           must(cuda_.unpin(host.data()), "cuMemHostUnregister");
         }},
        {"load a module", none,
         [this] {
           CUmodule other;
           must(cuda_.load_module(&other, program_ptx), "load");
           must(cuda_.unload_module(other), "unload");
         }},
        {"call inside a capture",
         [this] {
           must(cuda_.begin_capture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), "begin capture");
           fill_on(stream_, graph_memory_, 16, 5);
         },
         [this] {
           CUgraph graph;
           CUgraphExec exec;
           must(cuda_.end_capture(stream_, &graph), "end capture");
           must(cuda_.instantiate(&exec, graph, 0), "instantiate");
           must(cuda_.launch_graph(exec, stream_), "launch graph");
           must(cuda_.synchronize(stream_), "synchronize");
           must(cuda_.destroy_exec(exec), "destroy");
           must(cuda_.destroy_graph(graph), "destroy");
         }},
        {"fork", none,
         [] {
           const pid_t child = fork();
           if (child == 0) _exit(0);
           waitpid(child, nullptr, 0);
         }},
        {"pause about as long as the window", none,
         [this] {
           const double begin = now_seconds();
           const double wait = static_cast<double>(options_.linger_ns) * 1e-9 *
                               (0.8 + 0.3 * static_cast<double>(random_() % 1000) / 1000);
           while (now_seconds() - begin < wait) {
           }
         }},
    };
  }

  // Again and again: a new input, by a kernel of the program; three calls close to each other, so that a
  // kernel lingers; one more inside what the hazard begins; the program's operation; a check. The median
  // time of the operation, in us.
  double interleave(const Hazard& hazard, uint64_t linger_ns) {
    gpu::GroupSpec spec;
    spec.linger_ns = linger_ns;
    gpu::Group* group = nullptr;
    if (!job_.make_group(spec, &group).ok()) job_.fail("group");
    std::vector<double> times;
    for (int i = 0; i < options_.calls; ++i) {
      new_input();
      for (int k = 0; k < 3; ++k) call(group);
      hazard.before();
      call(group);
      const double begin = now_seconds();
      hazard.after();
      times.push_back(now_seconds() - begin);
      check();
    }
    job_.barrier();
    job_.module().close(group);
    std::sort(times.begin(), times.end());
    return job_.worst(times[times.size() / 2]) * 1e6;
  }

  void new_input() {
    // Equal on all ranks.
    const uint64_t dice = ++inputs_ * 0x9e3779b97f4a7c15 >> 33;
    elements_ = static_cast<uint32_t>(1 + dice % (dice % 3 ? 64 : most_elements));
    fill_on(stream_, send_, elements_, input(job_.rank()));
    fill_on(stream_, recv_, elements_, 0xdeadbeef);
    must(cuda_.synchronize(stream_), "synchronize");
  }
  uint32_t input(int rank) const {
    return static_cast<uint32_t>(inputs_ * 7919 + static_cast<uint64_t>(rank) * 104729);
  }

  void call(gpu::Group* group) {
    gpu::Call call;
    call.agreed.dtype = Dtype::i32;
    call.agreed.count = elements_;
    call.send = reinterpret_cast<const void*>(send_);
    call.recv = reinterpret_cast<void*>(recv_);
    call.send_kind = call.recv_kind = gpu::Kind::device;
    job_.gate(0, ++gates_);
    if (!job_.module().start(group, call).ok()) job_.fail("start");
    Poll poll = Poll::busy();
    while (!(poll = job_.module().poll(group)).finished()) {
    }
    if (!poll.status().ok()) job_.fail(text("{}: {}", phase, poll.status().text()));
  }

  void check() {
    std::vector<uint32_t> result(elements_);
    must(cuda_.read(result.data(), recv_, 4 * elements_, stream_), "read");
    must(cuda_.synchronize(stream_), "synchronize");
    for (uint32_t i = 0; i < elements_; ++i) {
      uint32_t want = 0;
      for (int r = 0; r < job_.nranks(); ++r) want += input(r) + i;
      if (result[i] != want)
        job_.fail(text("{}: input {} of {} elements, element {}: {} instead of {}", phase, inputs_,
                       elements_, i, result[i], want));
    }
  }

  void fill_on(CUstream stream, CUdeviceptr memory, uint32_t n, uint32_t value) {
    void* parameters[] = {&memory, &n, &value};
    must(cuda_.launch(fill_, (n + 255) / 256, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr),
         "fill");
  }
  void spin_on(CUstream stream, unsigned ctas, uint64_t ns) {
    void* parameters[] = {&ns};
    must(cuda_.launch(spin_, ctas, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr), "spin");
    must(cuda_.synchronize(stream), "synchronize");
  }
  // An entry of the module in use for tests.
  template <class F>
  F* entry(const char* name) {
    Dl_info where{};
    dladdr(reinterpret_cast<void*>(job_.module().query), &where);
    void* handle = dlopen(where.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    void* found = handle ? dlsym(handle, name) : nullptr;
    if (!found) job_.fail(text("the module lacks {}", name));
    return reinterpret_cast<F*>(found);
  }
  long count(const char* what) { return entry<long(const char*)>("tutti_cuda_get")(what); }
  void must(CUresult result, const char* what) {
    if (result != CUDA_SUCCESS)
      job_.fail(text("{}: {}: CUDA error {}", phase, what, static_cast<int>(result)));
  }

  Job& job_;
  const Options& options_;
  Cuda cuda_;
  std::mt19937 random_;
  CUmodule module_ = nullptr;
  CUfunction fill_ = nullptr, spin_ = nullptr;
  CUstream stream_ = nullptr, blocking_ = nullptr;
  CUdeviceptr send_ = 0, recv_ = 0, scratch_ = 0, graph_memory_ = 0;
  uint64_t inputs_ = 0, gates_ = 0;
  uint32_t elements_ = 0;
};
const char* Program::phase = "";

void on_alarm(int) {
  const char* parts[] = {"FAILED no end in time: ", Program::phase, "\n"};
  for (const char* part : parts)
    if (write(2, part, std::strlen(part)) < 0) break;
  _exit(1);
}

Options parse(int argc, char** argv) {
  Options o;
  const option names[] = {{"module", 1, nullptr, 'm'}, {"ranks", 1, nullptr, 'r'},
                          {"linger", 1, nullptr, 'l'}, {"calls", 1, nullptr, 'c'},
                          {"only", 1, nullptr, 'o'},   {nullptr, 0, nullptr, 0}};
  for (int c; (c = getopt_long(argc, argv, "", names, nullptr)) != -1;) switch (c) {
      case 'm':
        o.module = optarg;
        break;
      case 'r':
        o.ranks = std::atoi(optarg);
        break;
      case 'l':
        o.linger_ns = std::strtoull(optarg, nullptr, 0) * 1000;
        break;
      case 'c':
        o.calls = std::atoi(optarg);
        break;
      case 'o':
        o.only = optarg;
        break;
      default:
        std::exit(2);
    }
  return o;
}

int hazards(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (access("/dev/nvidiactl", R_OK | W_OK) != 0) {
    std::printf("skipped: no NVIDIA device\n");
    return 77;
  }
  return run_ranks(options.ranks, 580, [&](Control* control, int rank) {
    std::signal(SIGALRM, on_alarm);
    std::string why;
    std::unique_ptr<Memory> memory = cuda_memory(&why);
    if (!memory) {
      std::fprintf(stderr, "%s\n", why.c_str());
      return 1;
    }
    Result<const gpu::Module*> module = gpu::open_module(options.module);
    if (!module.ok()) return 1;
    Job job(control, rank, options.ranks, *module, memory.get());
    Program(job, options).run();
    job.barrier();
    return 0;
  });
}

}  // namespace
}  // namespace tutti::testing

int main(int argc, char** argv) {
  return tutti::testing::hazards(argc, argv);
}
