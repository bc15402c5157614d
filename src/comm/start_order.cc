#include "comm/start_order.hpp"

#include <algorithm>

namespace tutti {

namespace {

// Polls between looks at the members' abort words while no round is under way.
constexpr uint32_t polls_between_abort_looks = 64;

}  // namespace

StartOrder::StartOrder(NodeContext& context, Engine& engine)
    : context_(context),
      rounds_context_(context),
      engine_(engine),
      nranks_(context.group->nranks()),
      all_numbers_(told_at_once * static_cast<size_t>(nranks_)) {
  rounds_context_.device = nullptr;
}

void StartOrder::enlist(uint64_t number, const Problem& problem, Request& request) {
  std::lock_guard<std::mutex> lock(mutex_);
  fresh_.push_back({number, &problem, &request});
}

void StartOrder::go() {
  Request* turn = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!running_ && !fresh_.empty()) {
      running_ = true;
      turn_ = 1 - turn_;
      turn = &turns_[turn_];
      turn->record = CallRecord();
      turn->record.coll = fresh_.front().problem->agreed.coll;
      turn->record.sequence = fresh_.front().number;
    }
  }
  if (turn == nullptr) {
    engine_.progress();
    return;
  }
  turn->operation = this;
  turn->started = false;
  turn->done.store(false, std::memory_order_relaxed);
  engine_.submit(lane_, *turn);
}

// False where there is nothing to go on with: whoever starts the next call submits the next turn.
bool StartOrder::take_fresh() {
  std::lock_guard<std::mutex> lock(mutex_);
  waiting_.insert(waiting_.end(), fresh_.begin(), fresh_.end());
  fresh_.clear();
  running_ = !waiting_.empty();
  return running_;
}

void StartOrder::finish(const Started& started, Status status) {
  // The watchdog's time is that without any call's end.
  CallRecord& record = turns_[turn_].record;
  record = CallRecord();
  record.sequence = started.number;
  started.request->status = status;
  if (started.request->finished == nullptr)
    started.request->done.store(true, std::memory_order_release);
  else
    started.request->finished(started.request, status);
}

void StartOrder::fail_all(Status status) {
  round_.reset();
  call_.reset();
  for (const Started& one : everyones_) finish(one, status);
  everyones_.clear();
  for (const Started& one : waiting_) finish(one, status);
  waiting_.clear();
  told_ = 0;
  named_.clear();
}

void StartOrder::begin_round() {
  own_numbers_.fill(0);
  const size_t n = std::min(told_at_once, waiting_.size() - told_);
  for (size_t i = 0; i < n; ++i) own_numbers_[i] = waiting_[told_ + i].number;
  told_ += n;
  Problem problem;
  problem.agreed.coll = Coll::allgather;
  problem.agreed.count = sizeof(own_numbers_);
  problem.local.send = own_numbers_.data();
  problem.local.recv = all_numbers_.data();
  round_.emplace(rounds_context_, problem);
}

// In one order on all ranks: what they read is the same.
void StartOrder::take_round() {
  for (size_t i = 0; i < all_numbers_.size(); ++i) {
    const uint64_t number = all_numbers_[i];
    if (number == 0) continue;
    auto known = std::find_if(named_.begin(), named_.end(),
                              [&](const Named& one) { return one.number == number; });
    if (known == named_.end()) known = named_.insert(known, Named{number, {}});
    known->ranks.set(i / told_at_once);
    if (known->ranks.count() < static_cast<size_t>(nranks_)) continue;
    *known = named_.back();
    named_.pop_back();
    const auto own = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const Started& one) { return one.number == number; });
    everyones_.push_back(*own);  // this rank has named it
    waiting_.erase(own);
    --told_;
  }
}

void StartOrder::run_everyones() {
  current_ = everyones_.front();
  everyones_.pop_front();
  turns_[turn_].record.coll = current_.problem->agreed.coll;
  turns_[turn_].record.sequence = current_.number;
  call_.emplace(context_, *current_.problem);
  if (Status status = call_->start(); !status.ok()) {
    call_.reset();
    finish(current_, status);
  }
}

Poll StartOrder::poll() {
  for (;;) {
    if (call_.has_value()) {
      const Poll poll = call_->poll();
      if (!poll.finished()) return poll;
      call_.reset();
      finish(current_, poll.status());
    } else if (!everyones_.empty()) {
      run_everyones();
    } else if (round_.has_value()) {
      const Poll poll = round_->poll();
      if (!poll.finished()) return poll;
      round_.reset();
      if (poll.status().ok())
        take_round();
      else
        fail_all(poll.status());
    } else {
      if (!take_fresh()) return Poll::done();
      const shm::NodeGroup& group = *context_.group;
      if (told_ == waiting_.size() && !group.anyone_ahead()) {
        if (++looks_ % polls_between_abort_looks != 0 || group.aborted() == Code::ok)
          return Poll::busy();
      }
      begin_round();
      if (Status status = round_->start(); !status.ok()) fail_all(status);
    }
  }
}

void StartOrder::abort(Status why) {
  if (call_.has_value())
    call_->abort(why);
  else
    context_.group->abort(why.code());
}

Status StartOrder::check_peers() {
  if (call_.has_value()) return call_->check_peers();
  for (const PeerProcess& process : context_.processes)
    if (!process.alive()) return Code::peer_lost;
  return {};
}

const char* StartOrder::phase() const {
  return call_.has_value() ? call_->phase() : "start by all";
}

std::string StartOrder::waiting_for() const {
  if (call_.has_value()) return call_->waiting_for();
  if (waiting_.empty()) return "the start of a persistent call";
  const uint64_t number = waiting_.front().number;
  const auto known = std::find_if(named_.begin(), named_.end(),
                                  [&](const Named& one) { return one.number == number; });
  std::string names;
  for (size_t r = 0; r < context_.members.size(); ++r) {
    const bool started = static_cast<int>(r) == context_.group->rank() ||
                         (known != named_.end() && known->ranks.test(r));
    if (!started) names += (names.empty() ? "" : ", ") + context_.members[r];
  }
  return names + " to start persistent call " + std::to_string(number);
}

}  // namespace tutti
