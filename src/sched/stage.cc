#include "sched/stage.hpp"

#include <algorithm>
#include <array>

namespace tutti {

namespace {

using Id = ScheduleBuilder::Id;
constexpr Id none = ScheduleBuilder::none;

// What a step does with a range. The CPU and the network need it in scratch; copies and group steps
// take it where it is.
enum class Need : uint8_t { scratch, either };

// Elements of the input or output that all steps treat alike: those between two ends of ranges.
struct Atom {
  bool in_scratch = false;
  bool on_device = true;
  Id load = none;            // the copy that brought it to scratch, if one did
  Id written = none;         // by the last step that wrote it
  bool needed_next = false;  // walking back: a step reads it in scratch before any writes it
};

// The input or output of a schedule.
class Side {
 public:
  void add(const Ref& ref) {
    cuts_.push_back(ref.offset);
    cuts_.push_back(ref.offset + ref.count);
  }
  void cut() {
    std::sort(cuts_.begin(), cuts_.end());
    cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
    reset();
  }
  void reset() { atoms_.assign(cuts_.size(), Atom{}); }

  size_t first(const Ref& ref) const { return at(ref.offset); }
  size_t last(const Ref& ref) const { return at(ref.offset + ref.count); }  // one behind
  std::span<Atom> atoms(const Ref& ref) {
    return std::span(atoms_).subspan(first(ref), last(ref) - first(ref));
  }
  std::vector<Atom>& atoms() { return atoms_; }
  uint64_t begin(size_t atom) const { return cuts_[atom]; }

  // Ranges that have a place in scratch; those that touch become one.
  void keep(const Ref& ref) { kept_.push_back({ref.offset, ref.offset + ref.count, 0}); }
  void give_places(ScheduleBuilder& builder) {
    std::sort(kept_.begin(), kept_.end(),
              [](const Run& a, const Run& b) { return a.begin < b.begin; });
    std::vector<Run> runs;
    for (const Run& run : kept_) {
      if (!runs.empty() && run.begin <= runs.back().end)
        runs.back().end = std::max(runs.back().end, run.end);
      else
        runs.push_back(run);
    }
    for (Run& run : runs) run.place = builder.scratch(run.end - run.begin).offset;
    kept_ = std::move(runs);
  }
  Ref place(const Ref& ref) const {
    const auto run = std::partition_point(kept_.begin(), kept_.end(),
                                          [&](const Run& r) { return r.end <= ref.offset; });
    return {Space::scratch, run->place + ref.offset - run->begin, ref.count};
  }

 private:
  struct Run {
    uint64_t begin, end, place;
  };
  size_t at(uint64_t offset) const {
    return static_cast<size_t>(std::lower_bound(cuts_.begin(), cuts_.end(), offset) -
                               cuts_.begin());
  }

  std::vector<uint64_t> cuts_;
  std::vector<Atom> atoms_;
  std::vector<Run> kept_;
};

class Stager {
 public:
  Stager(const Local& local, Schedule& schedule)
      : staged_{local.send_on_device, local.recv_on_device},
        part_(std::move(schedule)),
        builder_(fresh(schedule, part_), part_.rank, part_.nranks) {}

  void run() {
    for (const Step& step : part_.steps) {
      if (reads(step) && staged(step.from)) side(step.from).add(step.from);
      if (reads_two(step) && staged(step.with)) side(step.with).add(step.with);
      if (writes(step) && staged(step.to)) side(step.to).add(step.to);
    }
    for (Side& side : sides_) side.cut();
    find_needs();
    // Twice the same walk: the first finds which ranges scratch needs places for.
    walk();
    for (Side& side : sides_) {
      side.give_places(builder_);
      side.reset();
    }
    emits_ = true;
    walk();
    store_output();
  }

 private:
  static Schedule& fresh(Schedule& schedule, const Schedule& part) {
    schedule = Schedule{};
    schedule.input_count = part.input_count;
    schedule.output_count = part.output_count;
    schedule.scratch_count = part.scratch_count;
    schedule.wide_count = part.wide_count;
    return schedule;
  }

  bool staged(const Ref& ref) const {
    return ref.count != 0 && ((ref.space == Space::input && staged_[0]) ||
                              (ref.space == Space::output && staged_[1]));
  }
  Side& side(const Ref& ref) { return sides_[ref.space == Space::input ? 0 : 1]; }

  // What converts is the CPU.
  static Need need_of(const Step& step) {
    if (step.kind == StepKind::group) return Need::either;
    const bool converts = (step.from.space == Space::wide) != (step.to.space == Space::wide);
    return step.kind == StepKind::copy && !converts ? Need::either : Need::scratch;
  }

  static bool reads(const Step& step) { return step.kind != StepKind::recv; }
  static bool writes(const Step& step) { return step.kind != StepKind::send; }
  static bool reads_two(const Step& step) { return step.kind == StepKind::reduce; }

  // Whether what a step writes must lie in scratch, because a step reads it there.
  void find_needs() {
    writes_scratch_.assign(part_.steps.size(), false);
    const auto read = [this](const Ref& ref) {
      if (staged(ref))
        for (Atom& atom : side(ref).atoms(ref)) atom.needed_next = true;
    };
    for (size_t i = part_.steps.size(); i-- > 0;) {
      const Step& step = part_.steps[i];
      const bool in_scratch = need_of(step) == Need::scratch;
      if (writes(step) && staged(step.to)) {
        writes_scratch_[i] = in_scratch;
        for (Atom& atom : side(step.to).atoms(step.to)) {
          if (atom.needed_next) writes_scratch_[i] = true;
          atom.needed_next = false;
        }
      }
      if (reads(step) && in_scratch) read(step.from);
      if (reads_two(step)) read(step.with);
    }
    for (Side& side : sides_) side.reset();
  }

  void walk() {
    id_of_.clear();
    for (size_t i = 0; i < part_.steps.size(); ++i) {
      const Step& step = part_.steps[i];
      const Need need = need_of(step);
      after_.clear();
      const Ref from = reads(step) ? read(step.from, need) : step.from;
      const Ref with = reads_two(step) ? read(step.with, need) : step.with;
      const bool to_device = writes(step) && staged(step.to);
      const bool to_scratch = to_device && writes_scratch_[i];
      // What was loaded there is overwritten.
      if (to_scratch) wait_for_loads(step.to);
      const Ref to = to_scratch ? place(step.to) : step.to;
      id_of_.push_back(emits_ ? append(step, from, with, to) : none);
      if (!to_device) continue;
      for (Atom& atom : side(step.to).atoms(step.to))
        atom = {to_scratch, !to_scratch, none, id_of_.back(), false};
    }
  }

  Ref place(const Ref& ref) {
    Side& at = side(ref);
    if (emits_) return at.place(ref);
    at.keep(ref);
    return ref;
  }

  // Where a step finds what it reads.
  Ref read(const Ref& ref, Need need) {
    if (!staged(ref)) return ref;
    const std::span<Atom> atoms = side(ref).atoms(ref);
    if (need == Need::either &&
        std::all_of(atoms.begin(), atoms.end(), [](const Atom& atom) { return atom.on_device; }))
      return ref;
    const Ref to = place(ref);
    load(ref);
    wait_for_loads(ref);
    return to;
  }

  // Copies to scratch what of the range is not there.
  void load(const Ref& ref) {
    Side& at = side(ref);
    const size_t end = at.last(ref);
    for (size_t i = at.first(ref); i < end;) {
      size_t behind = i;
      std::vector<Id> after;
      while (behind < end && !at.atoms()[behind].in_scratch)
        after.push_back(at.atoms()[behind++].written);
      if (behind == i) {
        ++i;
        continue;
      }
      const Ref from{ref.space, at.begin(i), at.begin(behind) - at.begin(i)};
      const Id id = emits_ ? builder_.copy(from, at.place(from), std::span<const Id>(after)) : none;
      for (; i < behind; ++i) {
        at.atoms()[i].in_scratch = true;
        at.atoms()[i].load = id;
      }
    }
  }

  void wait_for_loads(const Ref& ref) {
    for (const Atom& atom : side(ref).atoms(ref))
      if (after_.empty() || after_.back() != atom.load) after_.push_back(atom.load);
  }

  Id append(const Step& step, const Ref& from, const Ref& with, const Ref& to) {
    for (uint32_t before : part_.after_of(step)) after_.push_back(id_of_[before]);
    return builder_.repeat(step, part_.groups, from, with, to, after_);
  }

  // What scratch alone holds of the result, each part as soon as it is written.
  void store_output() {
    Side& output = sides_[1];
    std::vector<Atom>& atoms = output.atoms();
    for (size_t i = 0; i + 1 < atoms.size();) {
      size_t behind = i;
      while (behind + 1 < atoms.size() && !atoms[behind].on_device &&
             atoms[behind].written == atoms[i].written)
        ++behind;
      if (behind == i) {
        ++i;
        continue;
      }
      const Ref to{Space::output, output.begin(i), output.begin(behind) - output.begin(i)};
      const std::array<Id, 1> after = {atoms[i].written};
      builder_.copy(output.place(to), to, std::span<const Id>(after));
      i = behind;
    }
  }

  std::array<bool, 2> staged_;  // input, output
  const Schedule part_;
  ScheduleBuilder builder_;
  std::array<Side, 2> sides_;
  bool emits_ = false;
  std::vector<bool> writes_scratch_;  // per step
  std::vector<Id> id_of_, after_;
};

}  // namespace

void stage(const Local& local, Schedule& schedule) {
  if (local.send_on_device || local.recv_on_device) Stager(local, schedule).run();
}

}  // namespace tutti
