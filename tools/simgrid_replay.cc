#include "simgrid_replay.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <set>
#include <simgrid/s4u.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "base/log.hpp"
#include "base/text.hpp"

namespace tutti {

namespace {

namespace s4u = simgrid::s4u;

// SimGrid's clock has a precision of its own: a second there is a nanosecond here, so that it is fine
// enough, and a flop is a nanosecond of work.
class Platform {
 public:
  Platform(const Topology& topology, const CostModel& model)
      : topology_(topology), model_(model), zone_(s4u::create_full_zone("machine")) {
    groups_ = zone_->create_host("groups", 1.0);
    groups_->seal();
    for (int r = 0; r < topology.nranks; ++r) add_rank(r);
    for (int a = 0; a < topology.nranks; ++a)
      for (int b = 0; b < topology.nranks; ++b)
        if (a != b) join(a, b);
    zone_->seal();
  }

  s4u::Host* core(int rank) const { return cores_[static_cast<size_t>(rank)]; }
  // Where the rank's buffers are, and what reduces and copies them.
  s4u::Host* memory(int rank) const { return memories_[static_cast<size_t>(rank)]; }
  // Where delays pass.
  s4u::Host* groups() const { return groups_; }
  const LinkCost& cost(int from, int to) const {
    const Distance distance = topology_.distance(from, to);
    return distance == Distance::fabric                                       ? model_.fabric
           : distance == Distance::nvlink || distance == Distance::shared_gpu ? model_.nvlink
                                                                              : model_.node;
  }

 private:
  struct Ways {
    s4u::Link *out, *in;
  };
  using Route = std::vector<s4u::LinkInRoute>;

  Ways ways(const std::string& name, const LinkCost& cost) {
    Ways both{};
    for (bool out : {true, false}) {
      s4u::Link* link = zone_->create_link(name + (out ? "-out" : "-in"), 1 / cost.ns_per_byte);
      // Latencies pass apart, so that a message's bytes can follow those of the one before.
      link->set_latency(0);
      link->seal();
      (out ? both.out : both.in) = link;
    }
    return both;
  }

  void add_rank(int rank) {
    cores_.push_back(zone_->create_host(text("core{}", rank), 1.0));
    cores_.back()->seal();
    const bool device = topology_.gpu_of(rank) >= 0;
    memories_.push_back(device ? zone_->create_host(text("gpu{}", rank), 1.0) : cores_.back());
    if (device) memories_.back()->seal();
    node_.push_back(ways(text("node{}", rank), model_.node));
    nvlink_.push_back(ways(text("nvlink{}", rank), model_.nvlink));
    place_.push_back(ranks_on_[topology_.node_of(rank)]++);
  }

  // A NIC that the rank uses towards a peer: where it has several, they take turns by peer.
  const Ways& nic(int rank, int peer) {
    const int node = topology_.node_of(rank), gpu = topology_.gpu_of(rank);
    auto [at, fresh] = nics_.try_emplace(node);
    if (fresh)
      for (int i = 0; i < topology_.nics_of({rank}); ++i)
        at->second.push_back(ways(text("nic{}-{}", node, i), model_.fabric));
    const std::vector<Ways>& here = at->second;
    size_t one = static_cast<size_t>(place_[static_cast<size_t>(rank)] + peer);
    if (gpu >= 0 && static_cast<size_t>(node) < topology_.nodes.size()) {
      const Node& described = topology_.nodes[static_cast<size_t>(node)];
      auto [matched, unknown] = matches_.try_emplace(node);
      if (unknown) matched->second = match_nics(described);
      const std::vector<int32_t>& list = matched->second[static_cast<size_t>(gpu)];
      one = static_cast<size_t>(gpu);
      if (!list.empty()) one = static_cast<size_t>(list[static_cast<size_t>(peer) % list.size()]);
    }
    return here[one % here.size()];
  }

  void join(int from, int to) {
    const auto a = static_cast<size_t>(from), b = static_cast<size_t>(to);
    const Distance distance = topology_.distance(from, to);
    const bool far = distance == Distance::fabric;
    const bool devices = distance == Distance::nvlink || distance == Distance::shared_gpu;
    const auto route = [](const Ways& x, const Ways& y) {
      return Route{s4u::LinkInRoute(x.out), s4u::LinkInRoute(y.in)};
    };
    add(memory(from), memory(to),
        far       ? route(nic(from, to), nic(to, from))
        : devices ? route(nvlink_[a], nvlink_[b])
                  : route(node_[a], node_[b]));
  }

  void add(s4u::Host* from, s4u::Host* to, const Route& route) {
    zone_->add_route(from->get_netpoint(), to->get_netpoint(), nullptr, nullptr, route, false);
  }

  const Topology& topology_;
  const CostModel& model_;
  s4u::NetZone* zone_;
  s4u::Host* groups_;
  std::vector<s4u::Host*> cores_, memories_;
  std::vector<Ways> node_, nvlink_;
  std::vector<int> place_;  // of the rank on its node
  std::map<int, int> ranks_on_;
  std::map<int, std::vector<Ways>> nics_;
  std::map<int, std::vector<std::vector<int32_t>>> matches_;
};

// What one actor does, in the order in which it is asked to: a core, a GPU, or a connection, which keeps
// the order of its messages.
class Worker {
 public:
  using Task = std::function<void()>;
  Worker(s4u::Host* host, const std::string& name) : waiting_(s4u::Semaphore::create(0)) {
    s4u::Actor::create(name, host, [this] {
      s4u::Actor::self()->daemonize();
      for (;;) {
        waiting_->acquire();
        const Task task = std::move(tasks_.front());
        tasks_.pop_front();
        task();
      }
    });
  }
  void ask(Task task) {
    tasks_.push_back(std::move(task));
    waiting_->release();
  }

 private:
  s4u::SemaphorePtr waiting_;
  std::deque<Task> tasks_;
};

// Runs the steps of all ranks. Actors take turns, so what they share needs no lock.
class Simulation {
 public:
  Simulation(std::span<const Schedule> schedules, const Topology& topology, const CostModel& model,
             uint64_t element_bytes)
      : schedules_(schedules),
        topology_(topology),
        model_(model),
        element_bytes_(static_cast<double>(element_bytes)),
        platform_(topology, model),
        ended_(s4u::Semaphore::create(0)) {}

  double run() {
    for (const Schedule& s : schedules_) {
      const int rank = static_cast<int>(waits_.size());
      left_ += s.steps.size();
      waits_.emplace_back();
      followers_.emplace_back(s.steps.size());
      for (uint32_t i = 0; i < s.steps.size(); ++i) {
        waits_.back().push_back(s.steps[i].after_count);
        for (uint32_t before : s.after_of(s.steps[i])) followers_.back()[before].push_back(i);
      }
      cores_.push_back(std::make_unique<Worker>(platform_.core(rank), text("core{}", rank)));
      const bool device = platform_.memory(rank) != platform_.core(rank);
      gpus_.push_back(device ? std::make_unique<Worker>(platform_.memory(rank), text("gpu{}", rank))
                             : nullptr);
    }
    double took = -1;
    s4u::Actor::create("begin", platform_.groups(), [&] {
      for (size_t r = 0; r < schedules_.size(); ++r)
        for (uint32_t i = 0; i < waits_[r].size(); ++i)
          if (waits_[r][i] == 0) start({static_cast<int>(r), i});
      if (left_ > 0) ended_->acquire();
      took = s4u::Engine::get_clock();
    });
    s4u::Engine::get_instance()->run();
    return left_ > 0 ? -1 : took;
  }

 private:
  struct At {
    int rank;
    uint32_t step;
  };

  const Step& step(const At& at) const {
    return schedules_[static_cast<size_t>(at.rank)].steps[at.step];
  }
  double bytes(const Ref& ref) const {
    return static_cast<double>(ref.count) *
           (ref.space == Space::wide ? sizeof(float) : element_bytes_);
  }

  void finish(const At& at) {
    if (--left_ == 0) ended_->release();
    const auto r = static_cast<size_t>(at.rank);
    for (uint32_t next : followers_[r][at.step])
      if (--waits_[r][next] == 0) start({at.rank, next});
  }

  void start(const At& at) {
    const Step& s = step(at);
    if (s.kind == StepKind::group) return enter(at, s);
    if (s.kind == StepKind::send || s.kind == StepKind::recv) return meet(at, s);
    const auto r = static_cast<size_t>(at.rank);
    const WorkCost& cost = gpus_[r] != nullptr ? model_.device : model_.host;
    const double ns =
        bytes(s.to) * (s.kind == StepKind::copy ? cost.copy_ns_per_byte : cost.reduce_ns_per_byte);
    (gpus_[r] != nullptr ? gpus_ : cores_)[r]->ask([this, at, ns] {
      s4u::this_actor::execute(ns);
      finish(at);
    });
  }

  // The second end that is posted sets a message off.
  void meet(const At& at, const Step& s) {
    const bool sends = s.kind == StepKind::send;
    const std::tuple key(sends ? at.rank : s.peer, sends ? s.peer : at.rank, s.tag);
    auto [other, first] = posted_.try_emplace(key, at);
    if (first) return;
    const At sender = sends ? at : other->second, receiver = sends ? other->second : at;
    posted_.erase(other);
    const int from = sender.rank, to = receiver.rank;
    const double size = bytes(step(sender).from);
    const bool word = size == 0 && topology_.node_of(from) == topology_.node_of(to);
    const LinkCost& cost = word ? model_.node : platform_.cost(from, to);
    cores_[static_cast<size_t>(from)]->ask([this, sender, receiver, size, &cost] {
      s4u::this_actor::execute(cost.send_ns);
      connection(sender.rank, receiver.rank).ask([this, sender, receiver, size, &cost] {
        if (size > 0)
          s4u::Comm::sendto(platform_.memory(sender.rank), platform_.memory(receiver.rank),
                            static_cast<uint64_t>(size));
        after(cost.latency_ns - cost.send_ns - cost.recv_ns, [this, sender, receiver, &cost] {
          finish(sender);
          cores_[static_cast<size_t>(receiver.rank)]->ask([this, receiver, &cost] {
            s4u::this_actor::execute(cost.recv_ns);
            finish(receiver);
          });
        });
      });
    });
  }

  Worker& connection(int from, int to) {
    auto& one = connections_[{from, to}];
    if (one == nullptr)
      one = std::make_unique<Worker>(platform_.memory(from), text("{}-{}", from, to));
    return *one;
  }

  void enter(const At& at, const Step& s) {
    const Group& group =
        schedules_[static_cast<size_t>(at.rank)].groups[static_cast<size_t>(s.peer)];
    const std::tuple key(group.members, static_cast<int>(group.coll), s.tag);
    std::vector<At>& entered = groups_[key];
    entered.push_back(at);
    if (entered.size() != group.members.size()) return;
    double whole = 0;
    for (const At& member : entered)
      whole = std::max({whole, bytes(step(member).from), bytes(step(member).to)});
    after(group_step_ns(group, whole, model_), [this, members = entered] {
      for (const At& member : members) finish(member);
    });
    groups_.erase(key);
  }

  void after(double ns, std::function<void()> then) {
    s4u::Actor::create("delay", platform_.groups(), [ns, then = std::move(then)] {
      s4u::this_actor::sleep_for(ns);
      then();
    });
  }

  std::span<const Schedule> schedules_;
  const Topology& topology_;
  const CostModel& model_;
  double element_bytes_;
  Platform platform_;
  s4u::SemaphorePtr ended_;
  size_t left_ = 0;
  std::vector<std::vector<uint32_t>> waits_;
  std::vector<std::vector<std::vector<uint32_t>>> followers_;
  std::vector<std::unique_ptr<Worker>> cores_, gpus_;
  std::map<std::pair<int, int>, std::unique_ptr<Worker>> connections_;
  std::map<std::tuple<int, int, uint32_t>, At> posted_;
  std::map<std::tuple<std::vector<int32_t>, int, uint32_t>, std::vector<At>> groups_;
};

double simulate(std::span<const Schedule> schedules, const Topology& topology,
                const CostModel& model, uint64_t element_bytes) {
  int argc = 2;
  char name[] = "tutti", quiet[] = "--log=root.thres:warning";
  char* argv[] = {name, quiet, nullptr};
  s4u::Engine engine(&argc, argv);
  // Links have the bandwidth and latency that the model says, and both ways of one are apart.
  for (const char* setting : {"network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0",
                              "contexts/stack-size:256"})
    s4u::Engine::set_config(setting);
  return Simulation(schedules, topology, model, element_bytes).run();
}

}  // namespace

Result<double> simgrid_makespan_ns(std::span<const Schedule> schedules, const Topology& topology,
                                   const CostModel& model, uint64_t element_bytes) {
  int ends[2];
  if (topology.nranks > simgrid_most_ranks || pipe(ends) != 0) return Code::internal;
  std::fflush(nullptr);  // what is buffered would be written twice
  const pid_t child = fork();
  if (child == 0) {
    double took = -1;
    try {
      took = simulate(schedules, topology, model, element_bytes);
    } catch (const std::exception& error) {
      TUTTI_ERROR("sim", "SimGrid: {}", error.what());
    }
    const bool written = write(ends[1], &took, sizeof took) == sizeof took;
    _exit(written && took >= 0 ? 0 : 1);
  }
  close(ends[1]);
  double took = -1;
  const bool got = child > 0 && read(ends[0], &took, sizeof took) == sizeof took;
  close(ends[0]);
  int status = 1;
  if (child > 0) waitpid(child, &status, 0);
  if (!got || took < 0 || status != 0) {
    TUTTI_ERROR("sim", "no simulation of {} ranks: not all of their steps ended", topology.nranks);
    return Code::internal;
  }
  return took;
}

}  // namespace tutti
