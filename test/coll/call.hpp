// One collective call as all its ranks see it, with awkward sizes and places drawn from a seed.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "coll/registry.hpp"
#include "sched/verify.hpp"

namespace tutti {

class Call {
 public:
  // Shapes of block sizes and of buffers, drawn by the seed.
  Call(Coll coll, int nranks, uint64_t count, bool commutative, uint64_t seed)
      : random_(seed), nranks_(nranks) {
    Agreed agreed;
    agreed.coll = coll;
    agreed.count = coll == Coll::barrier ? 0 : count;
    agreed.dtype = reduces(coll) ? Dtype::f32 : Dtype::byte;
    agreed.op = commutative ? Op::sum : Op::user;
    agreed.commutative = commutative;
    agreed.root = rooted(coll) ? below(nranks) : 0;
    if (coll == Coll::allgatherv || coll == Coll::reduce_scatter) {
      counts_.push_back(uneven(count));
      agreed.counts = counts_.back();
      agreed.count = 0;
    }
    std::vector<std::vector<uint64_t>> pairs;
    const bool sized_pairs = coll == Coll::alltoallv || coll == Coll::alltoallw;
    const bool sized_parts = coll == Coll::gatherv || coll == Coll::scatterv;
    if (sized_pairs || sized_parts) agreed.count = 0;
    for (int r = 0; sized_pairs && r < nranks; ++r) pairs.push_back(uneven(count));
    if (sized_parts) pairs.push_back(uneven(count));
    // In place must be said by all ranks of an alltoall, whose sizes are then symmetric.
    const bool in_place_all = below(3) == 0;
    const bool symmetric = sized_pairs && in_place_all;
    for (int r = 0; r < nranks; ++r) {
      Problem problem;
      problem.agreed = agreed;
      Local& local = problem.local;
      const bool exchange = coll == Coll::alltoall || sized_pairs;
      local.in_place = exchange ? in_place_all : below(3) == 0;
      if (coll == Coll::bcast || coll == Coll::barrier) local.in_place = false;
      if (rooted(coll) && r != agreed.root) local.in_place = false;
      if (sized_pairs) size_pairs(local, pairs, r, symmetric);
      if (sized_parts) size_parts(local, pairs[0], r, agreed);
      place(problem, r);
      problems_.push_back(problem);
    }
  }

  // Lays ends of some ranks on devices.
  void put_on_devices() {
    for (Problem& problem : problems_) {
      problem.local.send_on_device = !problem.local.in_place && below(3) != 0;
      problem.local.recv_on_device = below(3) != 0;
    }
  }

  const std::vector<Problem>& problems() const { return problems_; }
  const Agreed& agreed() const { return problems_[0].agreed; }

  std::string describe() const {
    std::string in_place;
    for (const Problem& p : problems_) in_place += p.local.in_place ? 'i' : '.';
    return text("{} P={} count={} root={} {} in place {}", name(agreed().coll), nranks_,
                agreed().count, agreed().root, agreed().commutative ? "commutative" : "ordered",
                in_place);
  }

  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  static bool rooted(Coll coll) {
    switch (coll) {
      case Coll::reduce:
      case Coll::bcast:
      case Coll::gather:
      case Coll::gatherv:
      case Coll::scatter:
      case Coll::scatterv:
        return true;
      default:
        return false;
    }
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  // Sizes around `count`, many of them zero.
  std::vector<uint64_t> uneven(uint64_t count) {
    std::vector<uint64_t> sizes;
    for (int r = 0; r < nranks_; ++r)
      sizes.push_back(below(3) == 0 ? 0 : random_() % (2 * count + 1));
    return sizes;
  }

  std::span<const uint64_t> keep(std::vector<uint64_t> values) {
    counts_.push_back(std::move(values));
    return counts_.back();
  }

  void size_pairs(Local& local, const std::vector<std::vector<uint64_t>>& pairs, int rank,
                  bool symmetric) {
    std::vector<uint64_t> to, from;
    for (int peer = 0; peer < nranks_; ++peer) {
      const auto low = static_cast<size_t>(std::min(rank, peer));
      const auto high = static_cast<size_t>(std::max(rank, peer));
      const auto r = static_cast<size_t>(rank), p = static_cast<size_t>(peer);
      to.push_back(symmetric ? pairs[low][high] : pairs[r][p]);
      from.push_back(symmetric ? pairs[low][high] : pairs[p][r]);
    }
    local.send_counts = keep(std::move(to));
    local.recv_counts = keep(std::move(from));
  }

  void size_parts(Local& local, const std::vector<uint64_t>& parts, int rank,
                  const Agreed& agreed) {
    local.count = parts[static_cast<size_t>(rank)];
    if (rank != agreed.root) return;
    (agreed.coll == Coll::gatherv ? local.recv_counts : local.send_counts) = keep(parts);
  }

  // Displacements of the v-forms: sometimes packed, sometimes with gaps and in another order.
  void place(Problem& problem, int rank) {
    Local& local = problem.local;
    const bool at_root = rank == problem.agreed.root;
    const bool exchange =
        problem.agreed.coll == Coll::alltoallv || problem.agreed.coll == Coll::alltoallw;
    const bool recvs = exchange || problem.agreed.coll == Coll::allgatherv ||
                       (problem.agreed.coll == Coll::gatherv && at_root);
    const bool sends = exchange || (problem.agreed.coll == Coll::scatterv && at_root);
    if (recvs && below(2) == 0) local.recv_displs = scatter_blocks(output_blocks(problem, nranks_));
    if (sends && below(2) == 0) local.send_displs = scatter_blocks(input_blocks(problem, nranks_));
  }

  std::span<const uint64_t> scatter_blocks(const std::vector<Block>& blocks) {
    std::vector<size_t> order(blocks.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (below(2) == 0) std::shuffle(order.begin(), order.end(), random_);
    std::vector<uint64_t> displs(blocks.size());
    uint64_t at = 0;
    for (size_t i : order) {
      at += static_cast<uint64_t>(below(3));
      displs[i] = at;
      at += blocks[i].count;
    }
    return keep(std::move(displs));
  }

  std::mt19937_64 random_;
  int nranks_;
  std::vector<Problem> problems_;
  std::vector<std::vector<uint64_t>> counts_;  // moved on growth, so spans into them stay valid
};

// Every rank's schedule; none where one cannot be made.
inline std::vector<Schedule> schedules(const Algorithm& algorithm,
                                       const std::vector<Problem>& problems,
                                       const Topology& topology, const Params& params) {
  std::vector<Schedule> all(problems.size());
  for (size_t r = 0; r < all.size(); ++r) {
    Status status =
        generate(algorithm, problems[r], Place{static_cast<int>(r), topology, params}, all[r]);
    if (!status.ok()) return {};
  }
  return all;
}

inline std::vector<Schedule> schedules(const Algorithm& algorithm, const Call& call,
                                       const Topology& topology, const Params& params) {
  return schedules(algorithm, call.problems(), topology, params);
}

}  // namespace tutti
