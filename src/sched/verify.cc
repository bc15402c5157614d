#include "sched/verify.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <unordered_map>
#include <vector>

#include "base/text.hpp"
#include "sched/contract.hpp"

namespace tutti {

const char* name(Rule rule) {
  constexpr std::array<const char*, rule_count> names = {
      "form",      "bounds",        "shape",        "message",   "race",
      "deadlock",  "uninitialized", "contribution", "order",     "same_bits",
      "untouched", "group",         "barrier",      "precision", "placement"};
  return names[static_cast<size_t>(rule)];
}

namespace {

using Bits = std::vector<uint64_t>;

size_t words(size_t bits) {
  return (bits + 63) / 64;
}
bool test(const uint64_t* bits, size_t at) {
  return (bits[at / 64] >> (at % 64) & 1) != 0;
}
void set(uint64_t* bits, size_t at) {
  bits[at / 64] |= uint64_t{1} << (at % 64);
}

// Thrown by the checks below, caught in verify(): it ends the proof from any depth.
struct Fault {
  Rule rule;
  std::string text;
};

template <class... Args>
[[noreturn]] void fail(Rule rule, fmt::format_string<Args...> format, Args&&... args) {
  throw Fault{rule, vtext(format, fmt::make_format_args(args...))};
}

// Expressions over the ranks' contributions, hash-consed: equal numbers mean equal expressions.
// Numbers below nranks are the contributions themselves.
class Terms {
 public:
  struct Term {
    int32_t first, last, size;  // lowest and highest rank, number of ranks
    bool rounded = false;       // from fp32 to 16 bits, or in 16 bits all along
  };
  enum class Join { fine, overlap, order, rounded };

  explicit Terms(int nranks) : words_(words(static_cast<size_t>(nranks))) {
    for (int r = 0; r < nranks; ++r) {
      terms_.push_back({r, r, 1, false});
      sets_.resize(sets_.size() + words_);
      set(&sets_[sets_.size() - words_], static_cast<size_t>(r));
    }
  }

  const Term& operator[](uint32_t term) const { return terms_[term]; }

  // op(lower, higher).
  Join join(uint32_t lower, uint32_t higher, bool commutative, uint32_t* joined) {
    auto [at, fresh] = known_.try_emplace(uint64_t{lower} << 32 | higher, 0);
    if (!fresh) {
      *joined = at->second;
      return Join::fine;
    }
    for (size_t w = 0; w < words_; ++w)
      if ((sets_[lower * words_ + w] & sets_[higher * words_ + w]) != 0) {
        known_.erase(at);
        return Join::overlap;
      }
    const Term a = terms_[lower], b = terms_[higher];
    if (a.rounded || b.rounded) {
      known_.erase(at);
      return Join::rounded;
    }
    const bool whole = a.last - a.first + 1 == a.size && b.last - b.first + 1 == b.size;
    if (b.first < a.first || (!commutative && (!whole || a.last + 1 != b.first))) {
      known_.erase(at);
      return Join::order;
    }
    *joined = static_cast<uint32_t>(terms_.size());
    at->second = *joined;
    terms_.push_back({a.first, std::max(a.last, b.last), a.size + b.size, false});
    sets_.resize(sets_.size() + words_);
    for (size_t w = 0; w < words_; ++w)
      sets_[*joined * words_ + w] = sets_[lower * words_ + w] | sets_[higher * words_ + w];
    return Join::fine;
  }

  // The same in 16 bits. What a rank contributed is exact in them.
  uint32_t round(uint32_t term) {
    const Term whole = terms_[term];
    if (whole.size == 1 || whole.rounded) return term;
    auto [at, fresh] = rounded_.try_emplace(term, static_cast<uint32_t>(terms_.size()));
    if (!fresh) return at->second;
    terms_.push_back({whole.first, whole.last, whole.size, true});
    sets_.resize(sets_.size() + words_);
    for (size_t w = 0; w < words_; ++w)
      sets_[(terms_.size() - 1) * words_ + w] = sets_[term * words_ + w];
    return at->second;
  }

 private:
  size_t words_;
  std::vector<Term> terms_;
  std::vector<uint64_t> sets_;
  std::unordered_map<uint64_t, uint32_t> known_;
  std::unordered_map<uint32_t, uint32_t> rounded_;
};

// Elements [begin, end) hold `term` of index begin + delta (modulo 2^64) onwards.
struct Segment {
  uint64_t begin, end;
  uint32_t term;
  uint64_t delta;
  bool joins(const Segment& next) const {
    return end == next.begin && term == next.term && delta == next.delta;
  }
  friend bool operator==(const Segment&, const Segment&) = default;
};

// What one space of one rank holds. Sorted, apart, neighbours merged; gaps were never written.
class Memory {
 public:
  // Appends what [begin, end) holds, shifted so that `begin` becomes `origin`. False if part of it
  // was never written.
  bool read(uint64_t begin, uint64_t end, uint64_t origin, std::vector<Segment>& out) const {
    auto at = std::partition_point(segments_.begin(), segments_.end(),
                                   [&](const Segment& s) { return s.end <= begin; });
    uint64_t reached = begin;
    const uint64_t shift = origin - begin;
    for (; at != segments_.end() && at->begin < end; ++at) {
      if (at->begin > reached) return false;
      uint64_t upto = std::min(end, at->end);
      out.push_back({reached + shift, upto + shift, at->term, at->delta - shift});
      reached = upto;
    }
    return reached >= end;
  }

  void write(uint64_t begin, uint64_t end, std::span<const Segment> values) {
    std::vector<Segment>& next = spare_;
    next.clear();
    auto put = [&](const Segment& s) {
      if (!next.empty() && next.back().joins(s))
        next.back().end = s.end;
      else
        next.push_back(s);
    };
    auto at = segments_.begin();
    for (; at != segments_.end() && at->end <= begin; ++at) put(*at);
    if (at != segments_.end() && at->begin < begin) put({at->begin, begin, at->term, at->delta});
    for (const Segment& value : values) put(value);
    for (; at != segments_.end() && at->end <= end; ++at) {
    }
    if (at != segments_.end() && at->begin < end) {
      put({end, at->end, at->term, at->delta});
      ++at;
    }
    for (; at != segments_.end(); ++at) put(*at);
    segments_.swap(next);
  }

  const std::vector<Segment>& segments() const { return segments_; }

 private:
  std::vector<Segment> segments_;
  std::vector<Segment> spare_;
};

// The ranges a step reads and writes.
struct Touch {
  Ref range;
  uint32_t step;
  bool writes;
};

int touches(const Step& step, uint32_t number, Touch* out) {
  int n = 0;
  auto add = [&](const Ref& range, bool writes) {
    if (range.count != 0) out[n++] = {range, number, writes};
  };
  switch (step.kind) {
    case StepKind::send:
      add(step.from, false);
      break;
    case StepKind::recv:
      add(step.to, true);
      break;
    case StepKind::reduce:
      add(step.with, false);
      [[fallthrough]];
    case StepKind::copy:
    case StepKind::group:
      add(step.from, false);
      add(step.to, true);
      break;
  }
  return n;
}

const char* space_name(Space space) {
  constexpr std::array names = {"input", "output", "scratch", "wide"};
  return names[static_cast<size_t>(space)];
}

std::string text_of(const Ref& ref) {
  return text("{}[{}, {})", space_name(ref.space), ref.offset, ref.offset + ref.count);
}

// One end of a message, or one member's step of a group operation.
struct Key {
  uint64_t pair;  // sender, receiver; or number of the contract
  uint32_t tag;
  int32_t rank;
  uint32_t step;
  friend auto operator<=>(const Key&, const Key&) = default;
};

// A step of some rank.
struct At {
  int32_t rank = -1;
  uint32_t step = 0;
};

class Proof {
 public:
  Proof(std::span<const Problem> problems, std::span<const Schedule> schedules)
      : problems_(problems),
        schedules_(schedules),
        nranks_(static_cast<int>(schedules.size())),
        terms_(nranks_) {}

  void run() {
    const Agreed& agreed = problems_[0].agreed;
    commutative_ = agreed.op != Op::user || agreed.commutative;
    combines_ = reduces(agreed.coll);
    knows_ = agreed.coll == Coll::barrier;
    wide_ = agreed.wide;
    for (int r = 0; r < nranks_; ++r) check_form(r);
    match_messages();
    match_groups();
    for (int r = 0; r < nranks_; ++r) check_races(r);
    load();
    simulate();
    for (int r = 0; r < nranks_; ++r) check_output(r);
    if (replicated(agreed.coll)) check_same_bits();
    if (knows_) check_barrier();
  }

 private:
  const Schedule& of(int rank) const { return schedules_[static_cast<size_t>(rank)]; }
  Memory& memory(int rank, Space space) {
    return memory_[static_cast<size_t>(rank) * space_count + static_cast<size_t>(space)];
  }
  size_t global(int rank, uint32_t step) const { return first_[static_cast<size_t>(rank)] + step; }

  // Form, bounds and shapes of every step by itself.
  void check_form(int rank) {
    const Schedule& s = of(rank);
    const Extent size = extent(problems_[static_cast<size_t>(rank)], rank, nranks_);
    if (s.rank != rank || s.nranks != nranks_)
      fail(Rule::form, "schedule of rank {} of {} is in the place of rank {} of {}", s.rank,
           s.nranks, rank, nranks_);
    if (s.input_count != size.input || s.output_count != size.output)
      fail(Rule::form, "rank {}: input and output are {} and {} long, the call has {} and {}", rank,
           s.input_count, s.output_count, size.input, size.output);
    for (uint32_t i = 0; i < s.steps.size(); ++i) check_step(s, i);
  }

  void check_step(const Schedule& s, uint32_t i) {
    const Step& step = s.steps[i];
    const bool message = step.kind == StepKind::send || step.kind == StepKind::recv;
    if (message && (step.peer < 0 || step.peer >= nranks_ || step.peer == s.rank))
      fail(Rule::form, "rank {} step {}: peer {} of {} ranks", s.rank, i, step.peer, nranks_);
    if (step.tag >= tag_limit) fail(Rule::form, "rank {} step {}: tag {}", s.rank, i, step.tag);
    if (uint64_t{step.after_begin} + step.after_count > s.after.size())
      fail(Rule::form, "rank {} step {}: its after list runs out of the schedule", s.rank, i);
    for (uint32_t before : s.after_of(step))
      if (before >= i) fail(Rule::form, "rank {} step {} comes after step {}", s.rank, i, before);
    for (const Ref& ref : {step.from, step.with, step.to}) check_bounds(s, i, ref);
    check_shape(s, i);
    check_placement(s, i);
  }

  void check_bounds(const Schedule& s, uint32_t i, const Ref& ref) {
    const uint64_t sizes[] = {s.input_count, s.output_count, s.scratch_count, s.wide_count};
    const uint64_t size = sizes[static_cast<size_t>(ref.space)];
    if (ref.count != 0 && (ref.offset > size || ref.count > size - ref.offset))
      fail(Rule::bounds, "rank {} step {}: {} of {} elements", s.rank, i, text_of(ref), size);
  }

  static bool is_wide(const Ref& ref) { return ref.space == Space::wide && ref.count != 0; }

  static bool partly_overlap(const Ref& a, const Ref& b) {
    return a.space == b.space && !(a == b) && a.offset < b.offset + b.count &&
           b.offset < a.offset + a.count;
  }

  void check_shape(const Schedule& s, uint32_t i) {
    const Step& step = s.steps[i];
    const bool two = step.kind == StepKind::reduce;
    if (step.kind != StepKind::send && step.to.count != 0 && step.to.space == Space::input)
      fail(Rule::shape, "rank {} step {} writes {}", s.rank, i, text_of(step.to));
    if (step.kind != StepKind::copy && !two) return;
    if (step.from.count != step.to.count || (two && step.with.count != step.to.count))
      fail(Rule::shape, "rank {} step {}: operands of {}, {} and {} elements", s.rank, i,
           step.from.count, two ? step.with.count : step.from.count, step.to.count);
    if (partly_overlap(step.from, step.to) || (two && partly_overlap(step.with, step.to)))
      fail(Rule::shape, "rank {} step {}: an operand partly overlaps {}", s.rank, i,
           text_of(step.to));
    if (two && !combines_)
      fail(Rule::shape, "rank {} step {} reduces in a collective that moves", s.rank, i);
    if (two && (is_wide(step.from) != is_wide(step.to) || is_wide(step.with) != is_wide(step.to)))
      fail(Rule::precision, "rank {} step {} reduces {} and {} to {}", s.rank, i,
           text_of(step.from), text_of(step.with), text_of(step.to));
  }

  void check_placement(const Schedule& s, uint32_t i) {
    const Step& step = s.steps[i];
    const Local& local = problems_[static_cast<size_t>(s.rank)].local;
    if (step.kind == StepKind::group) return;
    if (step.kind == StepKind::copy && is_wide(step.from) == is_wide(step.to)) return;
    Touch touched[3];
    for (int t = touches(step, i, touched); t-- > 0;) {
      const Ref& ref = touched[t].range;
      if ((ref.space == Space::input && local.send_on_device) ||
          (ref.space == Space::output && local.recv_on_device))
        fail(Rule::placement, "rank {} step {} touches {}, which is on a device", s.rank, i,
             text_of(ref));
    }
  }

  // Gives every send its receive.
  void match_messages() {
    first_.assign(1, 0);
    for (int r = 0; r < nranks_; ++r) first_.push_back(first_.back() + of(r).steps.size());
    partner_.assign(first_.back(), At{});
    std::vector<Key> sends, recvs;
    for (int r = 0; r < nranks_; ++r) {
      const auto& steps = of(r).steps;
      for (uint32_t i = 0; i < steps.size(); ++i) {
        const Step& step = steps[i];
        auto self = static_cast<uint64_t>(r), peer = static_cast<uint64_t>(step.peer);
        if (step.kind == StepKind::send) sends.push_back({self << 32 | peer, step.tag, r, i});
        if (step.kind == StepKind::recv) recvs.push_back({peer << 32 | self, step.tag, r, i});
      }
    }
    std::sort(sends.begin(), sends.end());
    std::sort(recvs.begin(), recvs.end());
    check_unique(sends, "sends");
    check_unique(recvs, "receives");
    for (size_t k = 0; k < std::max(sends.size(), recvs.size()); ++k) pair_up(sends, recvs, k);
  }

  void check_unique(const std::vector<Key>& keys, const char* what) {
    for (size_t k = 1; k < keys.size(); ++k)
      if (keys[k].pair == keys[k - 1].pair && keys[k].tag == keys[k - 1].tag)
        fail(Rule::message, "rank {}: steps {} and {} are two {} with tag {}", keys[k].rank,
             keys[k - 1].step, keys[k].step, what, keys[k].tag);
  }

  void pair_up(const std::vector<Key>& sends, const std::vector<Key>& recvs, size_t k) {
    auto rank_key = [](const Key& key) { return std::pair(key.pair, key.tag); };
    if (k >= recvs.size() || (k < sends.size() && rank_key(sends[k]) < rank_key(recvs[k])))
      fail(Rule::message, "rank {} step {}: nobody receives it (tag {})", sends[k].rank,
           sends[k].step, sends[k].tag);
    if (k >= sends.size() || rank_key(recvs[k]) < rank_key(sends[k]))
      fail(Rule::message, "rank {} step {}: nobody sends it (tag {})", recvs[k].rank, recvs[k].step,
           recvs[k].tag);
    const Key &send = sends[k], &recv = recvs[k];
    const uint64_t sent = of(send.rank).steps[send.step].from.count;
    const uint64_t room = of(recv.rank).steps[recv.step].to.count;
    if (sent != room)
      fail(Rule::message, "rank {} step {} sends {} elements, rank {} step {} receives {}",
           send.rank, send.step, sent, recv.rank, recv.step, room);
    if (is_wide(of(send.rank).steps[send.step].from) != is_wide(of(recv.rank).steps[recv.step].to))
      fail(Rule::precision, "rank {} step {} sends {}, rank {} step {} receives {}", send.rank,
           send.step, text_of(of(send.rank).steps[send.step].from), recv.rank, recv.step,
           text_of(of(recv.rank).steps[recv.step].to));
    partner_[global(send.rank, send.step)] = {recv.rank, recv.step};
    partner_[global(recv.rank, recv.step)] = {send.rank, send.step};
  }

  // Gathers group steps of equal contract and tag into operations.
  void match_groups() {
    std::vector<const Group*> contracts;
    std::vector<Key> keys;
    for (int r = 0; r < nranks_; ++r) {
      const Schedule& s = of(r);
      for (uint32_t i = 0; i < s.steps.size(); ++i) {
        const Step& step = s.steps[i];
        if (step.kind != StepKind::group) continue;
        if (step.peer < 0 || static_cast<size_t>(step.peer) >= s.groups.size())
          fail(Rule::group, "rank {} step {}: group {} of {}", r, i, step.peer, s.groups.size());
        const Group& group = s.groups[static_cast<size_t>(step.peer)];
        auto at = std::find_if(contracts.begin(), contracts.end(),
                               [&](const Group* known) { return *known == group; });
        if (at == contracts.end()) at = contracts.insert(at, &group);
        keys.push_back({static_cast<uint64_t>(at - contracts.begin()), step.tag, r, i});
      }
    }
    std::sort(keys.begin(), keys.end());
    operation_of_.assign(first_.back(), 0);
    for (const Key& key : keys) {
      if (operations_.empty() || operations_.back().contract != contracts[key.pair] ||
          operations_.back().tag != key.tag)
        operations_.push_back({contracts[key.pair], key.tag, {}, 0});
      operations_.back().steps.push_back({key.rank, key.step});
      operation_of_[global(key.rank, key.step)] = operations_.size() - 1;
    }
    for (Operation& operation : operations_) check_group(operation);
  }

  struct Operation {
    const Group* contract;
    uint32_t tag;
    std::vector<At> steps;  // first by rank, then in the order of members
    size_t started;
  };

  const Step& step_of(const At& at) const { return of(at.rank).steps[at.step]; }

  void check_group(Operation& operation) {
    const Group& group = *operation.contract;
    std::vector<At> ordered;
    for (int32_t member : group.members)
      for (const At& at : operation.steps)
        if (at.rank == member) ordered.push_back(at);
    if (ordered.size() != group.members.size() || operation.steps.size() != ordered.size())
      fail(Rule::group, "a group {} of {} members with tag {} is entered by {} steps",
           name(group.coll), group.members.size(), operation.tag, operation.steps.size());
    operation.steps = ordered;
    uint64_t from = 0, to = 0;
    for (const At& at : ordered) {
      from += step_of(at).from.count;
      to += step_of(at).to.count;
    }
    const int root = group.root;
    const bool rooted = group.coll == Coll::bcast || group.coll == Coll::reduce;
    if (rooted && (root < 0 || static_cast<size_t>(root) >= ordered.size()))
      fail(Rule::group, "a group {} has root {} of {}", name(group.coll), root, ordered.size());
    uint64_t place = 0;  // of the member's part in the whole
    for (const At& at : ordered) {
      const Step& step = step_of(at);
      const bool is_root = rooted && &at == &ordered[static_cast<size_t>(root)];
      const uint64_t whole = rooted ? step_of(ordered[static_cast<size_t>(root)]).from.count : 0;
      bool fits = false;
      switch (group.coll) {
        case Coll::allreduce:
          fits = step.from.count == step.to.count && step.to.count * ordered.size() == to;
          break;
        case Coll::reduce_scatter:
          fits = step.from.count == to;
          break;
        case Coll::allgather:
          fits = step.to.count == from;
          break;
        case Coll::bcast:
          fits = step.to.count == whole && (is_root || step.from.count == 0);
          break;
        case Coll::reduce:
          fits = step.from.count == whole && step.to.count == (is_root ? whole : 0);
          break;
        case Coll::barrier:
          fits = step.from.count == 0 && step.to.count == 0;
          break;
        default:
          fail(Rule::group, "no group step performs {}", name(group.coll));
      }
      if (!group.counts.empty())
        fits = fits && group.counts.size() == ordered.size() &&
               group.counts[static_cast<size_t>(&at - ordered.data())] ==
                   (group.coll == Coll::allgather ? step.from.count : step.to.count);
      if (!fits)
        fail(Rule::group, "rank {} step {}: {} to {} does not fit a group {} of {} members",
             at.rank, at.step, text_of(step.from), text_of(step.to), name(group.coll),
             ordered.size());
      check_group_overlap(at, group.coll, place);
      place += group.coll == Coll::reduce_scatter ? step.to.count : step.from.count;
    }
  }

  // A part may lie in the whole, but only in its own place.
  void check_group_overlap(const At& at, Coll coll, uint64_t place) {
    const Step& step = step_of(at);
    if (!partly_overlap(step.from, step.to)) return;
    const bool scatters = coll == Coll::reduce_scatter;
    const Ref &whole = scatters ? step.from : step.to, &part = scatters ? step.to : step.from;
    if ((scatters || coll == Coll::allgather) && part.offset == whole.offset + place) return;
    fail(Rule::shape, "rank {} step {}: {} overlaps {}", at.rank, at.step, text_of(step.from),
         text_of(step.to));
  }

  // No two unordered steps on one range with a writer.
  void check_races(int rank) {
    const Schedule& s = of(rank);
    const size_t n = s.steps.size(), width = words(n);
    Bits before(n * width);
    std::vector<Touch> all;
    for (uint32_t i = 0; i < n; ++i) {
      uint64_t* mine = &before[i * width];
      for (uint32_t b : s.after_of(s.steps[i])) {
        const uint64_t* theirs = &before[b * width];
        for (size_t w = 0; w <= b / 64; ++w) mine[w] |= theirs[w];
        set(mine, b);
      }
      std::array<Touch, 3> some;
      int count = touches(s.steps[i], i, some.data());
      all.insert(all.end(), some.begin(), some.begin() + count);
    }
    std::sort(all.begin(), all.end(), [](const Touch& a, const Touch& b) {
      return std::tie(a.range.space, a.range.offset) < std::tie(b.range.space, b.range.offset);
    });
    for (size_t i = 0; i < all.size(); ++i)
      for (size_t j = i + 1; j < all.size(); ++j) {
        const Touch &a = all[i], &b = all[j];
        if (b.range.space != a.range.space || b.range.offset >= a.range.offset + a.range.count)
          break;
        if ((!a.writes && !b.writes) || a.step == b.step) continue;
        auto [first, second] = std::minmax(a.step, b.step);
        if (!test(&before[second * width], first))
          fail(Rule::race, "rank {}: steps {} and {} are not ordered, and {} and {} overlap", rank,
               first, second, text_of(a.range), text_of(b.range));
      }
  }

  // What lies in memory before the call.
  void load() {
    memory_.resize(static_cast<size_t>(nranks_) * space_count);
    for (int r = 0; r < nranks_; ++r)
      for (const Piece& piece : contribution(problems_[static_cast<size_t>(r)], r, nranks_)) {
        if (piece.where.count == 0) continue;
        Segment segment{piece.where.offset, piece.where.offset + piece.where.count,
                        static_cast<uint32_t>(r), piece.index - piece.where.offset};
        memory(r, piece.where.space).write(segment.begin, segment.end, {&segment, 1});
      }
    for (int r = 0; r < nranks_; ++r) before_.push_back(memory(r, Space::output).segments());
  }

  // Runs the steps; a send ends when its receive has started.
  void simulate() {
    waits_.resize(first_.back());
    started_.assign(first_.back(), false);
    followers_.resize(first_.back());
    if (knows_) known_.assign(first_.back(), Bits(words(static_cast<size_t>(nranks_))));
    std::vector<At> ready;
    for (int r = 0; r < nranks_; ++r) {
      const Schedule& s = of(r);
      for (uint32_t i = 0; i < s.steps.size(); ++i) {
        waits_[global(r, i)] = s.steps[i].after_count;
        for (uint32_t b : s.after_of(s.steps[i])) followers_[global(r, b)].push_back(i);
        if (s.steps[i].after_count == 0) ready.push_back({r, i});
      }
    }
    size_t finished = 0;
    while (!ready.empty()) {
      At at = ready.back();
      ready.pop_back();
      finished += start(at, ready);
    }
    if (finished != first_.back()) report_deadlock();
  }

  // Starts a step; returns how many steps have finished by it and puts their followers into
  // `ready`.
  size_t start(const At& at, std::vector<At>& ready) {
    const size_t id = global(at.rank, at.step);
    const Step& step = step_of(at);
    started_[id] = true;
    if (knows_) {
      set(known_[id].data(), static_cast<size_t>(at.rank));
      for (uint32_t b : of(at.rank).after_of(step)) learn(id, global(at.rank, b));
    }
    switch (step.kind) {
      case StepKind::copy:
      case StepKind::reduce:
        step.kind == StepKind::copy ? copy(at, at.rank, step.from, step.to) : combine(at);
        finish(at, ready);
        return 1;
      case StepKind::send:
      case StepKind::recv: {
        const At other = partner_[id];
        if (!started_[global(other.rank, other.step)]) return 0;
        const At sender = step.kind == StepKind::send ? at : other;
        const At receiver = step.kind == StepKind::send ? other : at;
        copy(sender, receiver.rank, step_of(sender).from, step_of(receiver).to);
        if (knows_) learn(global(receiver.rank, receiver.step), global(sender.rank, sender.step));
        finish(at, ready);
        finish(other, ready);
        return 2;
      }
      case StepKind::group: {
        Operation& operation = operations_[operation_of_[id]];
        if (++operation.started != operation.steps.size()) return 0;
        perform(operation);
        if (knows_) share(operation);
        for (const At& member : operation.steps) finish(member, ready);
        return operation.steps.size();
      }
    }
    return 0;
  }

  void finish(const At& at, std::vector<At>& ready) {
    for (uint32_t next : followers_[global(at.rank, at.step)])
      if (--waits_[global(at.rank, next)] == 0) ready.push_back({at.rank, next});
  }

  void learn(size_t id, size_t from) {
    for (size_t w = 0; w < known_[id].size(); ++w) known_[id][w] |= known_[from][w];
  }

  void share(const Operation& operation) {
    const size_t head = global(operation.steps[0].rank, operation.steps[0].step);
    for (const At& at : operation.steps) learn(head, global(at.rank, at.step));
    for (const At& at : operation.steps) learn(global(at.rank, at.step), head);
  }

  void fetch(const At& at, const Ref& range, uint64_t origin, std::vector<Segment>& out) {
    if (range.count != 0 &&
        !memory(at.rank, range.space).read(range.offset, range.offset + range.count, origin, out))
      fail(Rule::uninitialized, "rank {} step {} reads {}, part of which nothing has written",
           at.rank, at.step, text_of(range));
  }

  void copy(const At& reader, int to_rank, const Ref& from, const Ref& to) {
    if (from.count == 0) return;
    values_.clear();
    fetch(reader, from, to.offset, values_);
    put(to_rank, to);
  }

  void combine(const At& at) {
    const Step& step = step_of(at);
    lower_.clear();
    higher_.clear();
    fetch(at, step.from, step.to.offset, lower_);
    fetch(at, step.with, step.to.offset, higher_);
    join(at, lower_, higher_, values_);
    put(at.rank, step.to);
  }

  // Writes values_; partial results that belong into fp32 are rounded elsewhere.
  void put(int rank, const Ref& to) {
    if (wide_ && to.space != Space::wide)
      for (Segment& value : values_) value.term = terms_.round(value.term);
    memory(rank, to.space).write(to.offset, to.offset + to.count, values_);
  }

  // values = op(lower, higher), segment by segment.
  void join(const At& at, const std::vector<Segment>& lower, const std::vector<Segment>& higher,
            std::vector<Segment>& values) {
    values.clear();
    for (size_t a = 0, b = 0; a < lower.size() && b < higher.size();) {
      const Segment &l = lower[a], &h = higher[b];
      const uint64_t begin = std::max(l.begin, h.begin), end = std::min(l.end, h.end);
      if (l.delta != h.delta)
        fail(Rule::contribution, "rank {} step {} combines elements {} and {}", at.rank, at.step,
             begin + l.delta, begin + h.delta);
      Segment value{begin, end, 0, l.delta};
      switch (terms_.join(l.term, h.term, commutative_, &value.term)) {
        case Terms::Join::fine:
          break;
        case Terms::Join::overlap:
          fail(Rule::contribution, "rank {} step {} adds a rank's contribution twice", at.rank,
               at.step);
        case Terms::Join::rounded:
          fail(Rule::precision, "rank {} step {} combines what was rounded to 16 bits", at.rank,
               at.step);
        case Terms::Join::order:
          fail(Rule::order, "rank {} step {}: op(ranks {}..{}, ranks {}..{})", at.rank, at.step,
               terms_[l.term].first, terms_[l.term].last, terms_[h.term].first,
               terms_[h.term].last);
      }
      values.push_back(value);
      if (l.end == end) ++a;
      if (h.end == end) ++b;
    }
  }

  // The contract of a group step, all members at once. Reductions fold the parts in members' order.
  void perform(const Operation& operation) {
    const Group& group = *operation.contract;
    const auto& steps = operation.steps;
    std::vector<Segment> whole;
    const bool folds = group.coll == Coll::allreduce || group.coll == Coll::reduce ||
                       group.coll == Coll::reduce_scatter;
    if (folds && !combines_)
      fail(Rule::shape, "rank {} step {} reduces in a collective that moves", steps[0].rank,
           steps[0].step);
    if (folds) {
      fetch(steps[0], step_of(steps[0]).from, 0, whole);
      for (size_t m = 1; m < steps.size(); ++m) {
        higher_.clear();
        fetch(steps[m], step_of(steps[m]).from, 0, higher_);
        join(steps[m], whole, higher_, values_);
        whole = values_;
      }
    } else if (group.coll == Coll::bcast) {
      const At& root = steps[static_cast<size_t>(group.root)];
      fetch(root, step_of(root).from, 0, whole);
    } else {
      uint64_t at = 0;
      for (const At& member : steps) {
        fetch(member, step_of(member).from, at, whole);
        at += step_of(member).from.count;
      }
    }
    uint64_t taken = 0;
    Memory all;
    if (!whole.empty()) all.write(0, whole.back().end, whole);
    for (const At& member : steps) {
      const Ref& to = step_of(member).to;
      if (to.count == 0) continue;
      const uint64_t from = group.coll == Coll::reduce_scatter ? taken : 0;
      values_.clear();
      if (!all.read(from, from + to.count, to.offset, values_))
        fail(Rule::group, "rank {} step {}: the group has nothing for {}", member.rank, member.step,
             text_of(to));
      put(member.rank, to);
      taken += to.count;
    }
  }

  [[noreturn]] void report_deadlock() {
    for (int r = 0; r < nranks_; ++r)
      for (uint32_t i = 0; i < of(r).steps.size(); ++i) {
        const At other = partner_[global(r, i)];
        if (!started_[global(r, i)] || other.rank < 0) continue;
        if (!started_[global(other.rank, other.step)])
          fail(Rule::deadlock, "rank {} step {} waits for ever for rank {} step {}", r, i,
               other.rank, other.step);
      }
    fail(Rule::deadlock, "a group is never complete");
  }

  void check_output(int rank) {
    const Memory& output = memory(rank, Space::output);
    std::vector<Piece> pieces = expectation(problems_, rank);
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& a, const Piece& b) { return a.where.offset < b.where.offset; });
    uint64_t reached = 0;
    for (const Piece& piece : pieces) {
      if (piece.where.count == 0) continue;
      check_untouched(rank, reached, piece.where.offset);
      check_piece(rank, output, piece);
      reached = piece.where.offset + piece.where.count;
    }
    check_untouched(rank, reached, of(rank).output_count);
  }

  void check_piece(int rank, const Memory& output, const Piece& piece) {
    const uint64_t begin = piece.where.offset, end = begin + piece.where.count;
    values_.clear();
    if (!output.read(begin, end, begin, values_))
      fail(Rule::contribution, "rank {}: part of {} is never written", rank, text_of(piece.where));
    for (const Segment& value : values_) {
      const Terms::Term& term = terms_[value.term];
      if (term.first != piece.first || term.last != piece.last ||
          term.size != piece.last - piece.first + 1)
        fail(Rule::contribution,
             "rank {}: output[{}, {}) has {} of the ranks {}..{}, not all of {}..{}", rank,
             value.begin, value.end, term.size, term.first, term.last, piece.first, piece.last);
      if (value.delta != piece.index - begin)
        fail(Rule::contribution, "rank {}: output[{}, {}) has elements from {} on, not from {}",
             rank, value.begin, value.end, value.begin + value.delta,
             value.begin + piece.index - begin);
    }
  }

  // Elements [begin, end) of the output hold what they held before the call.
  void check_untouched(int rank, uint64_t begin, uint64_t end) {
    if (begin >= end) return;
    auto clip = [&](const std::vector<Segment>& segments) {
      std::vector<Segment> inside;
      for (const Segment& s : segments)
        if (s.begin < end && begin < s.end)
          inside.push_back({std::max(s.begin, begin), std::min(s.end, end), s.term, s.delta});
      return inside;
    };
    if (clip(before_[static_cast<size_t>(rank)]) != clip(memory(rank, Space::output).segments()))
      fail(Rule::untouched, "rank {}: output[{}, {}) is no part of the result but changes", rank,
           begin, end);
  }

  void check_same_bits() {
    const std::vector<Segment>& model = memory(0, Space::output).segments();
    for (int r = 1; r < nranks_; ++r)
      if (memory(r, Space::output).segments() != model)
        fail(Rule::same_bits, "rank {} reduces in another order than rank 0", r);
  }

  void check_barrier() {
    for (int r = 0; r < nranks_; ++r) {
      Bits all(words(static_cast<size_t>(nranks_)));
      for (uint32_t i = 0; i < of(r).steps.size(); ++i)
        for (size_t w = 0; w < all.size(); ++w) all[w] |= known_[global(r, i)][w];
      set(all.data(), static_cast<size_t>(r));
      for (int other = 0; other < nranks_; ++other)
        if (!test(all.data(), static_cast<size_t>(other)))
          fail(Rule::barrier, "rank {} may leave before rank {} has entered", r, other);
    }
  }

  std::span<const Problem> problems_;
  std::span<const Schedule> schedules_;
  int nranks_;
  bool commutative_ = true;
  bool combines_ = false;
  bool wide_ = false;   // whether partial results must stay fp32
  bool knows_ = false;  // whether to follow who has heard of whom (barrier)
  Terms terms_;
  std::vector<size_t> first_;  // number of a rank's first step among all steps
  std::vector<At> partner_;
  std::vector<Operation> operations_;
  std::vector<size_t> operation_of_;
  std::vector<Memory> memory_;
  std::vector<std::vector<Segment>> before_;
  std::vector<uint32_t> waits_;
  std::vector<char> started_;
  std::vector<std::vector<uint32_t>> followers_;
  std::vector<Bits> known_;
  std::vector<Segment> values_, lower_, higher_;
};

}  // namespace

Verdict verify(std::span<const Problem> problems, std::span<const Schedule> schedules) {
  if (schedules.empty() || problems.size() != schedules.size())
    return {false, Rule::form,
            text("{} problems, {} schedules", problems.size(), schedules.size())};
  try {
    Proof(problems, schedules).run();
  } catch (const Fault& fault) {
    return {false, fault.rule, text("{}: {}", name(fault.rule), fault.text)};
  }
  return {};
}

}  // namespace tutti
