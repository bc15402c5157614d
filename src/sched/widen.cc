#include "sched/widen.hpp"

#include <algorithm>

#include "sched/contract.hpp"

namespace tutti {

namespace {

using Id = ScheduleBuilder::Id;

constexpr uint64_t most_pieces = 8;
constexpr uint64_t least_piece =
    16384;  // elements; shorter ones cost more steps than they save time

bool overlap(const Ref& a, const Ref& b) {
  return a.space == b.space && a.count != 0 && b.count != 0 && a.offset < b.offset + b.count &&
         b.offset < a.offset + a.count;
}

std::vector<Ref> pieces_of(const Ref& whole) {
  const uint64_t size = std::max(least_piece, (whole.count + most_pieces - 1) / most_pieces);
  std::vector<Ref> pieces;
  for (uint64_t at = 0; at < whole.count; at += size)
    pieces.push_back({whole.space, whole.offset + at, std::min(size, whole.count - at)});
  return pieces;
}

class Widening {
 public:
  Widening(const Problem& problem, Schedule& schedule)
      : problem_(problem),
        part_(std::move(schedule)),
        input_at_(part_.scratch_count),
        output_at_(input_at_ + part_.input_count),
        builder_(fresh(schedule, part_), part_.rank, part_.nranks) {
    schedule.wide_count = output_at_ + part_.output_count;
  }

  void append() {
    for (const Piece& piece : contribution(problem_, part_.rank, part_.nranks))
      for (const Ref& from : pieces_of(piece.where))
        loads_.push_back({from, shadow(from), builder_.copy(from, shadow(from), {})});
    for (const Step& step : part_.steps) id_of_.push_back(append(step));
    const uint64_t n = result_count(problem_, part_.rank, part_.nranks);
    for (const Ref& to : pieces_of({Space::output, 0, n})) store(to);
  }

 private:
  struct Load {
    Ref from, to;
    Id id;
  };

  static Schedule& fresh(Schedule& schedule, const Schedule& part) {
    schedule = Schedule{};
    schedule.input_count = part.input_count;
    schedule.output_count = part.output_count;
    return schedule;
  }

  // Where a range of the narrow schedule is kept.
  Ref shadow(const Ref& ref) const {
    const uint64_t base = ref.space == Space::input    ? input_at_
                          : ref.space == Space::output ? output_at_
                                                       : 0;
    return {Space::wide, base + ref.offset, ref.count};
  }

  Id append(const Step& step) {
    const Ref from = shadow(step.from), with = shadow(step.with), to = shadow(step.to);
    after_.clear();
    for (uint32_t before : part_.after_of(step)) after_.push_back(id_of_[before]);
    for (const Load& load : loads_)
      if (overlap(load.to, from) || overlap(load.to, with) || overlap(load.to, to))
        after_.push_back(load.id);
    return builder_.repeat(step, part_.groups, from, with, to, after_);
  }

  // Rounds a piece of the result, when all that writes it has, and all that reads what lies there.
  void store(const Ref& to) {
    after_.clear();
    for (size_t i = 0; i < part_.steps.size(); ++i)
      if (part_.steps[i].kind != StepKind::send && overlap(part_.steps[i].to, to))
        after_.push_back(id_of_[i]);
    for (const Load& load : loads_)
      if (overlap(load.from, to)) after_.push_back(load.id);
    builder_.copy(shadow(to), to, std::span<const Id>(after_));
  }

  const Problem& problem_;
  const Schedule part_;
  uint64_t input_at_, output_at_;  // of the shadows of input and output
  ScheduleBuilder builder_;
  std::vector<Load> loads_;
  std::vector<Id> id_of_, after_;
};

}  // namespace

void widen(const Problem& problem, Schedule& schedule) {
  Widening(problem, schedule).append();
}

}  // namespace tutti
