#include "mpi/draft.hpp"

#include <algorithm>
#include <climits>

#include "base/log.hpp"
#include "mpi/lifecycle.hpp"

namespace tutti::mpi {

Problem blank_problem;

namespace {

// What an element of a type is in memory.
struct Element {
  bool valid = false;  // a committed type
  bool solid = false;  // its bytes lie in one piece in the order of the type
  MPI_Count size = 0;
  MPI_Aint extent = 0;
  MPI_Aint lower = 0;  // of its first byte
};

// A type that the base would refuse is known by packing nothing of it.
bool is_committed(MPI_Datatype type) {
  char nothing = 0;
  int position = 0;
  return below.Pack(&nothing, 0, type, &nothing, 0, &position, runtime().self) == MPI_SUCCESS;
}

Element element_of(MPI_Datatype type) {
  Element one;
  if (type == MPI_DATATYPE_NULL) return one;
  Reducible known;
  if (handles.dtypes.find(type, known)) {
    one.valid = true;
    one.size = info(known.dtype).bytes;
    one.extent = info(known.dtype).extent;
    one.solid = one.size == one.extent;
    return one;
  }
  MPI_Aint ignored = 0;
  MPI_Aint true_extent = 0;
  one.valid = is_committed(type);
  if (!one.valid) return one;
  below.Type_size_x(type, &one.size);
  below.Type_get_extent(type, &ignored, &one.extent);
  below.Type_get_true_extent(type, &one.lower, &true_extent);
  if (one.size != true_extent) return one;
  const Layout layout = layout_of(type);
  one.solid = layout.exact && layout.ordered && layout.runs.size() == 1;
  return one;
}

}  // namespace

// ---- Side

void Side::set(const void* buffer, const Blocks& blocks, Access access) {
  buffer_ = buffer;
  blocks_ = blocks;
  access_ = access;
  in_place_ = buffer == MPI_IN_PLACE;
}

void Side::set_unused(const void* buffer) {
  in_place_ = buffer == MPI_IN_PLACE;
  unused_ = true;
}

bool Side::measure() {
  if (in_place_ || unused_) return true;
  if (blocks_.n == 0) return false;  // arrays that are null
  several_ = static_cast<bool>(blocks_.counts);
  uint64_t* counts = several_ ? counts_.take(blocks_.n) : nullptr;
  uint64_t* displs = several_ ? displs_.take(blocks_.n) : nullptr;
  MPI_Datatype known = MPI_DATATYPE_NULL;
  Element one;
  bool any = false;
  ptrdiff_t lowest = 0;
  for (int i = 0; i < blocks_.n; ++i) {
    const int64_t count = blocks_.count_of(i);
    if (count < 0) return false;
    // Of no element the type is looked at all the same: the base does.
    if (const MPI_Datatype type = blocks_.type_of(i); i == 0 || type != known) {
      one = element_of(type);
      known = type;
    }
    if (!one.valid) return false;
    const uint64_t bytes = static_cast<uint64_t>(count) * static_cast<uint64_t>(one.size);
    const int64_t displ = several_ ? blocks_.displs[i] : 0;
    const ptrdiff_t at = (blocks_.types != nullptr ? displ : displ * one.extent) + one.lower;
    if (several_) {
      counts[i] = bytes;
      displs[i] = static_cast<uint64_t>(at);
    }
    if (bytes == 0) continue;
    direct_ &= one.solid && (count == 1 || one.extent == one.size);
    lowest = any ? std::min(lowest, at) : at;
    any = true;
    bytes_ += bytes;
  }
  for (int i = 0; several_ && i < blocks_.n; ++i)
    displs[i] = counts[i] == 0 ? 0 : displs[i] - static_cast<uint64_t>(lowest);
  // Null is where absolute addresses count from, but not for types that have none.
  Reducible ignored;
  if (any && buffer_ == nullptr && blocks_.types == nullptr && handles.dtypes.find(known, ignored))
    return false;
  if (any && direct_) memory_ = static_cast<std::byte*>(const_cast<void*>(buffer_)) + lowest;
  return true;
}

std::span<const uint64_t> Side::displs() const {
  return several_ && direct_ ? displs_.span() : std::span<const uint64_t>();
}

bool Side::pack(Packing& packing, bool keep) {
  return packing.add(buffer_, blocks_, access_, bytes_, keep, &memory_);
}

// ---- LongDraft

int LongDraft::add(const void* buffer, const Blocks& blocks, Access access) {
  sides_[static_cast<size_t>(nsides_)].set(buffer, blocks, access);
  return nsides_++;
}

int LongDraft::add_unused(const void* buffer) {
  sides_[static_cast<size_t>(nsides_)].set_unused(buffer);
  return nsides_++;
}

Begin LongDraft::begin_reduction(MPI_Datatype type, MPI_Op op) {
  problem.agreed.coll = Coll::reduce_scatter;
  if (find_reduction(type, op, problem.agreed.dtype, problem.agreed.op)) return Begin::mine;
  Reducible ignored;
  Op also_ignored;
  return handles.dtypes.find(type, ignored) && handles.ops.find(op, also_ignored) ? Begin::refused
                                                                                  : Begin::other;
}

bool LongDraft::reduce_blocks(const State& state, const void* send, void* recv) {
  const bool in_place = send == MPI_IN_PLACE;
  problem.agreed.counts = counts_.span();
  uint64_t total = 0;
  for (const uint64_t count : counts_.span()) total += count;
  if (recv == MPI_IN_PLACE) return false;
  const void* input = in_place ? recv : send;
  const uint64_t own = counts_[state.rank()];
  if (total > 0 && input == nullptr) return false;
  if (own > 0 && recv == nullptr) return false;
  const bool equal = !in_place && recv == send && own > 0;
  if (equal && refuses_equal_buffers) return false;
  problem.local.in_place = in_place || equal;
  problem.local.send = input;
  problem.local.recv = own > 0 || in_place ? recv : nullptr;
  return true;
}

bool LongDraft::finish_movement(Coll coll, const State& state, int root) {
  for (int i = 0; i < nsides_; ++i)
    if (!sides_[static_cast<size_t>(i)].measure()) return false;
  problem.agreed.coll = coll;
  problem.agreed.dtype = Dtype::byte;
  problem.agreed.root = root;
  if (!movement(coll, state.rank(), state.nranks(), root)) return false;
  place();
  return true;
}

// One buffer for both: all of it, or this rank's block of the other side.
bool LongDraft::overlaps_itself(Coll coll, int rank) const {
  if (nsides_ != 2 || sides_[0].in_place() || sides_[1].in_place()) return false;
  const auto* send = static_cast<const std::byte*>(sides_[0].memory());
  const auto* recv = static_cast<const std::byte*>(sides_[1].memory());
  if (send == nullptr || recv == nullptr) return false;
  switch (coll) {
    case Coll::allgather:
    case Coll::gather:
      return sides_[0].bytes() > 0 && send == recv + static_cast<size_t>(rank) * sides_[0].bytes();
    case Coll::scatter:
      return sides_[1].bytes() > 0 && recv == send + static_cast<size_t>(rank) * sides_[1].bytes();
    case Coll::allgatherv:
    case Coll::gatherv:
      return sides_[0].bytes() > 0 && send == recv + sides_[1].displ_of(rank);
    case Coll::scatterv:
      return sides_[1].bytes() > 0 && recv == send + sides_[0].displ_of(rank);
    default:
      return send == recv;
  }
}

// False where the overlap is for the base to refuse, which is so on all ranks alike: of rooted calls only the root
// could tell.
bool LongDraft::allow_overlap(Coll coll, int rank) {
  if (nsides_ != 2) return true;
  Side& send = sides_[0];
  Side& recv = sides_[1];
  const bool scatters = coll == Coll::scatter || coll == Coll::scatterv;
  const bool gathers = coll == Coll::gather || coll == Coll::gatherv;
  const bool equal = send.program() == recv.program() && send.bytes() > 0 && recv.bytes() > 0;
  const bool overlaps = overlaps_itself(coll, rank);
  if (refuses_equal_buffers && !scatters && !gathers && (equal || overlaps)) return false;
  // Of alltoall nothing but in place has a meaning with one buffer; a block that stands where it is to go is
  // in place.
  if (overlaps) (scatters ? recv : send).take_in_place();
  return true;
}

// Agreed are the bytes of what is received. Sizes that do not fit within this rank are the base's.
bool LongDraft::movement(Coll coll, int rank, int nranks, int root) {
  Agreed& agreed = problem.agreed;
  Local& local = problem.local;
  const Side& send = sides_[0];
  const Side& recv = sides_[nsides_ == 2 ? 1 : 0];
  const bool is_root = rank == root;
  const auto n = static_cast<uint64_t>(nranks);
  const bool scatters = coll == Coll::scatter || coll == Coll::scatterv;
  const bool gathers = coll == Coll::gather || coll == Coll::gatherv;
  // In place is a matter of the root in these, and what the others have no use for says nothing.
  const Side& everywhere = scatters ? recv : send;
  const Side& at_root = scatters ? send : recv;
  if (scatters || gathers ? (is_root ? at_root : everywhere).in_place() : recv.in_place())
    return false;
  if (!allow_overlap(coll, rank)) return false;
  local.in_place = scatters ? recv.in_place() : nsides_ == 2 && send.in_place();
  const auto fits = [&](uint64_t sent, uint64_t received) {
    return local.in_place || sent == received;
  };
  switch (coll) {
    case Coll::bcast:
      agreed.count = recv.bytes();
      return true;
    case Coll::allgather:
      agreed.count = recv.bytes() / n;
      return fits(send.bytes(), agreed.count);
    case Coll::alltoall:
      agreed.count = recv.bytes() / n;
      return fits(send.bytes(), recv.bytes());
    case Coll::gather:
      agreed.count = is_root ? recv.bytes() / n : send.bytes();
      return fits(send.bytes(), agreed.count);
    case Coll::scatter:
      agreed.count = is_root ? send.bytes() / n : recv.bytes();
      return fits(agreed.count, recv.bytes());
    case Coll::allgatherv:
      agreed.counts = recv.counts();
      return fits(send.bytes(), recv.bytes_of(rank));
    case Coll::gatherv:
      local.recv_counts = recv.counts();
      local.count = local.in_place ? recv.bytes_of(rank) : send.bytes();
      return !is_root || fits(send.bytes(), recv.bytes_of(rank));
    case Coll::scatterv:
      local.send_counts = send.counts();
      local.count = local.in_place ? send.bytes_of(rank) : recv.bytes();
      return !is_root || fits(send.bytes_of(rank), recv.bytes());
    case Coll::alltoallv:
    case Coll::alltoallw:
      local.recv_counts = recv.counts();
      local.send_counts = local.in_place ? recv.counts() : send.counts();
      return fits(local.send_counts[static_cast<size_t>(rank)], recv.bytes_of(rank));
    default:
      return false;
  }
}

// Where the bytes are, once it is known; a buffer without bytes does not exist.
void LongDraft::place() {
  Local& local = problem.local;
  const Side& send = sides_[0];
  const Side& recv = sides_[nsides_ == 2 ? 1 : 0];
  local.recv = recv.memory();
  local.recv_displs = recv.displs();
  local.send = send.memory();
  local.send_displs = send.displs();
  if (!local.in_place || recv.in_place()) return;
  local.send = local.recv;
  local.send_displs = local.recv_displs;
}

Status LongDraft::reserve(bool keep) {
  for (int i = 0; i < nsides_; ++i) {
    Side& side = sides_[static_cast<size_t>(i)];
    if (side.direct() || side.bytes() == 0) continue;
    if (packing_ == nullptr) packing_ = std::make_shared<Packing>();
    if (!side.pack(*packing_, keep)) {
      problem.local.error = Code::no_memory;
      return Code::no_memory;
    }
  }
  if (packing_ != nullptr) place();
  return {};
}

Status LongDraft::pack(bool keep) {
  TUTTI_TRY(reserve(keep));
  if (packing_ == nullptr) return {};
  const Status status = packing_->in();
  problem.local.error = status.code();
  return status;
}

// ---- Packing

Packing::~Packing() {
  for (Buffer& buffer : buffers_) {
    if (buffer.packed != nullptr) {
      if (buffer.on_device)
        memory::give_device_block(buffer.device, buffer.packed);
      else
        memory::give_block(buffer.packed);
    }
    for (Block& block : buffer.blocks)
      if (block.own_type) below.Type_free.pmpi(&block.type);
  }
}

bool Packing::add(const void* program, const Blocks& blocks, Access access, size_t bytes, bool keep,
                  std::byte** packed) {
  Buffer& buffer = buffers_[static_cast<size_t>(count_)];
  buffer.access = access;
  if (add_on_device(buffer, program, blocks, bytes)) {
    *packed = buffer.packed;
    ++count_;
    return true;
  }
  MPI_Datatype known = MPI_DATATYPE_NULL;
  MPI_Datatype used = MPI_DATATYPE_NULL;
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  for (int i = 0; i < blocks.n; ++i) {
    const int64_t count = blocks.count_of(i);
    if (count == 0) continue;
    bool fresh = false;
    if (const MPI_Datatype type = blocks.type_of(i); type != known) {
      below.Type_get_extent(type, &lower, &extent);
      known = used = type;
      // Not a duplicate, which would call the program's attribute functions.
      Reducible ignored;
      fresh = keep && !handles.dtypes.find(type, ignored);
      if (fresh && (below.Type_contiguous(1, type, &used) != MPI_SUCCESS ||
                    below.Type_commit(&used) != MPI_SUCCESS))
        return false;
    }
    const int64_t displ = blocks.displs ? blocks.displs[i] : 0;
    buffer.blocks.push_back({count, blocks.types != nullptr ? displ : displ * extent, used, fresh});
  }
  buffer.packed = static_cast<std::byte*>(memory::take_block(bytes));
  *packed = buffer.packed;
  buffer.host_copy = copies_.add(program, blocks, access);
  ++count_;
  return buffer.packed != nullptr;
}

// False where the MPI below packs. Absolute addresses may be of any memory.
bool Packing::add_on_device(Buffer& buffer, const void* program, const Blocks& blocks,
                            size_t bytes) {
  if (program == MPI_BOTTOM || !memory::live()) return false;
  const void* first = nullptr;
  if (!first_byte(static_cast<const std::byte*>(program), blocks, &first)) return false;
  memory::Place place;
  memory::look(&first, 1, &place);
  if (!place.on_device) return false;
  auto strips = strips_for(blocks);
  if (strips == nullptr) return false;
  void* packed = memory::take_device_block(place.device, bytes);
  buffer.on_device = packed != nullptr;
  if (!buffer.on_device) packed = memory::take_block(bytes);
  if (packed == nullptr) return false;
  buffer.packed = static_cast<std::byte*>(packed);
  buffer.device = place.device;
  if (!buffer.on_device && !memory::is_registered(packed)) {
    memory::give_block(packed);
    buffer.packed = nullptr;
    return false;
  }
  buffer.program = static_cast<std::byte*>(const_cast<void*>(program));
  buffer.strips = std::move(strips);
  return true;
}

namespace {

// MPICH's MPI_Pack takes MPI_BOTTOM for a buffer that is missing: the same bytes of an absolute type, seen
// from an address that is none.
class AwayFromBottom {
 public:
  AwayFromBottom(std::byte* memory, MPI_Datatype type) : memory_(memory), type_(type) {
    if (memory != nullptr) return;
    memory_ = reinterpret_cast<std::byte*>(this);
    const MPI_Aint back = -reinterpret_cast<MPI_Aint>(this);
    failed_ = below.Type_create_hindexed_block(1, 1, &back, type, &moved_) != MPI_SUCCESS ||
              below.Type_commit(&moved_) != MPI_SUCCESS;
    type_ = moved_;
  }
  ~AwayFromBottom() {
    if (moved_ != MPI_DATATYPE_NULL) below.Type_free.pmpi(&moved_);
  }
  AwayFromBottom(const AwayFromBottom&) = delete;
  AwayFromBottom& operator=(const AwayFromBottom&) = delete;
  bool failed() const { return failed_; }
  std::byte* memory() const { return memory_; }
  MPI_Datatype type() const { return type_; }

 private:
  std::byte* memory_;
  MPI_Datatype type_;
  MPI_Datatype moved_ = MPI_DATATYPE_NULL;
  bool failed_ = false;
};

}  // namespace

// MPI_Pack counts bytes in an int: large blocks go in several pieces.
template <class Move>
Status Packing::each(const Buffer& buffer, Move move) {
  std::byte* packed = buffer.packed;
  for (const Block& block : buffer.blocks) {
    MPI_Count size = 0;
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    below.Type_size_x(block.type, &size);
    below.Type_get_extent(block.type, &lower, &extent);
    if (size == 0) continue;
    if (size > INT_MAX) {
      TUTTI_ERROR("mpi", "an element of {} bytes with gaps: MPI_Pack can take {} at most", size,
                  INT_MAX);
      return Code::unsupported;
    }
    const AwayFromBottom seen(
        static_cast<std::byte*>(copies_.host(buffer.host_copy)) + block.offset, block.type);
    if (seen.failed()) return Code::internal;
    std::byte* memory = seen.memory();
    for (int64_t left = block.count; left > 0;) {
      const auto n = static_cast<int>(std::min<int64_t>(left, INT_MAX / size));
      const int bytes = n * static_cast<int>(size);
      if (move(memory, packed, n, bytes, seen.type()) != MPI_SUCCESS) return Code::internal;
      memory += n * extent;
      packed += bytes;
      left -= n;
    }
  }
  return {};
}

// Packs what is read, or unpacks what was written, and waits. Everything else moves meanwhile: the kernel
// may have to wait for one that fills the device and waits for a peer.
Status Packing::by_kernels(bool unpack) {
  Status status;
  std::array<uint64_t, 2> handles{};
  size_t started = 0;
  for (const Buffer& buffer : buffers_) {
    if (buffer.strips == nullptr || buffer.access == (unpack ? Access::read : Access::write))
      continue;
    const memory::Pack pack{buffer.program, buffer.packed, buffer.strips->data(),
                            buffer.strips->count(), unpack};
    const Status one = memory::pack_start(buffer.device, pack, &handles[started]);
    if (one.ok()) ++started;
    if (status.ok()) status = one;
  }
  for (size_t i = 0; i < started; ++i) {
    Poll poll = memory::copy_poll(handles[i]);
    for (; !poll.finished(); poll = memory::copy_poll(handles[i])) runtime().engine.progress();
    if (status.ok()) status = poll.status();
  }
  return status;
}

Status Packing::in() {
  if (copies_.needed()) TUTTI_TRY(copies_.copy_in());
  Status status = by_kernels(false);
  for (int i = 0; i < count_ && status.ok(); ++i) {
    const Buffer& buffer = buffers_[static_cast<size_t>(i)];
    if (buffer.access == Access::write || buffer.strips != nullptr) continue;
    status = each(buffer, [](void* memory, void* packed, int n, int bytes, MPI_Datatype type) {
      int position = 0;
      return below.Pack(memory, n, type, packed, bytes, &position, runtime().self);
    });
  }
  return status;
}

Status Packing::out() {
  TUTTI_TRY(by_kernels(true));
  for (int i = 0; i < count_; ++i) {
    const Buffer& buffer = buffers_[static_cast<size_t>(i)];
    if (buffer.access == Access::read || buffer.strips != nullptr) continue;
    TUTTI_TRY(each(buffer, [](void* memory, void* packed, int n, int bytes, MPI_Datatype type) {
      int position = 0;
      return below.Unpack(packed, bytes, &position, memory, n, type, runtime().self);
    }));
  }
  return copies_.copy_out();
}

}  // namespace tutti::mpi
