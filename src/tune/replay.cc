#include "tune/replay.hpp"

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

#include "base/log.hpp"

namespace tutti {

namespace {

struct At {
  int32_t rank;
  uint32_t step;
};

class Machine {
 public:
  Machine(std::span<const Schedule> schedules, const Topology& topology, const CostModel& model,
          uint64_t element_bytes)
      : schedules_(schedules),
        topology_(topology),
        model_(model),
        element_bytes_(static_cast<double>(element_bytes)),
        out_free_(schedules.size(), 0),
        in_free_(schedules.size(), 0),
        core_free_(schedules.size(), 0),
        device_free_(schedules.size(), 0) {
    result_.finish_ns.assign(schedules.size(), 0);
    for (const Schedule& s : schedules) {
      first_.push_back(steps_);
      steps_ += s.steps.size();
    }
    ready_.assign(steps_, 0);
    waits_.assign(steps_, 0);
    followers_.resize(steps_);
  }

  Result<Replay> run() {
    for (size_t r = 0; r < schedules_.size(); ++r) {
      const Schedule& s = schedules_[r];
      for (uint32_t i = 0; i < s.steps.size(); ++i) {
        const At at{static_cast<int32_t>(r), i};
        waits_[id(at)] = s.steps[i].after_count;
        for (uint32_t b : s.after_of(s.steps[i])) followers_[id({at.rank, b})].push_back(i);
        if (s.steps[i].after_count == 0) queue_.push({0, number_++, at, Event::Kind::start});
      }
    }
    while (!queue_.empty()) {
      const Event event = queue_.top();
      queue_.pop();
      if (event.kind == Event::Kind::start)
        start(event.at, event.time);
      else
        arrive(event.at, event.time);
    }
    if (finished_ != steps_) {
      TUTTI_ERROR("tune", "replay: {} of {} steps never end", steps_ - finished_, steps_);
      return Code::internal;
    }
    for (double t : result_.finish_ns) result_.makespan_ns = std::max(result_.makespan_ns, t);
    return result_;
  }

 private:
  struct Event {
    enum class Kind : uint8_t { start, arrive };
    double time;
    uint64_t number;  // events of one time go in the order they came
    At at;            // of an arrival: the receiving step
    Kind kind;
    bool operator>(const Event& other) const {
      return std::tie(time, number) > std::tie(other.time, other.number);
    }
  };

  size_t id(const At& at) const { return first_[static_cast<size_t>(at.rank)] + at.step; }
  const Step& step(const At& at) const {
    return schedules_[static_cast<size_t>(at.rank)].steps[at.step];
  }
  double bytes(const Ref& ref) const {
    const double each = ref.space == Space::wide ? sizeof(float) : element_bytes_;
    return static_cast<double>(ref.count) * each;
  }

  void finish(const At& at, double time) {
    ++finished_;
    double& last = result_.finish_ns[static_cast<size_t>(at.rank)];
    last = std::max(last, time);
    for (uint32_t next : followers_[id(at)]) {
      const At follower{at.rank, next};
      ready_[id(follower)] = std::max(ready_[id(follower)], time);
      if (--waits_[id(follower)] == 0)
        queue_.push({ready_[id(follower)], number_++, follower, Event::Kind::start});
    }
  }

  void start(const At& at, double now) {
    const Step& s = step(at);
    switch (s.kind) {
      case StepKind::copy:
      case StepKind::reduce: {
        const bool device = topology_.gpu_of(at.rank) >= 0;
        double& core = (device ? device_free_ : core_free_)[static_cast<size_t>(at.rank)];
        const WorkCost& work = device ? model_.device : model_.host;
        const double rate =
            s.kind == StepKind::copy ? work.copy_ns_per_byte : work.reduce_ns_per_byte;
        core = std::max(core, now) + bytes(s.to) * rate;
        finish(at, core);
        break;
      }
      case StepKind::send:
      case StepKind::recv:
        meet(at, s, now);
        break;
      case StepKind::group:
        gather(at, s, now);
        break;
    }
  }

  void meet(const At& at, const Step& s, double now) {
    const bool sends = s.kind == StepKind::send;
    const std::tuple key(sends ? at.rank : s.peer, sends ? s.peer : at.rank, s.tag);
    auto [other, first] = posted_.try_emplace(key, at);
    if (first) return;
    const At sender = sends ? at : other->second, receiver = sends ? other->second : at;
    posted_.erase(other);
    const double arrival = transfer(sender.rank, receiver.rank, bytes(step(sender).from), now);
    finish(sender, arrival);
    queue_.push({arrival, number_++, receiver, Event::Kind::arrive});
  }

  // A message has come: the receiver's core takes it.
  void arrive(const At& at, double now) {
    double& core = core_free_[static_cast<size_t>(at.rank)];
    core = std::max(core, now) + link(step(at).peer, at.rank, bytes(step(at).to)).recv_ns;
    finish(at, core);
  }

  // Word without bytes needs no GPU.
  const LinkCost& link(int from, int to, double size) const {
    const Distance distance = topology_.distance(from, to);
    if (size == 0 && topology_.node_of(from) == topology_.node_of(to)) return model_.node;
    return distance == Distance::fabric                                       ? model_.fabric
           : distance == Distance::nvlink || distance == Distance::shared_gpu ? model_.nvlink
                                                                              : model_.node;
  }

  // When the message is there, but for the receiver's core.
  double transfer(int from, int to, double size, double now) {
    const bool far = topology_.distance(from, to) == Distance::fabric;
    const LinkCost& cost = link(from, to, size);
    double& core = core_free_[static_cast<size_t>(from)];
    core = std::max(core, now) + cost.send_ns;
    double& out = far ? nic(nics_out_, from) : out_free_[static_cast<size_t>(from)];
    double& in = far ? nic(nics_in_, to) : in_free_[static_cast<size_t>(to)];
    out = in = std::max({out, in, core}) + size * cost.ns_per_byte;
    (far ? result_.messages_far : result_.messages_near) += 1;
    (far ? result_.bytes_far : result_.bytes_near) += static_cast<uint64_t>(size);
    return out + cost.latency_ns - cost.send_ns - cost.recv_ns;
  }

  using Nics = std::map<int, std::vector<double>>;
  // When a NIC for the rank is free: of those matched with its GPU, else of all in the node, the
  // least busy.
  double& nic(Nics& all, int rank) {
    const int node = topology_.node_of(rank), gpu = topology_.gpu_of(rank);
    auto [at, fresh] = all.try_emplace(node);
    if (fresh) at->second.assign(static_cast<size_t>(topology_.nics_of({rank})), 0);
    std::vector<double>& free = at->second;
    if (gpu < 0 || static_cast<size_t>(node) >= topology_.nodes.size())
      return *std::min_element(free.begin(), free.end());
    const Node& here = topology_.nodes[static_cast<size_t>(node)];
    if (here.nics.empty()) return free[static_cast<size_t>(gpu)];
    auto [matched, unknown] = matches_.try_emplace(node);
    if (unknown) matched->second = match_nics(here);
    double* best = nullptr;
    for (int32_t n : matched->second[static_cast<size_t>(gpu)]) {
      double& one = free[static_cast<size_t>(n) % free.size()];
      if (best == nullptr || one < *best) best = &one;
    }
    return best != nullptr ? *best : *std::min_element(free.begin(), free.end());
  }

  void gather(const At& at, const Step& s, double now) {
    const Group& group =
        schedules_[static_cast<size_t>(at.rank)].groups[static_cast<size_t>(s.peer)];
    const std::tuple key(group.members, static_cast<int>(group.coll), s.tag);
    auto& entered = groups_[key];
    entered.push_back(at);
    if (entered.size() != group.members.size()) return;
    double whole = 0;
    for (const At& member : entered)
      whole = std::max({whole, bytes(step(member).from), bytes(step(member).to)});
    const double end = now + group_step_ns(group, whole, model_);
    for (const At& member : entered) finish(member, end);
    groups_.erase(key);
  }

  std::span<const Schedule> schedules_;
  const Topology& topology_;
  const CostModel& model_;
  double element_bytes_;
  std::vector<size_t> first_;
  size_t steps_ = 0, finished_ = 0;
  uint64_t number_ = 0;
  std::vector<double> ready_;
  std::vector<uint32_t> waits_;
  std::vector<std::vector<uint32_t>> followers_;
  std::vector<double> out_free_, in_free_, core_free_, device_free_;
  Nics nics_out_, nics_in_;
  std::map<int, std::vector<std::vector<int32_t>>> matches_;
  std::map<std::tuple<int, int, uint32_t>, At> posted_;
  std::map<std::tuple<std::vector<int32_t>, int, uint32_t>, std::vector<At>> groups_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
  Replay result_;
};

}  // namespace

Result<Replay> replay(std::span<const Schedule> schedules, const Topology& topology,
                      const CostModel& model, uint64_t element_bytes) {
  return Machine(schedules, topology, model, element_bytes).run();
}

}  // namespace tutti
