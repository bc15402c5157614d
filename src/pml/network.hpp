// Network: what a transport module (libtutti_ucx.so) gives to a process, and the table it is
// reached by.
//
// A module holds everything of its library: context, worker, endpoints, memory hooks. It is opened
// when the first communicator spans nodes. A process has one Network; every communicator has its
// own Transport over it, told apart by keys. Endpoints belong to pairs of processes, come into
// being with the first message, and stay until close().
//
// Threads: with Options::several_threads, transports may be used by several threads, each by one at
// a time; otherwise all calls come from one thread at a time. Only functions of this table and of
// the two interfaces cross the border of a module; no exception does.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
#include "pml/transport.hpp"

namespace tutti::net {

inline constexpr uint32_t abi_version = 2;

struct Services {
  // level as log::Level; text without newline.
  void (*log)(int level, const char* area, const char* text) = nullptr;
};

struct Options {
  // Comma-separated exact device names, or "auto".
  const char* devices = "auto";
  // Names of the TUTTI_UCX_ variables that the user has set, without that prefix, ended by nullptr:
  // these options are the user's, the module leaves them.
  const char* const* user_options = nullptr;
  // Peers that a process will talk to: steers which kind of connection is worth its memory.
  uint32_t expected_peers = 16;
  bool several_threads = true;
};

// A process's address: plain bytes that travel during set-up.
struct Address {
  const void* data = nullptr;
  size_t bytes = 0;
};

// A rank of a communicator. Every rank chooses the key by which it knows the communicator, different
// from those of all others that its process has, and tells it to its peers, who put it into what they
// send: so keys need no agreement.
struct Member {
  Address address;
  uint32_t key = 0;
};

// Limits of a Transport; what exceeds them is `unsupported`.
inline constexpr uint32_t max_key = (1u << 14) - 1;
inline constexpr int max_ranks = 1 << 18;

class Network {
 public:
  virtual ~Network() = default;  // after close()
  // This process's; valid until close().
  virtual Address address() const = 0;
  // A communicator's transport; `members` in rank order. Local: no message is sent. Refuses
  // (unsupported) a peer whose library is of another version, and says so; every member sees the
  // same addresses and refuses alike. `delete` it when no transfer is pending.
  virtual Status open(int rank, int nranks, const Member* members, Transport** out) = 0;
  // Whether a device with remote memory access is in use; else TCP.
  virtual bool rdma() const = 0;
  // What carries the messages to the peers talked to so far: "tcp/eth0, rc_mlx5/mlx5_0:1". Valid
  // until the next call.
  virtual const char* describe() = 0;
  // Moves everything along once, as any of its transports does.
  virtual void progress() = 0;
  // Teardown is flush(); a barrier of all processes, each calling progress() meanwhile; close();
  // delete. Without the barrier a connection may be taken down while the peer still waits for its
  // last acknowledgement. Both give up after timeout_ns, say so, and return `timeout`; close() then
  // leaks what is still connected.
  virtual Status flush(uint64_t timeout_ns) = 0;
  virtual Status close(uint64_t timeout_ns) = 0;
};

struct Module {
  uint32_t abi = abi_version;
  const char* name = "";
  const char* version = "";  // of the library that it runs on: "1.13.1"
  Status (*open)(const Options& options, Network** out) = nullptr;
};

// Symbol that a module exports: `const tutti::net::Module* tutti_net_module(const
// tutti::net::Services*)`; nullptr when its library cannot be used, said through the log.
inline constexpr const char* module_symbol = "tutti_net_module";
using ModuleEntry = const Module* (*)(const Services*);

}  // namespace tutti::net
