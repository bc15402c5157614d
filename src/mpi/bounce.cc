#include "mpi/bounce.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "mpi/buffers.hpp"
#include "mpi/lifecycle.hpp"
#include "mpi/state.hpp"

namespace tutti::mpi {

namespace {

// Up to so many runs are copied one by one.
constexpr size_t single_runs = 32;
// Beyond, runs with gaps no larger than this between them are copied together, gaps and all: that
// much takes about as long as the start of another copy.
constexpr ptrdiff_t gap_bytes = 65536;
// A copy whose runs fill less of it than one part in so many is backed by pages only where it is
// touched.
constexpr size_t sparse_parts = 4;
constexpr size_t sparse_from_bytes = size_t{1} << 20;

ptrdiff_t end_of(const Run& run) {
  return run.offset + static_cast<ptrdiff_t>(run.bytes);
}

// Elements as one run, if they lie without gaps.
bool dense(MPI_Datatype type, int64_t count, Run& run) {
  MPI_Count size = 0;
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  MPI_Aint true_lower = 0;
  MPI_Aint true_extent = 0;
  below.Type_size_x(type, &size);
  below.Type_get_extent(type, &lower, &extent);
  below.Type_get_true_extent(type, &true_lower, &true_extent);
  if (size != true_extent || (count > 1 && extent != true_extent)) return false;
  run = {true_lower, static_cast<size_t>(size) * static_cast<size_t>(count)};
  return true;
}

MPI_Aint extent_of(MPI_Datatype type) {
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  below.Type_get_extent(type, &lower, &extent);
  return extent;
}

}  // namespace

// ---- HostCopies: where the buffers lie.

HostCopies::~HostCopies() {
  // Of a call that was given up: the driver still writes from the copies.
  while (!copy_out_poll().finished()) {
  }
  for (Buffer& own : buffers_)
    if (own.copy != nullptr && !own.shares) memory::give_block(own.copy);
}

int HostCopies::add(const void* buffer, const Blocks& blocks, Access access) {
  Buffer& own = buffers_[static_cast<size_t>(count_)];
  own.program = static_cast<std::byte*>(const_cast<void*>(buffer));
  own.blocks = blocks;
  own.access = access;
  own.skip = buffer == MPI_IN_PLACE;
  return count_++;
}

int HostCopies::add_unused(const void* buffer) {
  const int index = add(buffer, Blocks(), Access::read);
  buffers_[static_cast<size_t>(index)].unused = true;
  return index;
}

bool first_byte(const std::byte* program, const Blocks& blocks, const void** pointer) {
  for (int i = 0; i < blocks.n; ++i) {
    const MPI_Datatype type = blocks.type_of(i);
    if (blocks.count_of(i) <= 0 || type == MPI_DATATYPE_NULL) continue;
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    below.Type_get_true_extent(type, &lower, &extent);
    if (extent <= 0) continue;
    const int64_t displ = blocks.displs ? blocks.displs[i] : 0;
    *pointer = program + lower + (blocks.types != nullptr ? displ : displ * extent_of(type));
    return true;
  }
  return false;
}

bool HostCopies::needed() {
  if (!memory::live()) return false;
  const void* pointers[limit] = {};
  memory::Place places[limit];
  for (int i = 0; i < count_; ++i) {
    Buffer& own = buffers_[static_cast<size_t>(i)];
    if (own.unused)
      pointers[i] = own.program;
    else
      own.skip = own.skip || !first_byte(own.program, own.blocks, &pointers[i]);
  }
  memory::look(pointers, count_, places);
  bool any = false;
  for (int i = 0; i < count_; ++i) {
    Buffer& own = buffers_[static_cast<size_t>(i)];
    if (own.skip) continue;
    own.place = places[i];
    own.on_device = own.place.on_device;
    if (own.program == MPI_BOTTOM && !own.unused) look(own);
    any |= own.on_device;
  }
  return any;
}

// Each span by itself: absolute addresses may be of any memory.
void HostCopies::look(Buffer& own) {
  lay_out(own);
  find_spans(own);
  for (Span& span : own.spans) {
    const void* pointer = own.program + span.offset;
    memory::look(&pointer, 1, &span.place);
    own.on_device |= span.place.on_device;
  }
}

void HostCopies::lay_out(Buffer& own) {
  if (!own.runs.empty()) return;
  const Blocks& blocks = own.blocks;
  Layout layout;
  MPI_Datatype known = MPI_DATATYPE_NULL;
  for (int i = 0; i < blocks.n; ++i) {
    const MPI_Datatype type = blocks.type_of(i);
    const int64_t count = blocks.count_of(i);
    if (count <= 0 || type == MPI_DATATYPE_NULL) continue;
    const MPI_Aint extent = extent_of(type);
    int64_t at = blocks.displs ? blocks.displs[i] : 0;
    if (blocks.types == nullptr) at *= extent;
    Run run;
    if (dense(type, count, run)) {
      if (run.bytes != 0) own.runs.push_back({at + run.offset, run.bytes});
      continue;
    }
    if (known != type) layout = layout_of(type);
    known = type;
    if (!layout.exact) own.access = own.access == Access::write ? Access::read_write : own.access;
    repeat(layout.runs, count, extent, at, own.runs);
  }
  merge(own.runs);
}

void HostCopies::find_spans(Buffer& own) {
  if (!own.spans.empty()) return;
  const Runs& runs = own.runs;
  const bool together = runs.size() > single_runs;
  const auto place_of = [&](ptrdiff_t offset) {
    const void* pointer = own.program + offset;
    memory::Place place;
    memory::look(&pointer, 1, &place);
    return place;
  };
  for (size_t i = 0; i < runs.size(); ++i) {
    if (together && !own.spans.empty()) {
      Span& last = own.spans.back();
      const ptrdiff_t gap = runs[i].offset - last.offset - static_cast<ptrdiff_t>(last.bytes);
      // Memory of two allocations is not copied at once, be they neighbours.
      if (gap <= gap_bytes && place_of(runs[i].offset) == last.place) {
        last.bytes = static_cast<size_t>(end_of(runs[i]) - last.offset);
        ++last.nruns;
        continue;
      }
    }
    const memory::Place place = together ? place_of(runs[i].offset) : own.place;
    own.spans.push_back({runs[i].offset, runs[i].bytes, i, 1, place});
  }
}

// ---- HostCopies: the copies.

void HostCopies::copy_runs(const Buffer& own, const Span& span, std::byte* to,
                           const std::byte* from) {
  for (size_t i = span.first_run; i < span.first_run + span.nruns; ++i) {
    const ptrdiff_t at = own.runs[i].offset - span.offset;
    std::memcpy(to + at, from + at, own.runs[i].bytes);
  }
}

Status HostCopies::read(const Buffer& own) {
  Status status;
  for (const Span& span : own.spans) {
    std::byte* to = own.copy + (span.offset - own.lower);
    const std::byte* from = own.program + span.offset;
    if (!span.place.on_device) {
      copy_runs(own, span, to, from);
    } else if (Status one = memory::copy(span.place.device, to, from, span.bytes); !one.ok()) {
      status = one;
    }
  }
  return status;
}

// Whether the program passed one pointer twice, which is for the base to refuse, or to make of it what it does: so
// the copies are one too.
bool HostCopies::one_buffer() const {
  const auto copied = [](const Buffer& own) {
    return !own.skip && !own.unused && own.on_device && !own.runs.empty();
  };
  return count_ == 2 && buffers_[0].program == buffers_[1].program &&
         buffers_[0].program != MPI_BOTTOM && copied(buffers_[0]) && copied(buffers_[1]);
}

Status HostCopies::make() {
  made_ = true;
  for (int i = 0; i < count_; ++i) {
    Buffer& own = buffers_[static_cast<size_t>(i)];
    if (own.skip || own.unused || !own.on_device) continue;
    lay_out(own);
    find_spans(own);
    if (own.runs.empty()) continue;
    own.lower = own.runs.front().offset;
    ptrdiff_t end = end_of(own.runs.back());
    if (one_buffer()) {
      // Both are laid out by now: this is the second, and its copy has room for the first.
      Buffer& first = buffers_[0];
      own.lower = std::min(own.lower, first.lower);
      end = std::max(end, end_of(first.runs.back()));
      memory::give_block(first.copy);
      first.shares = true;
    }
    const auto bytes = static_cast<size_t>(end - own.lower);
    size_t touched = 0;
    for (const Span& span : own.spans) touched += span.bytes;
    const bool sparse = bytes > sparse_from_bytes && bytes / sparse_parts > touched;
    own.copy = static_cast<std::byte*>(memory::take_block(bytes, sparse));
    if (own.copy == nullptr) return Code::no_memory;
    if (buffers_[0].shares) buffers_[0].copy = own.copy + (buffers_[0].lower - own.lower);
  }
  return {};
}

Status HostCopies::copy_in() {
  if (!made_) TUTTI_TRY(make());
  Status status;
  for (int i = 0; i < count_; ++i) {
    const Buffer& own = buffers_[static_cast<size_t>(i)];
    if (own.copy == nullptr || own.access == Access::write) continue;
    if (Status one = read(own); !one.ok()) status = one;
  }
  return status;
}

// What lies between the runs is as new as can be when it is written back: only a change within
// these two copies would be lost.
Status HostCopies::write_gapped(const Buffer& own, const Span& span) {
  auto* fresh = static_cast<std::byte*>(memory::take_block(span.bytes));
  if (fresh == nullptr) return Code::no_memory;
  std::byte* to = own.program + span.offset;
  Status status = memory::copy(span.place.device, fresh, to, span.bytes);
  if (status.ok()) {
    copy_runs(own, span, fresh, own.copy + (span.offset - own.lower));
    status = memory::copy(span.place.device, to, fresh, span.bytes);
  }
  memory::give_block(fresh);
  return status;
}

Status HostCopies::write(const Buffer& own, bool wait) {
  Status status;
  for (const Span& span : own.spans) {
    std::byte* to = own.program + span.offset;
    const std::byte* from = own.copy + (span.offset - own.lower);
    Status one;
    if (!span.place.on_device) {
      copy_runs(own, span, to, from);
    } else if (span.nruns > 1) {
      one = write_gapped(own, span);
    } else {
      uint64_t handle = 0;
      if (!wait && memory::copy_start(span.place.device, to, from, span.bytes, &handle).ok())
        copies_.push_back(handle);
      else
        one = memory::copy(span.place.device, to, from, span.bytes);
    }
    if (!one.ok()) status = one;
  }
  return status;
}

Status HostCopies::copy_out() {
  Status status;
  for (const Buffer& own : buffers_) {
    if (own.copy == nullptr || own.access == Access::read) continue;
    if (Status one = write(own, true); !one.ok()) status = one;
  }
  return status;
}

void HostCopies::copy_out_start() {
  for (const Buffer& own : buffers_) {
    if (own.copy == nullptr || own.access == Access::read) continue;
    if (Status one = write(own, false); !one.ok()) out_ = one;
  }
}

Poll HostCopies::copy_out_poll() {
  while (!copies_.empty()) {
    Poll poll = memory::copy_poll(copies_.back());
    if (!poll.finished()) return poll;
    if (!poll.status().ok()) out_ = poll.status();
    copies_.pop_back();
  }
  return out_.ok() ? Poll::done() : Poll::failed(out_);
}

void* HostCopies::host(int index) const {
  const Buffer& own = buffers_[static_cast<size_t>(index)];
  if (own.unused && own.on_device) return nullptr;
  return own.copy == nullptr ? own.program : own.copy - own.lower;
}

bool find_ends(MPI_Comm comm, Ends& ends) {
  int inter = 0;
  if (!active() || comm == MPI_COMM_NULL) return false;
  below.Comm_test_inter(comm, &inter);
  below.Comm_rank(comm, &ends.rank);
  below.Comm_size(comm, &ends.local);
  ends.peers = ends.local;
  ends.inter = inter != 0;
  ends.comm = comm;
  if (ends.inter) below.Comm_remote_size(comm, &ends.peers);
  return true;
}

// ---- BouncedCall

Status BouncedCall::start() {
  describe_(copies_);
  if (copies_.needed()) {
    count_taken(call_, Taken::bounce);
    status_ = copies_.copy_in();
    // Without a copy the base would be given a device pointer.
    if (status_ == Status(Code::no_memory)) return status_;
  }
  base_error_ = begin_(copies_, &inner_);
  return base_error_ == MPI_SUCCESS ? Code::ok : Code::internal;
}

Poll BouncedCall::test() {
  if (!base_done_) {
    int flag = 0;
    if (below.Test.pmpi(&inner_, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS)
      return Poll::failed(Code::internal);
    if (flag == 0) return Poll::busy();
    base_done_ = true;
    copies_.copy_out_start();
  }
  Poll poll = copies_.copy_out_poll();
  return poll.finished() && poll.status().ok() && !status_.ok() ? Poll::failed(status_) : poll;
}

namespace {

class BouncedOperation : public Operation {
 public:
  explicit BouncedOperation(std::shared_ptr<BouncedCall> call) : call_(std::move(call)) {}
  Status start() override { return Code::ok; }  // start_bounced has begun it
  Poll poll() override { return call_->test(); }
  // The call is the base's by now: nothing can end it here.
  void abort(Status why) override {
    TUTTI_ERROR("mpi", "a call of the MPI below goes on although it should end: {}", why.text());
  }
  bool needs_base() const override { return !call_->base_done(); }
  const char* phase() const override {
    return call_->base_done() ? "copy to the device" : "call of the MPI below";
  }
  std::string waiting_for() const override { return "the MPI below"; }

 private:
  std::shared_ptr<BouncedCall> call_;
};

}  // namespace

int start_bounced(MPI_Comm comm, std::shared_ptr<BouncedCall> call, MPI_Request* request) {
  Slot* slot = nullptr;
  if (int error = take_slot(comm, &slot); error != MPI_SUCCESS) return error;
  // Here and not by the engine: what the base refuses at once it has raised itself, and the program
  // gets that error from this call.
  if (Status status = call->start(); !status.ok()) {
    drop_slot(slot);
    *request = MPI_REQUEST_NULL;
    return call->base_error() != MPI_SUCCESS ? call->base_error() : raise(comm, status);
  }
  slot->operation = std::make_unique<BouncedOperation>(std::move(call));
  slot->request.operation = slot->operation.get();
  *request = slot->handle;
  runtime().engine.submit(slot->lane, slot->request);
  complete_finished();
  return MPI_SUCCESS;
}

}  // namespace tutti::mpi
