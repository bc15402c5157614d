#include "mpi/below.hpp"

#include <dlfcn.h>

#include <atomic>
#include <mutex>

#include "base/log.hpp"

namespace tutti::mpi {

Below below;
bool below_loaded = false;
constinit thread_local int guard_depth = 0;

namespace {

// Stands in the table for a call that the MPI of this process lacks although the one that tutti was
// built for has it. The program cannot have been linked against it; a call through dlsym may come.
int missing_call() {
  TUTTI_ERROR("mpi", "the MPI of this process lacks a call that tutti was built to pass on to it");
  return MPI_ERR_OTHER;
}

template <class Function>
Function* find(const char* name) {
  void* symbol = dlsym(RTLD_NEXT, name);
  if (symbol == nullptr) symbol = reinterpret_cast<void*>(&missing_call);
  return reinterpret_cast<Function*>(symbol);
}

// A tool may define MPI_X alone, never PMPI_X alone; so the next of each is looked up by itself.
template <class Function>
void find_next(Next<Function>& next, const char* name, const char* pname) {
  next.mpi = find<Function>(name);
  next.pmpi = find<Function>(pname);
}

}  // namespace

void load_below() {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  if (below_loaded) return;
#define TUTTI_NEXT(member, name, ...) find_next(below.member, name, "P" name);
#define TUTTI_BELOW(member, name, ...) below.member = find<__VA_ARGS__>("P" name);
#include "mpi/below.def"
#undef TUTTI_NEXT
#undef TUTTI_BELOW
  __atomic_store_n(&below_loaded, true, __ATOMIC_RELEASE);
}

}  // namespace tutti::mpi
