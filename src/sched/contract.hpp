// What a collective reads and writes on one rank: the specification that algorithms are written to
// and verify proves them against.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/problem.hpp"
#include "sched/step.hpp"

namespace tutti {

// Elements of the rank's input and output as steps may name them. In place, the input is 0 long and
// the output holds what the call reads.
struct Extent {
  uint64_t input = 0;
  uint64_t output = 0;
};
Extent extent(const Problem& problem, int rank, int nranks);

// Where a value comes from. Element `offset + i` of the range holds `index + i` of ...
struct Piece {
  Ref where;
  uint64_t index = 0;
  // ... the contributions of ranks first..last, reduced (a movement has first == last).
  int32_t first = 0;
  int32_t last = 0;
};

// What this rank contributes, as it lies before the call: index k names element k of the rank's
// contribution. One piece for most collectives.
std::vector<Piece> contribution(const Problem& problem, int rank, int nranks);

// What the rank's output must hold after the call, given every rank's problem. Everything else in
// the output must be as it was.
std::vector<Piece> expectation(std::span<const Problem> problems, int rank);

// Of reductions: elements of the result, which lies at the front of the output.
uint64_t result_count(const Problem& problem, int rank, int nranks);

// Whether the output must be the same, bit for bit, on every rank.
bool replicated(Coll coll);
// Whether the collective combines values.
bool reduces(Coll coll);

// Elements of rank's block in allgather, allgatherv, reduce_scatter(_block), and where it starts in
// the vector of all blocks in rank order.
struct Block {
  uint64_t offset = 0;
  uint64_t count = 0;
};
Block agreed_block(const Agreed& agreed, int rank);
std::vector<Block> agreed_blocks(const Agreed& agreed, int nranks);
// Length of all blocks together.
uint64_t agreed_total(const Agreed& agreed, int nranks);

// Where the block from `peer` lies in the output (to `peer` in the input) of collectives whose
// blocks this rank knows, following displacements. Linear in `peer` when blocks are packed and
// differ in size: loops over all peers use the vectors.
Block output_block(const Problem& problem, int peer);
Block input_block(const Problem& problem, int peer);
std::vector<Block> output_blocks(const Problem& problem, int nranks);
std::vector<Block> input_blocks(const Problem& problem, int nranks);

}  // namespace tutti
