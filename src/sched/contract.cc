#include "sched/contract.hpp"

#include <algorithm>

namespace tutti {

namespace {

uint64_t prefix(std::span<const uint64_t> counts, int rank) {
  uint64_t sum = 0;
  for (int i = 0; i < rank; ++i) sum += counts[static_cast<size_t>(i)];
  return sum;
}

// End of the last block.
uint64_t reach(const std::vector<Block>& blocks) {
  uint64_t end = 0;
  for (const Block& block : blocks)
    if (block.count != 0) end = std::max(end, block.offset + block.count);
  return end;
}

std::vector<Block> blocks_of(const Agreed& agreed, std::span<const uint64_t> counts,
                             std::span<const uint64_t> displs, int nranks) {
  std::vector<Block> blocks(static_cast<size_t>(nranks));
  uint64_t packed = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    blocks[i].count = !counts.empty()          ? counts[i]
                      : !agreed.counts.empty() ? agreed.counts[i]
                                               : agreed.count;
    blocks[i].offset = displs.empty() ? packed : displs[i];
    packed += blocks[i].count;
  }
  return blocks;
}

Block block_of(const Agreed& agreed, std::span<const uint64_t> counts,
               std::span<const uint64_t> displs, int peer) {
  auto at = static_cast<size_t>(peer);
  if (counts.empty()) counts = agreed.counts;
  uint64_t count = counts.empty() ? agreed.count : counts[at];
  if (!displs.empty()) return {displs[at], count};
  return {counts.empty() ? at * count : prefix(counts, peer), count};
}

uint64_t output_reach(const Problem& problem, int nranks) {
  return reach(output_blocks(problem, nranks));
}

uint64_t input_reach(const Problem& problem, int nranks) {
  return reach(input_blocks(problem, nranks));
}

Piece in(uint64_t offset, uint64_t count, uint64_t index, int rank) {
  return {{Space::input, offset, count}, index, rank, rank};
}

Piece out(uint64_t offset, uint64_t count, uint64_t index, int first, int last) {
  return {{Space::output, offset, count}, index, first, last};
}

std::vector<Piece> gathered(const Problem& problem, int nranks) {
  std::vector<Piece> all;
  std::vector<Block> blocks = output_blocks(problem, nranks);
  for (int peer = 0; peer < nranks; ++peer) {
    const Block& block = blocks[static_cast<size_t>(peer)];
    all.push_back(out(block.offset, block.count, 0, peer, peer));
  }
  return all;
}

std::vector<Piece> exchanged(std::span<const Problem> problems, int rank) {
  const int nranks = static_cast<int>(problems.size());
  std::vector<Piece> all;
  std::vector<Block> blocks = output_blocks(problems[static_cast<size_t>(rank)], nranks);
  for (int peer = 0; peer < nranks; ++peer) {
    const Problem& theirs = problems[static_cast<size_t>(peer)];
    const Block& block = blocks[static_cast<size_t>(peer)];
    Block sent = theirs.local.in_place ? output_block(theirs, rank) : input_block(theirs, rank);
    all.push_back(out(block.offset, block.count, sent.offset, peer, peer));
  }
  return all;
}

}  // namespace

uint64_t result_count(const Problem& problem, int rank, int nranks) {
  const Agreed& agreed = problem.agreed;
  switch (agreed.coll) {
    case Coll::reduce:
      return rank == agreed.root ? agreed.count : 0;
    case Coll::exscan:
      return rank == 0 ? 0 : agreed.count;
    case Coll::reduce_scatter:
    case Coll::reduce_scatter_block:
      return rank < nranks ? agreed_block(agreed, rank).count : 0;
    default:
      return agreed.count;
  }
}

bool replicated(Coll coll) {
  return coll == Coll::allreduce;
}

bool reduces(Coll coll) {
  switch (coll) {
    case Coll::allreduce:
    case Coll::reduce:
    case Coll::reduce_scatter:
    case Coll::reduce_scatter_block:
    case Coll::scan:
    case Coll::exscan:
      return true;
    default:
      return false;
  }
}

Block agreed_block(const Agreed& agreed, int rank) {
  if (agreed.counts.empty()) return {static_cast<uint64_t>(rank) * agreed.count, agreed.count};
  return {prefix(agreed.counts, rank), agreed.counts[static_cast<size_t>(rank)]};
}

std::vector<Block> agreed_blocks(const Agreed& agreed, int nranks) {
  return blocks_of(agreed, {}, {}, nranks);
}

uint64_t agreed_total(const Agreed& agreed, int nranks) {
  if (agreed.counts.empty()) return static_cast<uint64_t>(nranks) * agreed.count;
  return prefix(agreed.counts, nranks);
}

Block output_block(const Problem& problem, int peer) {
  return block_of(problem.agreed, problem.local.recv_counts, problem.local.recv_displs, peer);
}

Block input_block(const Problem& problem, int peer) {
  return block_of(problem.agreed, problem.local.send_counts, problem.local.send_displs, peer);
}

std::vector<Block> output_blocks(const Problem& problem, int nranks) {
  return blocks_of(problem.agreed, problem.local.recv_counts, problem.local.recv_displs, nranks);
}

std::vector<Block> input_blocks(const Problem& problem, int nranks) {
  return blocks_of(problem.agreed, problem.local.send_counts, problem.local.send_displs, nranks);
}

Extent extent(const Problem& problem, int rank, int nranks) {
  const Agreed& agreed = problem.agreed;
  const bool in_place = problem.local.in_place;
  const bool root = rank == agreed.root;
  const uint64_t n = agreed.count;
  switch (agreed.coll) {
    case Coll::allreduce:
    case Coll::scan:
      return {in_place ? 0 : n, n};
    case Coll::exscan:
      return {in_place ? 0 : n, rank == 0 && !in_place ? 0 : n};
    case Coll::reduce:
      return {in_place && root ? 0 : n, root ? n : 0};
    case Coll::bcast:
      return {0, n};
    case Coll::allgather:
    case Coll::allgatherv:
      return {in_place ? 0 : agreed_block(agreed, rank).count, output_reach(problem, nranks)};
    case Coll::gather:
      return {in_place && root ? 0 : n, root ? output_reach(problem, nranks) : 0};
    case Coll::gatherv:
      return {in_place && root ? 0 : problem.local.count, root ? output_reach(problem, nranks) : 0};
    case Coll::scatter:
      return {root ? input_reach(problem, nranks) : 0, in_place && root ? 0 : n};
    case Coll::scatterv:
      return {root ? input_reach(problem, nranks) : 0, in_place && root ? 0 : problem.local.count};
    case Coll::reduce_scatter:
    case Coll::reduce_scatter_block: {
      uint64_t total = agreed_total(agreed, nranks);
      return {in_place ? 0 : total, in_place ? total : agreed_block(agreed, rank).count};
    }
    case Coll::alltoall:
    case Coll::alltoallv:
    case Coll::alltoallw:
      return {in_place ? 0 : input_reach(problem, nranks), output_reach(problem, nranks)};
    case Coll::barrier:
      return {};
  }
  return {};
}

std::vector<Piece> contribution(const Problem& problem, int rank, int nranks) {
  const Agreed& agreed = problem.agreed;
  const bool in_place = problem.local.in_place;
  const bool root = rank == agreed.root;
  const Extent size = extent(problem, rank, nranks);
  switch (agreed.coll) {
    case Coll::bcast:
      if (root) return {out(0, size.output, 0, rank, rank)};
      return {};
    case Coll::allgather:
    case Coll::allgatherv: {
      Block own = output_block(problem, rank);
      if (in_place) return {out(own.offset, own.count, 0, rank, rank)};
      break;
    }
    case Coll::gather:
    case Coll::gatherv: {
      if (!in_place || !root) break;
      Block own = output_block(problem, rank);
      return {out(own.offset, own.count, 0, rank, rank)};
    }
    case Coll::scatter:
    case Coll::scatterv:
      break;
    case Coll::alltoall:
    case Coll::alltoallv:
    case Coll::alltoallw:
      // In place, the blocks to send lie where those to receive will.
      if (in_place) return {out(0, size.output, 0, rank, rank)};
      break;
    case Coll::reduce:
      if (in_place && root) return {out(0, size.output, 0, rank, rank)};
      break;
    default:
      if (in_place) return {out(0, size.output, 0, rank, rank)};
  }
  if (size.input == 0) return {};
  return {in(0, size.input, 0, rank)};
}

std::vector<Piece> expectation(std::span<const Problem> problems, int rank) {
  const Problem& problem = problems[static_cast<size_t>(rank)];
  const Agreed& agreed = problem.agreed;
  const int nranks = static_cast<int>(problems.size());
  const bool root = rank == agreed.root;
  const uint64_t n = agreed.count;
  switch (agreed.coll) {
    case Coll::allreduce:
      return {out(0, n, 0, 0, nranks - 1)};
    case Coll::reduce:
      if (!root) return {};
      return {out(0, n, 0, 0, nranks - 1)};
    case Coll::scan:
      return {out(0, n, 0, 0, rank)};
    case Coll::exscan:
      if (rank == 0) return {};
      return {out(0, n, 0, 0, rank - 1)};
    case Coll::bcast:
      return {out(0, n, 0, agreed.root, agreed.root)};
    case Coll::gather:
    case Coll::gatherv:
      if (!root) return {};
      [[fallthrough]];
    case Coll::allgather:
    case Coll::allgatherv:
      return gathered(problem, nranks);
    case Coll::scatter:
    case Coll::scatterv: {
      if (problem.local.in_place && root) return {};
      Block sent = input_block(problems[static_cast<size_t>(agreed.root)], rank);
      return {out(0, sent.count, sent.offset, agreed.root, agreed.root)};
    }
    case Coll::reduce_scatter:
    case Coll::reduce_scatter_block: {
      Block own = agreed_block(agreed, rank);
      return {out(0, own.count, own.offset, 0, nranks - 1)};
    }
    case Coll::alltoall:
    case Coll::alltoallv:
    case Coll::alltoallw:
      return exchanged(problems, rank);
    case Coll::barrier:
      return {};
  }
  return {};
}

}  // namespace tutti
