// The knobs of the device module that is loaded with tutti, its faults among them.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <cstring>

// A function for tests of that module.
inline void* module_symbol(const char* in_emu, const char* in_cuda) {
  struct Search {
    const char* library;
    const char* symbol;
    void* found;
  };
  for (Search search :
       {Search{"libtutti_emu.so", in_emu, nullptr}, Search{"libtutti_cuda.so", in_cuda, nullptr}}) {
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* out) {
          auto& what = *static_cast<Search*>(out);
          if (std::strstr(info->dlpi_name, what.library) == nullptr) return 0;
          void* handle = dlopen(info->dlpi_name, RTLD_NOLOAD | RTLD_NOW);
          if (handle != nullptr) what.found = dlsym(handle, what.symbol);
          return what.found != nullptr ? 1 : 0;
        },
        &search);
    if (search.found != nullptr) return search.found;
  }
  return nullptr;
}

// -1 for those that it has not.
inline int set_knob(const char* knob, long value) {
  void* set = module_symbol("tutti_emu_set", "tutti_cuda_set");
  return set == nullptr ? -1 : reinterpret_cast<int (*)(const char*, long)>(set)(knob, value);
}

// A count of that module, by its name; -1 where it has none.
inline long count_of(const char* name) {
  void* get = module_symbol("tutti_emu_get", "tutti_cuda_get");
  return get == nullptr ? -1 : reinterpret_cast<long (*)(const char*)>(get)(name);
}
