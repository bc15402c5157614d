#include "tune/shipped.hpp"

#include <vector>

namespace tutti {

namespace {

// From probes on two cores of 2, 3, 4 and 8 hosts made of namespaces, 1 to 4 ranks a host, links of 1 Gbit/s and
// without a limit, beside Open MPI 4.1.4, 2026-11-30. Where a rank is alone on its node its small calls were as fast
// below. Bcasts from 64 KiB: there a root waits for its peers below as well.
constexpr const char* tcp_table = R"(
allreduce below @ ..8k nodes=2..8 ppn=1
allreduce rabenseifner @ 8k..256k nodes=2 ppn=1
allreduce rabenseifner @ 8k..256k nodes=4 ppn=1
allreduce rabenseifner @ 8k..256k nodes=8 ppn=1
allreduce ring @ 256k.. nodes=2..8 ppn=1
allreduce hierarchical,inner=groups,top=recursive_doubling,rails=1 @ ..8k nodes=2..8 ppn=2..
allreduce hierarchical,inner=groups,top=rabenseifner @ 8k..1m nodes=2 ppn=2..
allreduce hierarchical,inner=groups,top=rabenseifner @ 8k..1m nodes=4 ppn=2..
allreduce hierarchical,inner=groups,top=rabenseifner @ 8k..1m nodes=8 ppn=2..
allreduce hierarchical,inner=groups,top=ring @ 8k.. nodes=2..8 ppn=2..
allgather ring @ 256k.. nodes=3..8 ppn=1
allgather hierarchical,inner=groups,top=ring @ 16k.. nodes=2..8 ppn=2..
reduce_scatter_block hierarchical,inner=groups @ 128k.. nodes=2..8 ppn=2..
bcast chain @ 256k.. nodes=3..8 ppn=1
bcast hierarchical,inner=groups,top=chain @ 64k.. nodes=2..8 ppn=2..
)";

}  // namespace

std::span<const TuneRule> shipped_rows(bool rdma) {
  static const std::vector<TuneRule> tcp = [] {
    auto rows = parse_table(tcp_table);
    return rows.ok() ? std::move(*rows) : std::vector<TuneRule>();
  }();
  return rdma ? std::span<const TuneRule>() : tcp;
}

}  // namespace tutti
