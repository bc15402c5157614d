// Communicator: what tutti knows of one communicator of the program, and the way from a Problem to
// a finished call: agreed facts -> choice -> operation -> engine.
//
// Built lazily at the communicator's first intercepted collective, kept in an attribute by the mpi
// room. Set-up is one nonblocking allgather of the base on the program's communicator, begun at the
// same call number on all ranks; calls queue behind it. It is all-or-nothing: afterwards either
// every rank uses tutti's own paths here or none does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "core/problem.hpp"
#include "engine/engine.hpp"

namespace tutti {

struct Config;

// What the mpi room lends: the base's allgather on the program's communicator, by values, so that
// no MPI type is seen here. All functions are called with the engine's lock held or from the
// calling thread of a collective, never from the helper thread.
struct BaseComm {
  void* handle = nullptr;  // the mpi room's own
  int rank = 0;
  int nranks = 1;
  std::string name;  // for messages: "MPI_COMM_WORLD"
  // Node of each rank, as an index from 0 in order of first appearance; empty when not known
  // (spawned processes). Equal on all ranks: the mpi room gathers the nodes of MPI_COMM_WORLD at
  // MPI_Init.
  std::vector<int32_t> nodes;
  // Whether ranks of several nodes may use a network (Job::network).
  bool network = false;
  // Begins a nonblocking allgather of `bytes` a rank. `mine` and `all` live until test says
  // finished.
  Status (*allgather_start)(void* handle, const void* mine, void* all, size_t bytes,
                            void** request) = nullptr;
  Poll (*allgather_test)(void* request) = nullptr;
};

// Where a call goes. `below` is an agreed fact: all ranks say the same.
enum class Path : uint8_t {
  native,  // tutti's own operation: run() or start()
  below,   // the MPI below, with the program's pointers as they are
  bounce,  // the MPI below; a device pointer is replaced by its host copy (class N and X)
};

// What all ranks of a job know from MPI_Init on.
struct Job {
  bool devices = false;  // some rank may see a device
  bool network = false;  // there are several nodes, and every rank may open a network between them
};
// Whether this process may open the network that TUTTI_NET asks for. "auto" asks for none where the module is not
// installed, and none over RDMA devices, where nothing has been measured.
bool may_open_network(const Config& config);
// The calls, bit 1 << Coll, that any communicator of such a job may want: the others are for the MPI below
// before a communicator is looked at.
uint32_t calls_wanted(const Job& job, const Config& config);

class Communicator {
 public:
  static std::unique_ptr<Communicator> open(const BaseComm& base, Engine& engine,
                                            const Config& config);
  virtual ~Communicator() = default;

  // Whether set-up is over, well or badly. Until then choose() may not be called.
  virtual bool settled() const = 0;
  // Waits for set-up (blocking calls, and anything that must stay in order behind it).
  virtual Status settle() = 0;

  // Whether choose() may say native for that collective; before a Problem is made. Valid once
  // settled.
  virtual bool wants(Coll coll) const = 0;
  // Pure function of agreed facts. Valid once settled.
  virtual Path choose(const Agreed& agreed) const = 0;
  // The same for a blocking call, once a call: it may also go by what earlier blocking calls met.
  virtual Path choose_blocking(const Agreed& agreed) { return choose(agreed); }

  // A blocking call whose path is native. Valid once settled.
  virtual Status run(const Problem& problem) = 0;

  // A nonblocking call. If settled, its path must be native. If not, it is queued behind set-up;
  // when its turn comes and the path is not native, `begin_below` is called (under the engine's
  // lock, in call order) to begin the base's own nonblocking call, and `test_below` polls it.
  struct Below {
    std::function<Status()> begin;
    std::function<Poll()> test;
  };
  virtual Status start(const Problem& problem, Below below, Request& request) = 0;

  // A nonblocking collective of the base that must keep its place behind calls queued before set-up
  // ended. Only needed while not settled.
  virtual Status start_below(Below below, Request& request) = 0;

  // Calls that the ranks begin in orders of their own, each under a number that is the same on all ranks
  // and greater than 0. Such a communicator is used for nothing else. Problem, its arrays and the request
  // live until the call has finished; what was begun goes on its way by go().
  // Valid once settled, equal on all ranks. True only where devices are possible: for host memory alone
  // the base has persistent calls of its own.
  virtual bool orders_starts() const { return false; }
  virtual void begin_in_any_order(uint64_t, const Problem&, Request&) {}
  virtual void go() {}

  // Waits for pending calls and gives the resources back. Called when the communicator is freed.
  virtual void close() = 0;

  virtual const std::string& describe() const = 0;  // verdict for tutti-info and logs
};

}  // namespace tutti
