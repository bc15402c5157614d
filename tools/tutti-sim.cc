// tutti-sim: generates the schedules of all ranks for a call, proves them, replays them on a cost model and
// in SimGrid, and prints them. No MPI, no network, any machine.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/text.hpp"
#include "config.h"
#include "sched/print.hpp"
#include "sched/verify.hpp"
#ifdef TUTTI_WITH_SIMGRID
#include "simgrid_replay.hpp"
#endif
#include "tune/replay.hpp"
#include "tune/select.hpp"

namespace tutti {
namespace {

void put(const std::string& line) {
  std::fputs(line.c_str(), stdout);
}

struct Options {
  std::string coll = "allreduce", bytes = "1m", comm = "node:4", rule, model = "ib", show;
  int root = 0;
  bool explain = false, messages = false, simgrid = false, all = false;
};

#ifdef TUTTI_WITH_SIMGRID
constexpr bool with_simgrid = true;
#else
constexpr bool with_simgrid = false;
// Stands for what was not built in; nothing calls it.
Result<double> simgrid_makespan_ns(std::span<const Schedule>, const Topology&, const CostModel&,
                                   uint64_t) {
  return Code::internal;
}
#endif

// One call as all ranks see it: bytes of the vector, or of a block, as rules count them.
std::vector<Problem> problems(const Options& options, Coll coll, uint64_t bytes, int nranks) {
  Problem problem;
  problem.agreed.coll = coll;
  problem.agreed.root = options.root;
  problem.agreed.dtype = reduces(coll) ? Dtype::f32 : Dtype::byte;
  problem.agreed.count = coll == Coll::barrier ? 0 : bytes / info(problem.agreed.dtype).extent;
  return std::vector<Problem>(static_cast<size_t>(nranks), problem);
}

void print_replay(const Replay& result) {
  put(text(
      "time {:.2f} us; inside nodes {} messages, {} bytes; between nodes {} messages, {} bytes\n",
      result.makespan_ns / 1000, result.messages_near, result.bytes_near, result.messages_far,
      result.bytes_far));
}

int show(const std::string& how, const std::vector<Schedule>& all, uint64_t element_bytes,
         const CostModel& model) {
  if (how == "text")
    for (const Schedule& schedule : all) put(print_text(schedule));
  if (how == "dot") put(print_dot(all));
  if (how == "goal") {
    const double calc_ns = model.host.reduce_ns_per_byte * static_cast<double>(element_bytes);
    Result<std::string> goal = print_goal(all, element_bytes, calc_ns);
    if (!goal.ok()) {
      std::fprintf(stderr, "tutti-sim: GOAL knows no group steps\n");
      return 1;
    }
    put(*goal);
  }
  return 0;
}

// The schedules of all ranks; empty when one cannot be made or they are not proven, which is said.
std::vector<Schedule> proven_schedules(const Choice& choice, const std::vector<Problem>& calls,
                                       const Topology& topology) {
  std::vector<Schedule> all(calls.size());
  for (size_t r = 0; r < all.size(); ++r)
    if (!generate(*choice.algorithm, calls[r], Place{static_cast<int>(r), topology, choice.params},
                  all[r])
             .ok())
      return {};
  const Verdict verdict = verify(calls, all);
  if (verdict.proven) return all;
  put(text("{}: {}\n", choice.algorithm->scheme, verdict.text));
  return {};
}

std::string named(const Choice& choice) {
  const std::string params = describe(*choice.algorithm, choice.params);
  return text("{}{}{}", choice.algorithm->scheme, params.empty() ? "" : ",", params);
}

std::string print_us(double ns) {
  return text("{:.2f}", ns / 1000);
}

// Every candidate: what select goes by, the replay and SimGrid.
int print_all(const Explanation& why, const std::vector<Problem>& calls, const Topology& topology,
              const CostModel& model) {
  const uint64_t element_bytes = info(calls[0].agreed.dtype).extent;
  put(text("{:>12} {:>12} {:>12}  algorithm (us)\n", "forecast", "replay", "SimGrid"));
  for (const Candidate& candidate : why.candidates) {
    if (!candidate.applies) continue;
    const std::vector<Schedule> all = proven_schedules(candidate.choice, calls, topology);
    if (all.empty()) return 1;
    const Result<Replay> replayed = replay(all, topology, model, element_bytes);
    if (!replayed.ok()) return 1;
    std::string simgrid = "-";
    if (with_simgrid) {
      const Result<double> took = simgrid_makespan_ns(all, topology, model, element_bytes);
      if (!took.ok()) return 1;
      simgrid = print_us(*took);
    }
    put(text("{:>12} {:>12} {:>12}  {}\n", print_us(static_cast<double>(candidate.cost_ns)),
             print_us(replayed->makespan_ns), simgrid, named(candidate.choice)));
  }
  return 0;
}

int simulate(const Options& options) {
  const auto coll = find_coll(options.coll);
  const auto bytes = setting::Bytes::parse(options.bytes);
  const CostModel* model = find_cost_model(options.model);
  Result<Topology> topology = parse_topology(options.comm);
  if (!topology.ok()) return 2;
  const int nranks = topology->nranks;
  if (!coll || !bytes || model == nullptr || options.root < 0 || options.root >= nranks) {
    std::fprintf(stderr, "tutti-sim: unknown collective, size, root or model\n");
    return 2;
  }
  if (options.simgrid && !with_simgrid) {
    std::fprintf(stderr, "tutti-sim: built without SimGrid\n");
    return 2;
  }
  Result<std::vector<TuneRule>> rules = parse_rules(*coll, options.rule);
  if (!rules.ok()) return 2;
  const std::vector<Problem> calls = problems(options, *coll, *bytes, nranks);
  Tuning tuning;
  tuning.rules = *rules;
  tuning.groups = !options.messages;
  tuning.switches = true;  // where the topology has them
  tuning.model = model;
  const Explanation why = explain(calls[0].agreed, *topology, tuning);
  if (options.explain) put(print(why));
  if (options.all) return print_all(why, calls, *topology, *model);
  if (why.choice.algorithm == nullptr) {
    put("the MPI below does it\n");
    return 0;
  }
  const std::vector<Schedule> all = proven_schedules(why.choice, calls, *topology);
  if (all.empty()) return 1;
  const uint64_t element_bytes = info(calls[0].agreed.dtype).extent;
  if (!options.show.empty()) return show(options.show, all, element_bytes, *model);
  put(text("{} {} by {} on {} ranks: proven\n", options.bytes, options.coll, named(why.choice),
           nranks));
  Result<Replay> result = replay(all, *topology, *model, element_bytes);
  if (!result.ok()) return 1;
  print_replay(*result);
  if (!options.simgrid) return 0;
  const Result<double> took = simgrid_makespan_ns(all, *topology, *model, element_bytes);
  if (took.ok()) put(text("time in SimGrid {} us\n", print_us(*took)));
  return took.ok() ? 0 : 1;
}

int run(int argc, char** argv) {
  CLI::App app("Generates, proves and replays the schedules of a collective call.");
  Options options;
  app.add_option("--coll", options.coll, "Collective (default allreduce)");
  app.add_option("--bytes", options.bytes,
                 "Bytes of the vector or of a block, as 64m (default 1m)");
  app.add_option("--comm", options.comm, "Topology, as node:32,gpu:8 (default node:4)");
  app.add_option("--rule", options.rule, "Algorithm, as ring,chunk=1m; left out: as tutti chooses");
  app.add_option("--root", options.root, "Root (default 0)");
  app.add_option("--model", options.model, "Cost model: ib or tcp (default ib)");
  app.add_option("--show", options.show, "Print the schedules instead")
      ->check(CLI::IsMember({"text", "dot", "goal"}));
  app.add_flag("--explain", options.explain, "Print the candidates and why one was chosen");
  app.add_flag("--simgrid", options.simgrid, "Replay in SimGrid, too");
  app.add_flag("--all", options.all, "Prove and time every candidate instead");
  app.add_flag("--messages", options.messages,
               "As where no group steps (kernels, shared memory) work inside nodes");
  app.set_version_flag("--version", "tutti " PACKAGE_VERSION);
  CLI11_PARSE(app, argc, argv);
  return simulate(options);
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  try {
    return tutti::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tutti-sim: %s\n", error.what());
    return 2;
  }
}
