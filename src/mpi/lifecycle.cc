#include "mpi/lifecycle.hpp"

#include <dlfcn.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <string>

#include "base/hash.hpp"
#include "base/log.hpp"
#include "comm/communicator.hpp"
#include "comm/memory.hpp"
#include "comm/tuning_file.hpp"
#include "mpi/entry.hpp"
#include "mpi/handles.hpp"
#include "mpi/pairing.hpp"
#include "mpi/requests.hpp"
#include "mpi/required.hpp"
#include "mpi/state.hpp"
#include "mpi/strip_cache.hpp"
#include "tutti.h"

namespace tutti::mpi {

std::atomic<Phase> phase{Phase::before};
uint32_t calls_offered = 0;
bool devices_possible = false;

namespace {

Runtime* instance = nullptr;
bool attribute_set = false;
int self_keyval = MPI_KEYVAL_INVALID;

// ---- What the ranks tell each other at MPI_Init.

struct Greeting {
  uint64_t node;      // equal on ranks that may share memory
  uint64_t affinity;  // the set of cores this rank may use, hashed
  uint64_t settings;  // agreed_hash()
  int32_t by_thread;  // pending calls progress by tutti's thread
  int32_t bad;        // this rank's settings cannot be read
  int32_t device;     // it may see a device
  int32_t network;    // it may open one between nodes
};

// Ranks with one kernel and one /dev/shm. Only a first sorting: a node is what maps one segment.
uint64_t node_hash() {
  uint64_t hash = empty_hash;
  char text[256] = {};
  if (std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "re")) {
    const size_t n = std::fread(text, 1, sizeof(text), file);
    std::fclose(file);
    hash = hash_of(text, n, hash);
  } else {
    gethostname(text, sizeof(text) - 1);
    hash = hash_of(text, std::strlen(text), hash);
  }
  struct stat shm = {};
  if (stat("/dev/shm", &shm) == 0) {
    hash = hash_of(&shm.st_dev, sizeof(shm.st_dev), hash);
    hash = hash_of(&shm.st_ino, sizeof(shm.st_ino), hash);
  }
  return hash;
}

int usable_cores(uint64_t& hash) {
  cpu_set_t set;
  CPU_ZERO(&set);
  // Fails where there are more cores than the set holds; then nobody is said to be short of them.
  if (sched_getaffinity(0, sizeof(set), &set) != 0) CPU_SET(0, &set);
  hash = hash_of(&set, sizeof(set));
  return CPU_COUNT(&set);
}

// Ranks of this node bound to the same cores as this one outnumber them.
bool oversubscribed(const std::vector<Greeting>& all, const Greeting& own, int cores) {
  const auto sharing = std::count_if(all.begin(), all.end(), [&](const Greeting& other) {
    return other.node == own.node && other.affinity == own.affinity;
  });
  return sharing > cores;
}

std::vector<int32_t> number_nodes(const std::vector<Greeting>& all) {
  std::map<uint64_t, int32_t> numbers;
  std::vector<int32_t> nodes;
  for (const Greeting& one : all) {
    auto at = numbers.emplace(one.node, static_cast<int32_t>(numbers.size())).first;
    nodes.push_back(at->second);
  }
  return nodes;
}

Job job_of(const std::vector<Greeting>& all) {
  Job job;
  job.network = true;
  bool several_nodes = false;
  for (const Greeting& one : all) {
    job.devices |= one.device != 0;
    several_nodes |= one.node != all[0].node;
    job.network &= one.network != 0;
  }
  job.network &= several_nodes;
  return job;
}

uint32_t offer(const Job& job, const Config& config) {
  // What is required to be native is looked at, be it to refuse it.
  if (config.require.native) return (1u << coll_count) - 1;
  return calls_wanted(job, config);
}

// ---- Beginning.

[[noreturn]] void give_up() {
  // A launcher that is told to abort ends the job at once, and Hydra then drops output that it has not
  // passed on yet: leave it the time to show why.
  const timespec pause = {0, 300'000'000};
  nanosleep(&pause, nullptr);
  below.Abort(MPI_COMM_WORLD, 1);
  // MPI_Abort does not return; were it to, going on with settings nobody asked for would be worse.
  _exit(1);
}

// A second copy of the library in the process would do everything twice.
bool first_copy() {
  void* first = dlsym(RTLD_DEFAULT, "tutti_version");
  return first == nullptr || first == reinterpret_cast<void*>(&tutti_version);
}

// Before any handle is used: those of another MPI mean something else there. Its Abort cannot be called
// either; a launcher ends the job of a process that leaves like this.
void check_pairing() {
  char version[16384] = {};  // MPI_MAX_LIBRARY_VERSION_STRING is 256 or 8192, by the MPI that runs
  int length = 0;
  below.Get_library_version(version, &length);
  std::string why = misfit(built_with(), read_release(version), version);
  const auto abi_version =
      reinterpret_cast<int (*)(int*, int*)>(find_below("PMPI_Abi_get_version"));
  if (why.empty() && has_standard_handles(abi_version) != built_with_standard_handles())
    why = misfit_of_handles();
  if (why.empty()) return;
  TUTTI_ERROR("mpi", "{}", why);
  _exit(1);
}

ParsedConfig read_settings(int rank) {
  ParsedConfig parsed = parse_config(process_environment());
  log::set_rank(rank);
  if (!log::open(parsed.config.log_level, parsed.config.log_file))
    TUTTI_WARN("mpi", "TUTTI_LOG_FILE={} cannot be opened: messages go to standard error",
               parsed.config.log_file);
  for (const std::string& error : parsed.errors) TUTTI_ERROR("mpi", "{}", error);
  if (rank == 0)
    for (const std::string& warning : parsed.warnings) TUTTI_WARN("mpi", "{}", warning);
  return parsed;
}

// The one exchange of MPI_Init. It comes before any choice that depends on settings, so that ranks
// whose settings differ can say so.
std::vector<Greeting> exchange(const Greeting& own) {
  int nranks = 0;
  below.Comm_size(MPI_COMM_WORLD, &nranks);
  std::vector<Greeting> all(static_cast<size_t>(nranks));
  if (below.Allgather.pmpi(&own, sizeof(own), MPI_BYTE, all.data(), sizeof(own), MPI_BYTE,
                           MPI_COMM_WORLD) != MPI_SUCCESS)
    give_up();
  return all;
}

void check_agreement(const std::vector<Greeting>& all, const Greeting& own, const Config& config) {
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].bad != 0) {
      if (own.bad == 0) TUTTI_ERROR("mpi", "the settings of rank {} cannot be read", i);
      give_up();
    }
    if (all[i].settings == own.settings) continue;
    TUTTI_ERROR("mpi",
                "settings that must be equal on all ranks differ from those of rank {}; here: {}",
                i, agreed_settings(config));
    give_up();
  }
}

int on_self_delete(MPI_Comm, int, void*, void*);

int no_copy(MPI_Comm, int, void*, void*, void*, int* flag) {
  *flag = 0;
  return MPI_SUCCESS;
}

bool open_self() {
  if (below.Comm_dup.pmpi(MPI_COMM_SELF, &instance->self) != MPI_SUCCESS) return false;
  below.Comm_set_name(instance->self, "tutti");
  below.Comm_set_errhandler(instance->self, MPI_ERRORS_RETURN);
  attribute_set =
      below.Comm_create_keyval(&no_copy, &on_self_delete, &self_keyval, nullptr) == MPI_SUCCESS &&
      below.Comm_set_attr(MPI_COMM_SELF, self_keyval, nullptr) == MPI_SUCCESS;
  return true;
}

bool open_rest(EngineHooks& hooks) {
  open_handles();
  if (!open_self() || !open_base_progress().ok() || !open_states().ok()) return false;
  instance->engine.set_hooks(hooks);
  return true;
}

// together: all ranks are here, in MPI_Init. Otherwise tutti came late and knows only itself.
void begin(bool together) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  if (phase.load() != Phase::before) return;
  phase = Phase::over;  // until all has gone well
  if (!first_copy()) return;
  check_pairing();
  int rank = 0;
  int thread_level = MPI_THREAD_SINGLE;
  below.Comm_rank(MPI_COMM_WORLD, &rank);
  below.Query_thread(&thread_level);
  const ParsedConfig parsed = read_settings(rank);
  const Config& config = parsed.config;
  EngineHooks hooks;
  hooks.single_threaded = thread_level < MPI_THREAD_SERIALIZED;
  hooks.warn_after_ns = config.timeout_warn_ns;
  hooks.fail_after_ns = config.timeout_ns;
  Greeting own = {};
  const bool good = parsed.errors.empty() && read_tuning_file(config.table).ok() &&
                    open_requests(config, hooks).ok();
  own.bad = good ? 0 : 1;
  own.node = node_hash();
  const int cores = usable_cores(own.affinity);
  own.settings = agreed_hash(config);
  own.by_thread = progress_by_thread() ? 1 : 0;
  if (config.enable && own.bad == 0) {
    instance = new Runtime(config);
    memory::open(instance->config);
    own.device = memory::possible ? 1 : 0;
    own.network = may_open_network(instance->config) ? 1 : 0;
  }
  std::vector<Greeting> all = {own};
  if (together) all = exchange(own);
  check_agreement(all, own, config);
  if (!config.enable) return;
  hooks.oversubscribed |= oversubscribed(all, own, cores);
  TUTTI_DEBUG("mpi", "waits {}", hooks.oversubscribed ? "yield their core" : "keep their core");
  counting_threads = thread_level == MPI_THREAD_MULTIPLE;
  if (together) instance->world_nodes = number_nodes(all);
  instance->set_up_by_blocking_calls =
      std::any_of(all.begin(), all.end(), [](const Greeting& one) { return one.by_thread != 0; });
  if (!open_rest(hooks)) {
    TUTTI_ERROR("mpi", "the MPI below refused a duplicate of MPI_COMM_SELF or an attribute key");
    give_up();
  }
  const Job job = job_of(all);
  instance->network = job.network;
  calls_offered = offer(job, instance->config);
  devices_possible = job.devices;
  native_required = config.require.native;
  phase = Phase::active;
}

// ---- End.

void end() {
  if (!active()) return;
  close_states();
  close_requests();
  if (instance->config.stats) log::write(log::Level::info, "stats", describe_counters());
  phase = Phase::over;
  calls_offered = 0;
  devices_possible = false;
  native_required = false;
  below.Comm_free.pmpi(&instance->self);
}

int on_self_delete(MPI_Comm, int, void*, void*) {
  end();
  return MPI_SUCCESS;
}

}  // namespace

Runtime& runtime() {
  return *instance;
}

bool late_active() {
  if (phase.load(std::memory_order_relaxed) != Phase::before) return active();
  int initialized = 0;
  int finalized = 0;
  below.Initialized(&initialized);
  below.Finalized(&finalized);
  if (initialized != 0 && finalized == 0) begin(false);
  return active();
}

namespace own {

int Init(Layer layer, int* argc, char*** argv) {
  Passage passage(layer);
  const int error = passage.pass(below.Init, argc, argv);
  if (error == MPI_SUCCESS && passage.outermost()) begin(true);
  return error;
}

int Init_thread(Layer layer, int* argc, char*** argv, int required, int* provided) {
  Passage passage(layer);
  const int error = passage.pass(below.Init_thread, argc, argv, required, provided);
  if (error == MPI_SUCCESS && passage.outermost()) begin(true);
  return error;
}

// Passed on without the guard: the callbacks of the program that MPI runs in here make calls like
// any other. A tool behind tutti comes back to this as PMPI_Finalize, and is passed on.
int Finalize(Layer layer) {
  {
    Passage passage(layer);
    if (active() && !attribute_set) end();
    if (phase.load() == Phase::before) phase = Phase::over;
    if (!passage.outermost()) layer = Layer::pmpi;
  }
  return layer == Layer::mpi ? below.Finalize.mpi() : below.Finalize.pmpi();
}

namespace {

// Whether the base is going to free it, as far as can be told: not the predefined ones.
bool goes(const Passage& passage, const MPI_Comm* comm) {
  return passage.outermost() && active() && comm != nullptr && *comm != MPI_COMM_WORLD &&
         *comm != MPI_COMM_SELF;
}

}  // namespace

int Comm_free(Layer layer, MPI_Comm* comm) {
  Passage passage(layer);
  if (goes(passage, comm))
    if (int error = close_state(*comm); error != MPI_SUCCESS) return error;
  return passage.pass(below.Comm_free, comm);
}

int Comm_disconnect(Layer layer, MPI_Comm* comm) {
  Passage passage(layer);
  if (goes(passage, comm))
    if (int error = close_state(*comm); error != MPI_SUCCESS) return error;
  return passage.pass(below.Comm_disconnect, comm);
}

int Type_free(Layer layer, MPI_Datatype* datatype) {
  Passage passage(layer);
  if (datatype != nullptr) forget_strips(*datatype);
  if (passage.outermost() && any_unsettled() && datatype != nullptr &&
      *datatype != MPI_DATATYPE_NULL) {
    if (free_later([handle = *datatype]() mutable { below.Type_free.pmpi(&handle); })) {
      *datatype = MPI_DATATYPE_NULL;
      return MPI_SUCCESS;
    }
  }
  return passage.pass(below.Type_free, datatype);
}

int Op_free(Layer layer, MPI_Op* op) {
  Passage passage(layer);
  if (passage.outermost() && any_unsettled() && op != nullptr && *op != MPI_OP_NULL) {
    if (free_later([handle = *op]() mutable { below.Op_free.pmpi(&handle); })) {
      *op = MPI_OP_NULL;
      return MPI_SUCCESS;
    }
  }
  return passage.pass(below.Op_free, op);
}

}  // namespace own

}  // namespace tutti::mpi
