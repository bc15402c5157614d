#include "comm/staging.hpp"

#include <algorithm>

#include "sched/contract.hpp"

namespace tutti {

Status Staging::make(Copy& copy, const memory::Place& place, const void* buffer, size_t bytes) {
  if (!place.on_device || bytes == 0) return {};
  copy.host = memory::take_block(bytes);
  if (copy.host == nullptr) return Code::no_memory;
  copy.device = const_cast<void*>(buffer);
  copy.number = place.device;
  copy.bytes = bytes;
  return {};
}

Status Staging::begin_copy(Copy& copy, bool in) {
  TUTTI_TRY(memory::copy_start(copy.number, in ? copy.host : copy.device,
                               in ? copy.device : copy.host, copy.bytes, &copy.handle));
  copy.pending = true;
  return {};
}

Status Staging::begin(const Agreed& agreed, int rank, int nranks, Local& local) {
  if (!memory::live()) return {};
  const Problem problem{agreed, local};
  const Extent size = extent(problem, rank, nranks);
  const size_t element = info(agreed.dtype).extent;
  const std::array<const void*, 2> pointers = {size.input != 0 ? local.send : nullptr,
                                               size.output != 0 ? local.recv : nullptr};
  std::array<memory::Place, 2> places{};
  for (size_t i = 0; i < pointers.size(); ++i)
    if (pointers[i] != nullptr) memory::look(&pointers[i], 1, &places[i]);
  TUTTI_TRY(make(input_, places[0], local.send, size.input * element));
  TUTTI_TRY(make(output_, places[1], local.recv, size.output * element));
  gives_ = agreed.coll != Coll::bcast || rank != agreed.root;
  if (input_.host != nullptr) {
    local.send = input_.host;
    TUTTI_TRY(begin_copy(input_, true));
  }
  if (output_.host == nullptr) return {};
  local.recv = output_.host;
  if (local.in_place) local.send = output_.host;
  // What the call does not write keeps its bytes.
  const std::vector<Piece> own = contribution(problem, rank, nranks);
  const bool reads = std::any_of(own.begin(), own.end(), [](const Piece& piece) {
    return piece.where.space == Space::output;
  });
  if (reads || !local.recv_displs.empty() || agreed.coll == Coll::exscan)
    TUTTI_TRY(begin_copy(output_, true));
  return {};
}

Poll Staging::poll() {
  Status status;
  for (Copy* copy : {&input_, &output_}) {
    if (!copy->pending) continue;
    const Poll poll = memory::copy_poll(copy->handle);
    if (!poll.finished()) return Poll::busy();
    copy->pending = false;
    if (status.ok()) status = poll.status();
  }
  return status.ok() ? Poll::done() : Poll::failed(status);
}

Status Staging::begin_out() {
  if (output_.host == nullptr || !gives_) return {};
  return begin_copy(output_, false);
}

void Staging::drop() {
  for (Copy* copy : {&input_, &output_}) {
    if (copy->host != nullptr) memory::give_block(copy->host);
    *copy = {};
  }
}

void Staging::abandon() {
  input_ = {};
  output_ = {};
}

}  // namespace tutti
