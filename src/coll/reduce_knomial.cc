// k-nomial reduce: whole vectors go up a tree of radix k.
// Steps ceil(log_k P), one more for a non-commutative operation with a root other than 0; bytes
// sent a rank n. Best for short messages where a rank can take several messages at once. Source: R.
// Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005, with a radix.
#include "coll/phases.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::reduce};
constexpr Param parameters[] = {
    {"radix", Param::Unit::number, 4, 2, 64, "Subtrees a level, and one."}};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  const Agreed& agreed = problem.agreed;
  const int nranks = place.nranks(), rank = place.rank, root = agreed.root;
  const Ref own = own_vector(problem.local.in_place, agreed.count);
  const Ref result = output_ref(0, agreed.count);
  if (root == 0 || agreed.op != Op::user || agreed.commutative) {
    knomial_reduce(builder, rank, nranks, root, static_cast<int>(place.params[0]), own, result, 0);
    return {};
  }
  // A tree rooted elsewhere does not keep the order: rank 0 reduces and sends the result on.
  const Ref total = rank == 0 ? builder.scratch(agreed.count) : Ref{};
  Id last =
      knomial_reduce(builder, rank, nranks, 0, static_cast<int>(place.params[0]), own, total, 0);
  if (rank == 0) builder.send(root, total, {last}, 1);
  if (rank == root) builder.recv(0, result, {last}, 1);
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  const double k = static_cast<double>(params[0]), rounds = s.rounds(k);
  Estimate e;
  s.tree(e, rounds, rounds * (k - 1) * s.bytes);
  s.handle(e, 0, rounds * (k - 1));
  e.reduced = rounds * (k - 1) * s.bytes;
  return e;
}

}  // namespace

extern const Algorithm reduce_knomial{
    "knomial", "Tree of radix k; short messages.", collectives, parameters, applies, estimate,
    generate};

}  // namespace tutti
