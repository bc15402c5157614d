// The MPI below tutti: a table of next symbols, and the guard that keeps tutti out of its own
// calls.
//
// tutti names no MPI_ or PMPI_ function (law 10): it would find itself. The table is filled by
// dlsym(RTLD_NEXT) at the first call of any entry, so that loading tutti runs no code.
//
// Chain rule. A tool that also intercepts MPI may stand before or behind tutti:
//   before: it calls PMPI_X, which is tutti's; tutti acts and calls the next PMPI_X.
//   behind: tutti's MPI_X calls the next MPI_X, the tool's, with the guard set; the tool calls
//   PMPI_X,
//           which is tutti's again, sees the guard, and calls the next PMPI_X.
#pragma once

#include <type_traits>

#include "mpi/features.hpp"

namespace tutti::mpi {

// The name by which the program called.
enum class Layer { mpi, pmpi };

// The two ways on from an intercepted call.
template <class Function>
struct Next {
  Function* mpi;
  Function* pmpi;
};

struct Below {
#define TUTTI_NEXT(member, name, ...) Next<__VA_ARGS__> member;
// What tutti only calls is a plain pointer to the next PMPI_X.
#define TUTTI_BELOW(member, name, ...) std::add_pointer_t<__VA_ARGS__> member;
#include "mpi/below.def"
#undef TUTTI_NEXT
#undef TUTTI_BELOW
};

// Valid once load_below() has run; every entry sees to that.
extern Below below;
extern bool below_loaded;
void load_below();
// What the table has no place for, by its PMPI_ name; null where the MPI of this process has no such symbol.
void* find_below(const char* name);

// How deep this thread is in calls to the next MPI_X. initial-exec: one instruction, no call, no
// allocation at first use; tutti is preloaded or linked, and small enough for the reserve
// otherwise.
extern constinit thread_local int guard_depth __attribute__((tls_model("initial-exec")));

// One entry on its way through. Outermost: this is the program's own call, not a tool's or the
// base's from inside a call that tutti passed on.
class Passage {
 public:
  explicit Passage(Layer layer)
      : outermost_(guard_depth == 0), mpi_(outermost_ && layer == Layer::mpi) {
    if (!__atomic_load_n(&below_loaded, __ATOMIC_ACQUIRE)) [[unlikely]]
      load_below();
    ++guard_depth;
  }
  ~Passage() { --guard_depth; }
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;

  bool outermost() const { return outermost_; }

  template <class Function, class... Args>
  int pass(const Next<Function>& next, Args... args) const {
    return (mpi_ ? next.mpi : next.pmpi)(args...);
  }

 private:
  const bool outermost_;
  const bool mpi_;
};

}  // namespace tutti::mpi
