#include "mpi/below.hpp"

#include <dlfcn.h>
#include <link.h>

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

const void* library_of(const void* address) {
  Dl_info info = {};
  return dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

// A library that came into the process by RTLD_LOCAL, as those of a language's extension modules do, is none of the
// next ones. The first loaded object through which an MPI is found that is not tutti; null if there is none.
void* find_local_mpi() {
  void* found = nullptr;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* out) {
        if (object->dlpi_name == nullptr || object->dlpi_name[0] == '\0') return 0;
        void* handle = dlopen(object->dlpi_name, RTLD_NOLOAD | RTLD_LAZY);
        if (handle == nullptr) return 0;
        const void* symbol = dlsym(handle, "PMPI_Init");
        if (symbol != nullptr &&
            library_of(symbol) != library_of(reinterpret_cast<void*>(&load_below))) {
          *static_cast<void**>(out) = handle;  // stays open: the table names what is in it
          return 1;
        }
        dlclose(handle);
        return 0;
      },
      &found);
  return found;
}

// Where symbols are looked up.
void* base_scope() {
  static void* const scope = [] {
    void* local = dlsym(RTLD_NEXT, "PMPI_Init") == nullptr ? find_local_mpi() : nullptr;
    return local != nullptr ? local : RTLD_NEXT;
  }();
  return scope;
}

template <class Function>
Function* find(const char* name) {
  void* symbol = find_below(name);
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

void* find_below(const char* name) {
  return dlsym(base_scope(), name);
}

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
