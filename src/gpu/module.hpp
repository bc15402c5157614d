// The GPU module of this process: found, opened and checked when first needed.
//
// The choice is the setting GPU: auto, cuda, emu, none, or the path of a module. "auto" opens the
// CUDA module only once the program itself has loaded libcuda.so.1 (tutti never loads or
// initialises the driver of a program that does not use it), and may find it at any later call: the
// program may load CUDA after MPI_Init.
#pragma once

#include <string>
#include <string_view>

#include "gpu/device.hpp"

namespace tutti::gpu {

// The module that does nothing: live() is false, every pointer is host memory, the rest is
// no_device.
const Module& null_module();

// Opens the module `choice` names: a path, "cuda" or "emu". Names are looked for beside this
// library and in its package folder. Failure is logged: what was tried and why it failed.
Result<const Module*> open_module(std::string_view choice);

// Sets the choice of this process; before the first module(). bad_setting: a name that means
// nothing or a module that was asked for by name and cannot be opened.
Status choose(std::string_view setting);

// The module in use: the null module while there is none. Any thread.
const Module& module();

// Whether device memory can exist at all: module().live(), but while the answer is no asked again only
// after a time in which none can come about. Any thread.
bool live();

}  // namespace tutti::gpu
