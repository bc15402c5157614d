#include "mpi/state.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "comm/process.hpp"
#include "mpi/bounce.hpp"
#include "mpi/entry.hpp"
#include "mpi/lifecycle.hpp"
#include "mpi/persistent.hpp"
#include "mpi/requests.hpp"
#include "tutti.h"

namespace tutti::mpi {

std::atomic<uint64_t> state_generation{1};
std::atomic<int> unsettled_count{0};
constinit thread_local CachedState state_cache[cached_states] = {};

// The registry of all States, and the way into their private parts.
class States {
 public:
  int build(MPI_Comm comm, State** built);
  // Takes those whose set-up has ended off the list.
  void sweep();
  State* find_unsettled(MPI_Comm comm);
  std::shared_ptr<Deferral> defer(State& state, Call call, const Agreed* may_be_native);
  void close(State& state);
  void remove(State* state);
  void close_all();
  bool keep_back(std::function<void()> free);

  int keyval = MPI_KEYVAL_INVALID;

 private:
  void list(State* state);
  void barrier(const std::vector<MPI_Comm>& comms);
  bool conclude(State& state);

  std::mutex building_;
  std::mutex mutex_;  // of what follows
  std::vector<State*> all_;
  std::vector<State*> unsettled_;
  std::vector<std::function<void()>> frees_;
};

namespace {

// A network whose peers are alive closes in milliseconds.
constexpr uint64_t network_close_ns = 5'000'000'000;

States& states() {
  static States* const instance = new States;  // MPI deletes attributes late in the exit
  return *instance;
}

// ---- What a Communicator asks of the base.

Status allgather_start(void* handle, const void* mine, void* all, size_t bytes, void** request) {
  const State& state = *static_cast<State*>(handle);
  if (bytes > INT_MAX) return Code::internal;
  auto* inner = new MPI_Request(MPI_REQUEST_NULL);
  const int n = static_cast<int>(bytes);
  if (below.Iallgather.pmpi(mine, n, MPI_BYTE, all, n, MPI_BYTE, state.handle(), inner) !=
      MPI_SUCCESS) {
    TUTTI_ERROR("mpi",
                "the MPI below failed in the allgather that sets up a communicator of {} ranks",
                state.nranks());
    delete inner;
    return Code::internal;
  }
  *request = inner;
  return Code::ok;
}

Poll allgather_test(void* request) {
  auto* inner = static_cast<MPI_Request*>(request);
  int flag = 0;
  const int error = below.Test.pmpi(inner, &flag, MPI_STATUS_IGNORE);
  if (error == MPI_SUCCESS && flag == 0) return Poll::busy();
  delete inner;
  return error == MPI_SUCCESS ? Poll::done() : Poll::failed(Code::internal);
}

// Nodes of the communicator's ranks, numbered by first appearance; empty if one of them is not of
// this MPI_COMM_WORLD, which then is so on all ranks: each world sees a stranger.
std::vector<int32_t> nodes_of(MPI_Comm comm, int nranks) {
  const std::vector<int32_t>& world = runtime().world_nodes;
  if (world.empty()) return {};
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group world_group = MPI_GROUP_NULL;
  below.Comm_group(comm, &group);
  below.Comm_group(MPI_COMM_WORLD, &world_group);
  std::vector<int> ranks(static_cast<size_t>(nranks));
  std::vector<int> world_ranks(ranks.size(), MPI_UNDEFINED);
  for (int i = 0; i < nranks; ++i) ranks[static_cast<size_t>(i)] = i;
  below.Group_translate_ranks(group, nranks, ranks.data(), world_group, world_ranks.data());
  below.Group_free(&group);
  below.Group_free(&world_group);
  std::vector<int32_t> seen;
  std::vector<int32_t> nodes;
  for (const int rank : world_ranks) {
    if (rank == MPI_UNDEFINED) return {};
    const int32_t node = world[static_cast<size_t>(rank)];
    auto at = std::find(seen.begin(), seen.end(), node);
    nodes.push_back(static_cast<int32_t>(at - seen.begin()));
    if (at == seen.end()) seen.push_back(node);
  }
  return nodes;
}

BaseComm base_of(State& state) {
  BaseComm base;
  base.handle = &state;
  base.rank = state.rank();
  base.nranks = state.nranks();
  base.name = name_of(state.handle());
  base.nodes = nodes_of(state.handle(), state.nranks());
  base.network = runtime().network;
  base.allgather_start = &allgather_start;
  base.allgather_test = &allgather_test;
  return base;
}

// ---- The attribute.

int no_copy(MPI_Comm, int, void*, void*, void*, int* flag) {
  *flag = 0;
  return MPI_SUCCESS;
}

int on_delete(MPI_Comm, int, void* value, void*) {
  states().remove(static_cast<State*>(value));
  return MPI_SUCCESS;
}

}  // namespace

// ---- States.

int neighbours(MPI_Comm comm, int rank, Extent extent) {
  int topology = MPI_UNDEFINED;
  int n = 0;
  int in = 0;
  int out = 0;
  int weighted = 0;
  below.Topo_test(comm, &topology);
  switch (topology) {
    case MPI_CART:
      below.Cartdim_get(comm, &n);
      return 2 * n;
    case MPI_GRAPH:
      below.Graph_neighbors_count(comm, rank, &n);
      return n;
    case MPI_DIST_GRAPH:
      below.Dist_graph_neighbors_count(comm, &in, &out, &weighted);
      return extent == Extent::sources ? in : out;
    default:
      return 0;
  }
}

int State::extent(Extent extent) const {
  return extent == Extent::ranks ? nranks_ : neighbours(handle_, rank_, extent);
}

std::shared_ptr<Communicator> State::order_of_starts(int* error) {
  *error = MPI_SUCCESS;
  if (order_tried_) return order_of_starts_;
  order_tried_ = true;
  BaseComm base = base_of(*this);
  base.name += " (persistent calls)";
  const auto close = [](Communicator* communicator) {
    communicator->close();
    delete communicator;
  };
  std::shared_ptr<Communicator> made(
      Communicator::open(base, runtime().engine, runtime().config).release(), close);
  if (const Status status = made->settle(); !status.ok()) {
    *error = raise(handle_, status);
    return nullptr;
  }
  if (made->orders_starts())
    order_of_starts_ = std::move(made);
  else if (rank_ == 0)
    TUTTI_WARN("mpi", "{}: persistent calls on device buffers go through host copies: {}",
               name_of(handle_), made->describe());
  return order_of_starts_;
}

void States::list(State* state) {
  std::lock_guard<std::mutex> lock(mutex_);
  all_.push_back(state);
  if (state->communicator() == nullptr) return;
  state->settled_.store(state->communicator()->settled(), std::memory_order_release);
  if (state->settled()) return;
  unsettled_.push_back(state);
  unsettled_count.fetch_add(1, std::memory_order_relaxed);
}

int States::build(MPI_Comm comm, State** built) {
  // Threads build for different communicators; opening one waits for nobody.
  std::lock_guard<std::mutex> lock(building_);
  int inter = 0;
  int rank = 0;
  int nranks = 0;
  if (int error = below.Comm_test_inter(comm, &inter); error != MPI_SUCCESS) return error;
  if (int error = below.Comm_rank(comm, &rank); error != MPI_SUCCESS) return error;
  if (int error = below.Comm_size(comm, &nranks); error != MPI_SUCCESS) return error;
  auto state = std::make_unique<State>(comm, rank, nranks);
  if (inter == 0 && nranks > 1)
    state->communicator_ = Communicator::open(base_of(*state), runtime().engine, runtime().config);
  if (int error = below.Comm_set_attr(comm, keyval, state.get()); error != MPI_SUCCESS)
    return error;
  list(state.get());
  *built = state.release();
  return MPI_SUCCESS;
}

// Whether the set-up is over and what was queued behind it has begun. Under the lock.
bool States::conclude(State& state) {
  const Communicator& communicator = *state.communicator();
  if (!communicator.settled()) return false;
  const auto native = [&](const Deferral& one) {
    return one.may_be_native && communicator.choose(one.agreed) == Path::native;
  };
  for (const auto& one : state.deferrals_)
    if (!native(*one) && !one->begun.load(std::memory_order_acquire)) return false;
  for (const auto& one : state.deferrals_)
    if (native(*one)) count_taken(one->call, Taken::native);
  state.deferrals_.clear();
  state.settled_.store(true, std::memory_order_release);
  return true;
}

std::shared_ptr<Deferral> States::defer(State& state, Call call, const Agreed* may_be_native) {
  auto one = std::make_shared<Deferral>();
  one->call = call;
  one->may_be_native = may_be_native != nullptr;
  if (may_be_native != nullptr) {
    one->agreed = *may_be_native;
    one->counts.assign(one->agreed.counts.begin(), one->agreed.counts.end());
    one->agreed.counts = one->counts;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  state.deferrals_.push_back(one);
  return one;
}

void States::sweep() {
  std::vector<std::function<void()>> frees;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < unsettled_.size();) {
      if (!conclude(*unsettled_[i])) {
        ++i;
        continue;
      }
      unsettled_.erase(unsettled_.begin() + static_cast<ptrdiff_t>(i));
      unsettled_count.fetch_sub(1, std::memory_order_relaxed);
    }
    if (unsettled_.empty()) frees.swap(frees_);
  }
  for (const std::function<void()>& free : frees) free();
}

State* States::find_unsettled(MPI_Comm comm) {
  sweep();
  std::lock_guard<std::mutex> lock(mutex_);
  for (State* state : unsettled_)
    if (state->handle() == comm) return state;
  return nullptr;
}

bool States::keep_back(std::function<void()> free) {
  sweep();
  std::lock_guard<std::mutex> lock(mutex_);
  if (unsettled_.empty()) return false;
  frees_.push_back(std::move(free));
  return true;
}

void States::close(State& state) {
  if (state.communicator() == nullptr || state.closed_) return;
  state.closed_ = true;
  state.communicator()->close();
  // Those that the program may still start hold it, too.
  state.order_of_starts_.reset();
  complete_finished();
  sweep();
}

void States::remove(State* state) {
  close(*state);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    std::erase(all_, state);
    if (std::erase(unsettled_, state) != 0) unsettled_count.fetch_sub(1, std::memory_order_relaxed);
  }
  state_generation.fetch_add(1, std::memory_order_relaxed);
  delete state;
}

// The ranks of these communicators meet here.
void States::barrier(const std::vector<MPI_Comm>& comms) {
  std::vector<MPI_Request> requests(comms.size(), MPI_REQUEST_NULL);
  for (size_t i = 0; i < comms.size(); ++i) below.Ibarrier.pmpi(comms[i], &requests[i]);
  Fabric& fabric = Process::get(runtime().config).fabric();
  const EngineHooks& hooks = runtime().engine.hooks();
  const auto begin = std::chrono::steady_clock::now();
  bool warned = false;
  for (int flag = 0; flag == 0;) {
    below.Testall.pmpi(static_cast<int>(requests.size()), requests.data(), &flag,
                       MPI_STATUSES_IGNORE);
    if (flag != 0) break;
    fabric.progress();
    if (hooks.oversubscribed) std::this_thread::yield();
    const auto waited = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                                  std::chrono::steady_clock::now() - begin)
                                                  .count());
    if (hooks.warn_after_ns != 0 && waited > hooks.warn_after_ns && !warned) {
      warned = true;
      TUTTI_WARN("mpi", "MPI_Finalize has waited {} s for the other ranks", waited / 1000000000);
    }
    if (hooks.fail_after_ns == 0 || waited < hooks.fail_after_ns) continue;
    TUTTI_ERROR("mpi", "MPI_Finalize goes on after {} s without the other ranks",
                waited / 1000000000);
    return;
  }
}

void States::close_all() {
  std::vector<State*> open;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (State* state : all_)
      if (state->communicator() != nullptr) open.push_back(state);
  }
  close_persistent();
  for (State* state : open) close(*state);
  sweep();
  // All ranks of a communicator have a State of it or none has. Connections may be left of one that is
  // gone: where there can be a network, all ranks of the job meet.
  std::vector<MPI_Comm> comms;
  for (const State* state : open) comms.push_back(state->handle());
  const std::vector<int32_t>& nodes = runtime().world_nodes;
  const bool several_nodes =
      std::any_of(nodes.begin(), nodes.end(), [&](int32_t node) { return node != nodes[0]; });
  if (several_nodes) comms.push_back(MPI_COMM_WORLD);
  const uint64_t fail_after_ns = runtime().engine.hooks().fail_after_ns;
  const uint64_t bound_ns =
      fail_after_ns == 0 ? network_close_ns : std::min(fail_after_ns, network_close_ns);
  Fabric& fabric = Process::get(runtime().config).fabric();
  fabric.flush(bound_ns);
  if (!comms.empty()) barrier(comms);
  for (State* state : open) state->communicator_.reset();
  fabric.close(bound_ns);
}

// ---- The room's functions.

std::string name_of(MPI_Comm comm) {
  std::array<char, MPI_MAX_OBJECT_NAME> name{};
  int length = 0;
  if (below.Comm_get_name(comm, name.data(), &length) != MPI_SUCCESS || length == 0)
    return "a communicator without a name";
  return name.data();
}

int look_up_state(MPI_Comm comm, bool build, State** found) {
  *found = nullptr;
  if (comm == MPI_COMM_NULL) return MPI_SUCCESS;
  void* value = nullptr;
  int flag = 0;
  const int error = below.Comm_get_attr(comm, states().keyval, &value, &flag);
  if (error != MPI_SUCCESS) return error;
  State* state = static_cast<State*>(value);
  if (flag == 0) {
    if (!build) return MPI_SUCCESS;
    if (int fault = states().build(comm, &state); fault != MPI_SUCCESS) return fault;
  }
  cache_line(comm) = {comm, state_generation.load(std::memory_order_relaxed), state};
  *found = state;
  return MPI_SUCCESS;
}

State* unsettled_state(MPI_Comm comm) {
  return states().find_unsettled(comm);
}

std::shared_ptr<Deferral> defer(State& state, Call call, const Agreed* may_be_native) {
  return states().defer(state, call, may_be_native);
}

int settle(State& state) {
  const Status status = state.communicator()->settle();
  complete_finished();
  if (!status.ok()) return raise(state.handle(), status);
  // Calls queued behind the set-up come to their turn one by one; each waits for no more than its
  // own peers, which are on their way to this call too.
  for (states().sweep(); !state.settled(); states().sweep()) {
    drive();
    runtime().engine.hooks().base_progress();
    if (runtime().engine.hooks().oversubscribed) std::this_thread::yield();
  }
  return MPI_SUCCESS;
}

int keep_order(MPI_Comm comm) {
  State* state = unsettled_state(comm);
  return state == nullptr ? MPI_SUCCESS : settle(*state);
}

int start_later(State& state, MPI_Request* request, std::shared_ptr<BouncedCall> later) {
  Slot* slot = nullptr;
  if (int error = take_slot(state.handle(), &slot); error != MPI_SUCCESS) return error;
  Communicator::Below call;
  call.begin = [later, deferral = defer(state, later->call(), nullptr)] {
    const Status status = later->start();
    deferral->begun.store(true, std::memory_order_release);
    return status;
  };
  call.test = [later] { return later->test(); };
  // The program may wait for it before start_below returns.
  *request = slot->handle;
  const Status status = state.communicator()->start_below(std::move(call), slot->request);
  complete_finished();
  if (status.ok()) return MPI_SUCCESS;
  *request = MPI_REQUEST_NULL;
  drop_slot(slot);
  return raise(state.handle(), status);
}

bool free_later(std::function<void()> free) {
  return any_unsettled() && states().keep_back(std::move(free));
}

int error_code(Status status) {
  struct Row {
    int mpi_class;
    const char* text;
  };
  static const Row rows[] = {
#define TUTTI_CODE(name, text, mpi_class) {MPI_ERR_CLASS_##mpi_class, "tutti: " text},
#define MPI_ERR_CLASS_SUCCESS MPI_SUCCESS
#define MPI_ERR_CLASS_OTHER MPI_ERR_OTHER
#define MPI_ERR_CLASS_ARG MPI_ERR_ARG
#define MPI_ERR_CLASS_NO_MEM MPI_ERR_NO_MEM
#define MPI_ERR_CLASS_TRUNCATE MPI_ERR_TRUNCATE
#define MPI_ERR_CLASS_INTERN MPI_ERR_INTERN
#include "base/codes.def"
#undef TUTTI_CODE
  };
  static std::mutex mutex;
  static int codes[std::size(rows)];
  if (status.ok()) return MPI_SUCCESS;
  const auto at = static_cast<size_t>(status.code());
  std::lock_guard<std::mutex> lock(mutex);
  if (codes[at] == 0) {
    int code = rows[at].mpi_class;
#ifndef MPICH_VERSION  // its codes of a predefined class print as some other error
    if (below.Add_error_code(rows[at].mpi_class, &code) == MPI_SUCCESS)
      below.Add_error_string(code, rows[at].text);
#endif
    codes[at] = code;
  }
  return codes[at];
}

int raise(MPI_Comm comm, Status status) {
  const int code = error_code(status);
  below.Comm_call_errhandler(comm, code);
  return code;
}

int close_state(MPI_Comm comm) {
  State* state = nullptr;
  if (int error = look_up_state(comm, false, &state); error != MPI_SUCCESS) return error;
  if (state == nullptr) return MPI_SUCCESS;
  states().close(*state);
  forget_comm(comm);
  return MPI_SUCCESS;
}

Status open_states() {
  return below.Comm_create_keyval(&no_copy, &on_delete, &states().keyval, nullptr) == MPI_SUCCESS
             ? Code::ok
             : Code::internal;
}

void close_states() {
  states().close_all();
}

}  // namespace tutti::mpi

extern "C" TUTTI_ENTRY int tutti_comm_verdict(const void* comm, char* text, int bytes) {
  using namespace tutti::mpi;
  if (comm == nullptr || !active()) return -1;
  MPI_Comm handle = MPI_COMM_NULL;
  std::memcpy(&handle, comm, sizeof(handle));
  State* state = nullptr;
  if (handle == MPI_COMM_NULL || look_up_state(handle, false, &state) != MPI_SUCCESS) return -1;
  std::string verdict = "no collective that tutti takes was called yet";
  if (state != nullptr && state->communicator() == nullptr)
    verdict = "a single rank, or between groups: the MPI below";
  else if (state != nullptr)
    verdict = state->communicator()->describe();
  if (text != nullptr && bytes > 0) {
    const size_t length = std::min(verdict.size(), static_cast<size_t>(bytes) - 1);
    std::memcpy(text, verdict.data(), length);
    text[length] = '\0';
  }
  return static_cast<int>(verdict.size());
}
