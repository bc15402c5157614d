#include "mpi/bounce.hpp"

#include "base/log.hpp"
#include "mpi/lifecycle.hpp"
#include "mpi/state.hpp"

namespace tutti::mpi {

// ---- HostCopies

HostCopies::~HostCopies() {
  for (int i = 0; i < count_; ++i)
    if (buffers_[static_cast<size_t>(i)].copy != nullptr)
      memory::give_block(buffers_[static_cast<size_t>(i)].copy);
}

int HostCopies::add(const void* buffer, int64_t count, MPI_Datatype datatype, Access access) {
  Buffer& own = buffers_[static_cast<size_t>(count_)];
  own.program = const_cast<void*>(buffer);
  own.access = access;
  own.skip =
      buffer == MPI_IN_PLACE || buffer == nullptr || count <= 0 || datatype == MPI_DATATYPE_NULL;
  if (!own.skip) {
    int size = 0;
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    MPI_Aint true_lower = 0;
    MPI_Aint true_extent = 0;
    below.Type_size(datatype, &size);
    below.Type_get_extent(datatype, &lower, &extent);
    below.Type_get_true_extent(datatype, &true_lower, &true_extent);
    // A negative extent puts the last element lowest.
    const ptrdiff_t reach = static_cast<ptrdiff_t>(count - 1) * extent;
    own.lower = true_lower + (reach < 0 ? reach : 0);
    own.bytes = static_cast<size_t>(true_extent + (reach < 0 ? -reach : reach));
    own.first = static_cast<std::byte*>(own.program) + own.lower;
    // Gaps inside are the program's: what goes back must hold what was there.
    if (own.access == Access::write &&
        static_cast<size_t>(size) * static_cast<size_t>(count) != own.bytes)
      own.access = Access::read_write;
    own.skip = own.bytes == 0;
  }
  return count_++;
}

bool HostCopies::needed() {
  if (!memory::live()) return false;
  const void* pointers[limit];
  memory::Place places[limit];
  for (int i = 0; i < count_; ++i) pointers[i] = buffers_[static_cast<size_t>(i)].first;
  memory::look(pointers, count_, places);
  bool any = false;
  for (int i = 0; i < count_; ++i) {
    Buffer& own = buffers_[static_cast<size_t>(i)];
    if (own.skip) continue;
    own.place = places[i];
    any |= own.place.on_device;
  }
  return any;
}

Status HostCopies::copy_in() {
  Status status;
  for (int i = 0; i < count_; ++i) {
    Buffer& own = buffers_[static_cast<size_t>(i)];
    if (own.skip || !own.place.on_device) continue;
    own.copy = static_cast<std::byte*>(memory::take_block(own.bytes));
    if (own.copy == nullptr) return Code::no_memory;
    if (own.access == Access::write) continue;
    if (Status one = memory::copy(own.place.device, own.copy, own.first, own.bytes); !one.ok())
      status = one;
  }
  return status;
}

Status HostCopies::copy_out() {
  Status status;
  for (int i = 0; i < count_; ++i) {
    Buffer& own = buffers_[static_cast<size_t>(i)];
    if (own.copy == nullptr || own.access == Access::read) continue;
    if (Status one = memory::copy(own.place.device, own.first, own.copy, own.bytes); !one.ok())
      status = one;
  }
  return status;
}

Status HostCopies::copy_out_start() {
  for (int i = 0; i < count_; ++i) {
    Buffer& own = buffers_[static_cast<size_t>(i)];
    if (own.copy == nullptr || own.access == Access::read) continue;
    TUTTI_TRY(memory::copy_start(own.place.device, own.first, own.copy, own.bytes, &own.handle));
    own.copying = true;
  }
  return Code::ok;
}

Poll HostCopies::copy_out_poll() {
  Status status;
  for (int i = 0; i < count_; ++i) {
    Buffer& own = buffers_[static_cast<size_t>(i)];
    if (!own.copying) continue;
    Poll poll = memory::copy_poll(own.handle);
    if (!poll.finished()) return poll;
    own.copying = false;
    if (!poll.status().ok()) status = poll.status();
  }
  return status.ok() ? Poll::done() : Poll::failed(status);
}

void* HostCopies::host(int index) const {
  const Buffer& own = buffers_[static_cast<size_t>(index)];
  return own.copy == nullptr ? own.program : own.copy - own.lower;
}

// ---- BouncedCall

Status BouncedCall::start() {
  status_ = copies.needed() ? copies.copy_in() : Status();
  // Without a copy the base would be given a device pointer.
  if (status_ == Status(Code::no_memory)) return status_;
  return begin_(copies, &inner_) == MPI_SUCCESS ? Code::ok : Code::internal;
}

Poll BouncedCall::test() {
  if (!base_done_) {
    int flag = 0;
    if (below.Test.pmpi(&inner_, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS)
      return Poll::failed(Code::internal);
    if (flag == 0) return Poll::busy();
    base_done_ = true;
    if (Status status = copies.copy_out_start(); !status.ok()) return Poll::failed(status);
  }
  Poll poll = copies.copy_out_poll();
  return poll.finished() && poll.status().ok() && !status_.ok() ? Poll::failed(status_) : poll;
}

namespace {

class BouncedOperation : public Operation {
 public:
  explicit BouncedOperation(std::shared_ptr<BouncedCall> call) : call_(std::move(call)) {}
  Status start() override { return call_->start(); }
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
  slot->operation = std::make_unique<BouncedOperation>(std::move(call));
  slot->request.operation = slot->operation.get();
  *request = slot->handle;
  runtime().engine.submit(slot->lane, slot->request);
  complete_finished();
  return MPI_SUCCESS;
}

}  // namespace tutti::mpi
