// The function table that a GPU module fills (libtutti_cuda.so on the driver API, libtutti_emu.so
// on the CPU), and the facts about it that are equal on all ranks.
//
// A module is opened when first needed and reached only through this table. It keeps the caller's
// CUDA state (law 4): every entry leaves the current context, last error and capture mode as they
// were, and none initialises the driver. Entries never block on a peer. Threads: `query` from any
// thread at any time; all entries of one Group from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
#include "core/poll.hpp"
#include "core/problem.hpp"
#include "core/strips.hpp"
#include "core/types.hpp"

namespace tutti::gpu {

inline constexpr uint32_t abi_version = 3;
inline constexpr int max_group = 8;  // ranks of one NVLink group

enum class Kind : uint8_t { host, pinned, managed, device };

// Whether the CPU may read and write it without a copy.
constexpr bool host_readable(Kind kind) {
  return kind != Kind::device;
}
// Whether a kernel on its device may read and write it in place.
constexpr bool device_readable(Kind kind) {
  return kind == Kind::device || kind == Kind::managed;
}

struct Pointer {
  Kind kind = Kind::host;
  int32_t device = -1;     // ordinal in this process; -1 for host memory
  uint64_t buffer_id = 0;  // changes when memory is freed and allocated again at one address
};

// What a rank tells its peers about its end of a group: plain bytes that travel over the board.
struct Blob {
  alignas(8) uint8_t bytes[256];
};

// Identity of a physical device, equal in every process of the node.
struct DeviceUuid {
  uint8_t bytes[16];
};

// How a group shall work; equal on all members.
struct GroupSpec {
  int32_t nranks = 1;
  int32_t rank = 0;
  int32_t device = 0;          // ordinal in this process
  uint64_t lane_bytes = 0;     // scratch of this process's first group; 0 = the module's default
  uint32_t ctas = 0;           // budget of co-resident CTAs (at least 4); 0 = the module's default
  bool force_no_peer = false;  // as if the devices could not reach each other
  // How long a kernel may stay on the device after a small call, to take the next one without a
  // launch; 0: none stays. The one fact of this struct that need not be equal on all members.
  uint64_t linger_ns = 0;
};

// One collective on device-readable memory of every member, or host memory made known by host_register
// beside it; native(), and with a count above 0 or not. Pointers need no alignment beyond the byte.
// send == recv is in place: allreduce, reduce, reduce_scatter_block and alltoall then take their input from recv, allgather and gather their own
// block of it; a scatter in place has no recv at the root. A bcast has its buffer in recv. Where a rank
// has no such buffer the pointer is not looked at.
struct Call {
  Agreed agreed;
  const void* send = nullptr;
  void* recv = nullptr;
  // Of recv, as query() told. Results in this device's own memory complete by a cheaper way (1.2
  // us) than results that the CPU may read at once.
  Kind recv_kind = Kind::managed;
  // Of send. Only calls with both buffers in device memory go to a lingering kernel.
  Kind send_kind = Kind::managed;
};

// A gapped buffer to be packed, or unpacked.
struct PackCall {
  void* program = nullptr;  // device-readable memory
  // Memory of the device, or host memory made known by host_register.
  void* packed = nullptr;
  const Strip* strips = nullptr;
  uint64_t count = 0;
  bool unpack = false;
};

struct Services {
  // level as log::Level; text without newline.
  void (*log)(int level, const char* area, const char* text) = nullptr;
};

struct Group;  // opaque: one rank's end of a group

struct Module {
  uint32_t abi = abi_version;
  const char* name = "";

  // True once the program has initialised the driver; false costs a few ns.
  bool (*live)() = nullptr;
  // Kinds of n <= 8 pointers by one driver call. Never fails: what the driver does not know is
  // host.
  void (*query)(const void* const* pointers, int n, Pointer* out) = nullptr;
  // Physical identity of a device ordinal.
  Status (*uuid)(int device, DeviceUuid* out) = nullptr;

  // Copies between any two kinds of memory on the module's own stream and waits for it.
  Status (*copy)(int device, void* to, const void* from, size_t bytes) = nullptr;
  // The same, nonblocking: *handle names it for copy_poll until that says finished.
  Status (*copy_start)(int device, void* to, const void* from, size_t bytes,
                       uint64_t* handle) = nullptr;
  Poll (*copy_poll)(uint64_t handle) = nullptr;
  // Packs or unpacks by a kernel, nonblocking as copy_start. unsupported, before anything was touched, where
  // the kernel cannot reach the host memory.
  Status (*pack_start)(int device, const PackCall& call, uint64_t* handle) = nullptr;
  // Memory of the device for packed buffers, from little that was set aside; no_resource when it is used
  // up, or no group has been prepared.
  Status (*take_memory)(int device, size_t bytes, void** memory) = nullptr;
  void (*give_memory)(int device, void* memory) = nullptr;
  // Makes host memory known to the driver, so that copies to and from it are asynchronous and kernels reach
  // it at its own address; unsupported where they would not.
  Status (*host_register)(void* memory, size_t bytes) = nullptr;
  void (*host_unregister)(void* memory) = nullptr;

  // A group is set up in two steps round an exchange of blobs over the board: prepare reserves all
  // that calls can run out of (lane, streams, kernels loaded) and fills *blob; connect takes all
  // members' blobs in rank order and maps their lanes. prepare that fails leaves no group behind
  // (no_resource: the lanes of this process are used up); after a connect that fails on any member
  // (unsupported: a device cannot reach another) every member closes.
  Status (*prepare)(const GroupSpec& spec, Group** group, Blob* blob) = nullptr;
  Status (*connect)(Group* group, const Blob* blobs) = nullptr;
  // Launches this rank's part. Only after every member has entered the call (the board's gate), and
  // one call of a group at a time. Groups that share a device start their calls in one order on all
  // members (tickets): their kernels wait for one another's peers while they hold SMs. After a
  // failed start this rank's peers must be aborted.
  Status (*start)(Group* group, const Call& call) = nullptr;
  Poll (*poll)(Group* group) = nullptr;
  // Makes waiting kernels of this call leave on every member that can still be reached; poll says
  // failed once none of them touches the call's buffers. The group is of no further use.
  void (*abort)(Group* group) = nullptr;
  // Only when no call is in flight. Importers need not close before exporters.
  void (*close)(Group* group) = nullptr;
};

// Name of the symbol that a module exports: `const tutti::gpu::Module* tutti_gpu_module(const
// tutti::gpu::Services*)`.
inline constexpr const char* module_symbol = "tutti_gpu_module";
using ModuleEntry = const Module* (*)(const Services*);

// Whether the kernels perform this call. Pure and equal on all ranks: part of choosing a path. What
// is not native goes by the node's shared memory or the MPI below, with a copy at each device rank.
bool native(const Agreed& agreed, int nranks);
// Whether it only moves bytes.
bool moves(Coll coll);

}  // namespace tutti::gpu
