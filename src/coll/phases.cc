#include "coll/phases.hpp"

namespace tutti {

// Ranks whose parts are in block `block` when it arrives here: block + 1 .. rank - 1, round the
// end.
bool RingReduceScatter::own_is_lower(int block) const {
  const int first = mod(block + 1, nranks), last = mod(rank - 1, nranks);
  const int lowest = first <= last ? first : 0;
  return rank < lowest;
}

void RingReduceScatter::append_piece(ScheduleBuilder& builder, uint64_t piece, Landing& landing,
                                     Id& last_recv) {
  const int up = mod(rank + 1, nranks), down = mod(rank - 1, nranks);
  auto at = [&](int block) { return static_cast<size_t>(block); };
  auto own_piece = [&](int block) {
    return cut(slice(own, blocks[at(block)]), pieces.size, piece);
  };
  Id reduced = no_step;
  for (int s = 0; s + 1 < nranks; ++s) {
    const uint32_t now = tag + static_cast<uint32_t>(s) * static_cast<uint32_t>(pieces.count) +
                         static_cast<uint32_t>(piece);
    const int sent = mod(rank - s - 1, nranks), got = mod(rank - s - 2, nranks);
    const Ref leaving = own_piece(sent), arriving = own_piece(got);
    Ref& land = landing.at[s % 2];
    if (leaving.count != 0) {
      const Ref from = s == 0 ? leaving : slice(landing.at[(s - 1) % 2], 0, leaving.count);
      Id id = builder.send(up, from, {reduced}, now);
      if (s == 0)
        reading[at(sent) * pieces.count + piece] = id;
      else
        landing.freed[(s - 1) % 2] = id;
    }
    if (arriving.count == 0) continue;
    const Ref here = slice(land, 0, arriving.count);
    Id recv = builder.recv(down, here, {landing.freed[s % 2]}, now);
    if (s + 2 == nranks) {
      last_recv = recv;
      break;
    }
    const bool lower = own_is_lower(got);
    reduced = builder.reduce(lower ? arriving : here, lower ? here : arriving, here, {recv});
    reading[at(got) * pieces.count + piece] = reduced;
  }
}

void RingReduceScatter::append(ScheduleBuilder& builder) {
  reading.assign(static_cast<size_t>(nranks) * pieces.count, no_step);
  done.assign(pieces.count, no_step);
  const Block mine = blocks[static_cast<size_t>(rank)];
  if (nranks == 1) {
    if (slice(own, mine) == result) return;
    for (uint64_t p = 0; p < pieces.count; ++p)
      done[p] =
          builder.copy(cut(slice(own, mine), pieces.size, p), cut(result, pieces.size, p), {});
    return;
  }
  std::vector<Landing> landings(pieces.count);
  std::vector<Id> last_recv(pieces.count, no_step);
  for (uint64_t p = 0; p < pieces.count; ++p) {
    uint64_t most = 0;
    for (const Block& block : blocks)
      most = std::max(most, cut({Space::input, 0, block.count}, pieces.size, p).count);
    landings[p].at[0] = builder.scratch(most);
    if (nranks > 2) landings[p].at[1] = builder.scratch(most);
    append_piece(builder, p, landings[p], last_recv[p]);
  }
  const Ref target = overlaps ? builder.scratch(result.count) : result;
  for (uint64_t p = 0; p < pieces.count; ++p) {
    const Ref from = cut(slice(own, mine), pieces.size, p);
    if (from.count == 0) continue;
    const Ref here = slice(landings[p].at[nranks % 2], 0, from.count);
    const bool lower = own_is_lower(rank);
    done[p] = builder.reduce(lower ? from : here, lower ? here : from, cut(target, pieces.size, p),
                             {last_recv[p]});
    reading[static_cast<size_t>(rank) * pieces.count + p] = done[p];
  }
  if (!overlaps) return;
  Id last = builder.copy(target, result, std::span<const Id>(reading));
  std::fill(done.begin(), done.end(), last);
}

void RingAllgather::append(ScheduleBuilder& builder) {
  if (nranks == 1) return;
  const int up = mod(rank + 1, nranks), down = mod(rank - 1, nranks);
  for (uint64_t p = 0; p < pieces.count; ++p) {
    Id got = ready.empty() ? no_step : ready[p];
    for (int s = 0; s + 1 < nranks; ++s) {
      const uint32_t now = tag + static_cast<uint32_t>(s) * static_cast<uint32_t>(pieces.count) +
                           static_cast<uint32_t>(p);
      const auto sent = static_cast<size_t>(mod(rank - s, nranks));
      const auto coming = static_cast<size_t>(mod(rank - s - 1, nranks));
      const Ref leaving = cut(s == 0 ? own : blocks[sent], pieces.size, p);
      const Ref arriving = cut(blocks[coming], pieces.size, p);
      if (leaving.count != 0) builder.send(up, leaving, {got}, now);
      got = no_step;
      if (arriving.count != 0)
        got = builder.recv(down, arriving,
                           {guard.empty() ? no_step : guard[coming * pieces.count + p]}, now);
    }
  }
}

Id knomial_bcast(ScheduleBuilder& builder, int rank, int nranks, int root, int radix, Ref range,
                 Id ready, uint32_t tag) {
  auto real = [&](int v) { return (v + root) % nranks; };
  const KnomialTree tree(mod(rank - root, nranks), nranks, radix);
  if (tree.parent >= 0) ready = builder.recv(real(tree.parent), range, {ready}, tag);
  // The deepest subtree first: it has the longest way to go.
  for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child)
    builder.send(real(child->v), range, {ready}, tag);
  return ready;
}

Id knomial_reduce(ScheduleBuilder& builder, int rank, int nranks, int root, int radix, Ref own,
                  Ref result, uint32_t tag) {
  auto real = [&](int v) { return (v + root) % nranks; };
  const int v = mod(rank - root, nranks);
  const KnomialTree tree(v, nranks, radix);
  // Lowest rank of the run of `span` that starts at v.
  auto lowest = [&](int first, int span) {
    return first + root < nranks && first + root + span > nranks ? 0 : real(first);
  };
  const uint64_t n = own.count;
  std::vector<Ref> landing;
  std::vector<Id> got;
  for (const auto& child : tree.children) {
    landing.push_back(builder.scratch(n));
    got.push_back(builder.recv(real(child.v), landing.back(), {}, tag));
  }
  Ref sum = own;
  Id last = no_step;
  for (size_t i = 0; i < landing.size(); ++i) {
    const auto& child = tree.children[i];
    // The sum covers the run from v to the child.
    const bool lower = lowest(v, child.v - v) < lowest(child.v, child.span);
    const bool final = i + 1 == landing.size() && tree.parent < 0;
    const Ref into = final ? result : landing[i];
    last = builder.reduce(lower ? sum : landing[i], lower ? landing[i] : sum, into, {got[i], last});
    sum = into;
  }
  if (tree.parent >= 0) return builder.send(real(tree.parent), sum, {last}, tag);
  return sum == result ? last : builder.copy(sum, result, {last});
}

Status pairwise_exchange(const Problem& problem, int rank, int nranks, uint64_t window, bool sparse,
                         ScheduleBuilder& builder) {
  const bool in_place = problem.local.in_place;
  const std::vector<Block> to = output_blocks(problem, nranks);
  const std::vector<Block> from = in_place ? to : input_blocks(problem, nranks);
  const Space source = in_place ? Space::output : Space::input;
  uint64_t longest = 0;
  for (const Block& block : to) longest = std::max(longest, block.count);
  // In place, a block lands beside before it takes the place of the one that was sent.
  struct Slot {
    Ref landing;
    Id sent = no_step, landed = no_step;
  };
  std::vector<Slot> slots(std::min<uint64_t>(window, static_cast<uint64_t>(nranks)));
  if (in_place && nranks > 1)
    for (Slot& slot : slots) slot.landing = builder.scratch(longest);
  size_t turn = 0;
  for (int s = 0; s < nranks; ++s) {
    const int peer = mod(s - rank, nranks);
    const auto at = static_cast<size_t>(peer);
    const Ref leaving{source, from[at].offset, from[at].count};
    const Ref arriving = output_ref(to[at].offset, to[at].count);
    if (peer == rank) {
      if (!in_place) builder.copy(leaving, arriving, {});
      continue;
    }
    if (sparse && leaving.count == 0 && arriving.count == 0) continue;
    Slot& slot = slots[turn++ % slots.size()];
    const Slot before = slot;
    if (!sparse || leaving.count != 0)
      slot.sent = builder.send(peer, leaving, {before.sent, before.landed});
    if (sparse && arriving.count == 0) continue;
    const Ref land = in_place ? slice(slot.landing, 0, arriving.count) : arriving;
    slot.landed = builder.recv(peer, land, {before.sent, before.landed});
    if (in_place && arriving.count != 0)
      slot.landed = builder.copy(land, arriving, {slot.landed, slot.sent});
  }
  return {};
}

Ref own_block(const Problem& problem, int rank, const Block& at_output) {
  const Agreed& agreed = problem.agreed;
  if (problem.local.in_place) return output_ref(at_output.offset, at_output.count);
  const bool local_size = agreed.coll == Coll::gatherv;
  return input_ref(0, local_size              ? problem.local.count
                      : agreed.counts.empty() ? agreed.count
                                              : agreed.counts[static_cast<size_t>(rank)]);
}

PackedBlocks::PackedBlocks(const Problem& problem, int rank, int nranks, ScheduleBuilder& builder)
    : builder_(builder),
      rank_(rank),
      final_(output_blocks(problem, nranks)),
      packed_(problem.local.recv_displs.empty()) {
  offset_.push_back(0);
  for (const Block& block : final_) offset_.push_back(offset_.back() + block.count);
  whole_ = packed_ ? output_ref(0, offset_.back()) : builder.scratch(offset_.back());
  own_ = own_block(problem, rank, final_[static_cast<size_t>(rank)]);
  const Ref place = range(rank, 1);
  if (own_ != place) own_ready_ = builder.copy(own_, place, {});
  if (!packed_ && !problem.local.in_place) {
    const Block& mine = final_[static_cast<size_t>(rank)];
    builder.copy(own_, output_ref(mine.offset, mine.count), {});
  }
}

Ref PackedBlocks::range(int first, int n) const {
  const uint64_t begin = offset_[static_cast<size_t>(first)];
  return slice(whole_, begin, offset_[static_cast<size_t>(first + n)] - begin);
}

void PackedBlocks::unpack(int first, int n, Id ready) {
  if (packed_) return;
  for (int r = first; r < first + n; ++r) {
    if (r == rank_) continue;
    const Block& to = final_[static_cast<size_t>(r)];
    builder_.copy(range(r, 1), output_ref(to.offset, to.count), {ready});
  }
}

}  // namespace tutti
