#include "sched/print.hpp"

#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "base/text.hpp"

namespace tutti {

namespace {

std::string text_of(const Ref& ref) {
  constexpr std::array names = {"input", "output", "scratch", "wide"};
  return text("{}[{}, {})", names[static_cast<size_t>(ref.space)], ref.offset,
              ref.offset + ref.count);
}

std::string text_of(const Schedule& schedule, const Step& step) {
  switch (step.kind) {
    case StepKind::send:
      return text("send {} to {} tag {}", text_of(step.from), step.peer, step.tag);
    case StepKind::recv:
      return text("recv {} from {} tag {}", text_of(step.to), step.peer, step.tag);
    case StepKind::copy:
      return text("copy {} = {}", text_of(step.to), text_of(step.from));
    case StepKind::reduce:
      return text("reduce {} = {} op {}", text_of(step.to), text_of(step.from), text_of(step.with));
    case StepKind::group: {
      const Group& group = schedule.groups[static_cast<size_t>(step.peer)];
      return text("group {} of {} {} to {} tag {}", name(group.coll), group.members.size(),
                  text_of(step.from), text_of(step.to), step.tag);
    }
  }
  return {};
}

// The word of GOAL for a step.
std::string goal_of(const Step& step, uint64_t element_bytes, double calc_ns) {
  switch (step.kind) {
    case StepKind::send:
      return text("send {}b to {} tag {}", step.from.count * element_bytes, step.peer, step.tag);
    case StepKind::recv:
      return text("recv {}b from {} tag {}", step.to.count * element_bytes, step.peer, step.tag);
    default:
      return text("calc {}", std::llround(static_cast<double>(step.to.count) * calc_ns));
  }
}

}  // namespace

std::string print_text(const Schedule& schedule) {
  std::string out = text("rank {} of {}: input {} output {} scratch {} elements, {} steps\n",
                         schedule.rank, schedule.nranks, schedule.input_count,
                         schedule.output_count, schedule.scratch_count, schedule.steps.size());
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    out += text("{} {}", i, text_of(schedule, step));
    if (step.after_count != 0) out += " after";
    for (uint32_t before : schedule.after_of(step)) out += text(" {}", before);
    out += '\n';
  }
  return out;
}

std::string print_dot(std::span<const Schedule> schedules) {
  std::string out = "digraph schedule {\n  rankdir=LR;\n  node [shape=box];\n";
  std::map<std::tuple<int, int, uint32_t>, std::string> sends;
  for (const Schedule& s : schedules) {
    out += text("  subgraph cluster_{} {{\n    label=\"rank {}\";\n", s.rank, s.rank);
    for (size_t i = 0; i < s.steps.size(); ++i) {
      const Step& step = s.steps[i];
      out += text("    r{}s{} [label=\"{} {}\"];\n", s.rank, i, i, text_of(s, step));
      for (uint32_t before : s.after_of(step))
        out += text("    r{}s{} -> r{}s{};\n", s.rank, before, s.rank, i);
      if (step.kind == StepKind::send)
        sends[{s.rank, step.peer, step.tag}] = text("r{}s{}", s.rank, i);
    }
    out += "  }\n";
  }
  for (const Schedule& s : schedules)
    for (size_t i = 0; i < s.steps.size(); ++i) {
      const Step& step = s.steps[i];
      auto from = sends.find({step.peer, s.rank, step.tag});
      if (step.kind == StepKind::recv && from != sends.end())
        out += text("  {} -> r{}s{} [style=dashed];\n", from->second, s.rank, i);
    }
  return out + "}\n";
}

Result<std::string> print_goal(std::span<const Schedule> schedules, uint64_t element_bytes,
                               double calc_ns) {
  std::string out = text("num_ranks {}\n", schedules.size());
  for (const Schedule& s : schedules) {
    out += text("\nrank {} {{\n", s.rank);
    for (size_t i = 0; i < s.steps.size(); ++i) {
      if (s.steps[i].kind == StepKind::group) return Code::unsupported;
      out += text("l{}: {}\n", i + 1, goal_of(s.steps[i], element_bytes, calc_ns));
    }
    for (size_t i = 0; i < s.steps.size(); ++i)
      for (uint32_t before : s.after_of(s.steps[i]))
        out += text("l{} requires l{}\n", i + 1, before + 1);
    out += "}\n";
  }
  return out;
}

}  // namespace tutti
