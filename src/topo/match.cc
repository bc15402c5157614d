// GPU-NIC matching by the Hungarian method (H. W. Kuhn 1955, in the O(n^3) form of J. Munkres with
// potentials). Rows and columns are few, so exactness is free.
#include <algorithm>
#include <limits>

#include "topo/topology.hpp"

namespace tutti {

namespace {

using Costs = std::vector<std::vector<int64_t>>;

// Least-cost assignment of every row to a column of its own; rows <= columns. Column of each row.
std::vector<size_t> assign(const Costs& costs) {
  const size_t rows = costs.size(), columns = rows == 0 ? 0 : costs[0].size();
  constexpr int64_t infinite = std::numeric_limits<int64_t>::max() / 4;
  // 1-based; row_of[0] is the row being placed.
  std::vector<int64_t> row_potential(rows + 1), column_potential(columns + 1);
  std::vector<size_t> row_of(columns + 1, 0), way(columns + 1, 0);
  for (size_t row = 1; row <= rows; ++row) {
    row_of[0] = row;
    size_t at = 0;
    std::vector<int64_t> least(columns + 1, infinite);
    std::vector<bool> used(columns + 1, false);
    do {
      used[at] = true;
      int64_t delta = infinite;
      size_t next = 0;
      for (size_t c = 1; c <= columns; ++c) {
        if (used[c]) continue;
        int64_t reduced =
            costs[row_of[at] - 1][c - 1] - row_potential[row_of[at]] - column_potential[c];
        if (reduced < least[c]) {
          least[c] = reduced;
          way[c] = at;
        }
        if (least[c] < delta) {
          delta = least[c];
          next = c;
        }
      }
      for (size_t c = 0; c <= columns; ++c) {
        if (used[c]) {
          row_potential[row_of[c]] += delta;
          column_potential[c] -= delta;
        } else {
          least[c] -= delta;
        }
      }
      at = next;
    } while (row_of[at] != 0);
    for (; at != 0; at = way[at]) row_of[at] = row_of[way[at]];
  }
  std::vector<size_t> column_of(rows);
  for (size_t c = 1; c <= columns; ++c)
    if (row_of[c] != 0) column_of[row_of[c] - 1] = c - 1;
  return column_of;
}

std::vector<int32_t> usable_nics(const Node& node) {
  double fastest = 0;
  for (const Nic& nic : node.nics)
    if (nic.compute) fastest = std::max(fastest, nic.gbps);
  std::vector<int32_t> usable;
  for (size_t n = 0; n < node.nics.size(); ++n)
    if (node.nics[n].compute && node.nics[n].gbps * 2 >= fastest)
      usable.push_back(static_cast<int32_t>(n));
  return usable;
}

}  // namespace

std::vector<std::vector<int32_t>> match_nics(const Node& node) {
  std::vector<std::vector<int32_t>> result(node.gpus.size());
  const std::vector<int32_t> nics = usable_nics(node);
  if (nics.empty() || node.gpus.empty()) return result;
  // Each GPU appears `stripes` times, each NIC `turns` times; a later turn costs more than any
  // distance, so loads stay even.
  const size_t stripes = std::max<size_t>(1, nics.size() / node.gpus.size());
  const size_t turns = (node.gpus.size() + nics.size() - 1) / nics.size();
  constexpr int64_t turn_cost = 1 << 20;
  Costs costs(node.gpus.size() * stripes, std::vector<int64_t>(nics.size() * turns));
  for (size_t row = 0; row < costs.size(); ++row)
    for (size_t column = 0; column < costs[row].size(); ++column) {
      const Slot& nic = node.nics[static_cast<size_t>(nics[column % nics.size()])].slot;
      costs[row][column] = static_cast<int64_t>(distance(node.gpus[row / stripes].slot, nic)) +
                           turn_cost * static_cast<int64_t>(column / nics.size());
    }
  const std::vector<size_t> column_of = assign(costs);
  for (size_t row = 0; row < costs.size(); ++row)
    result[row / stripes].push_back(nics[column_of[row] % nics.size()]);
  for (size_t g = 0; g < result.size(); ++g)
    std::sort(result[g].begin(), result[g].end(), [&](int32_t a, int32_t b) {
      auto key = [&](int32_t n) {
        return std::pair(distance(node.gpus[g].slot, node.nics[static_cast<size_t>(n)].slot), n);
      };
      return key(a) < key(b);
    });
  return result;
}

}  // namespace tutti
