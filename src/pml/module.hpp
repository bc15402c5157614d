// The network module of this process: opened and checked when the first communicator spans nodes.
#pragma once

#include <cstdint>
#include <string>

#include "base/config.hpp"
#include "pml/network.hpp"

namespace tutti::net {

// Opens the module `choice` names: "ucx", or a path. Names are looked for beside this library and
// in its package folder. Signal dispositions and the alternate stack are as before afterwards, and
// no function of the program is patched: UCX does both when it is loaded (law 4). Failure is
// logged: what was tried and why it failed.
Result<const Module*> open_module(const std::string& choice);

// Whether the file of the module of that name is where it is looked for.
bool installed(const std::string& name);
// Whether this machine has devices for RDMA.
bool rdma_devices();

// Opens the network of this process by the module. Dispositions are kept here too.
Result<Network*> open_network(const Module& module, const Config& config, bool several_threads);

}  // namespace tutti::net
