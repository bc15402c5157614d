#include "gpu/device.hpp"
#include "gpu/lane.hpp"
#include "gpu/reduction.hpp"

namespace tutti::gpu {

bool native(const Agreed& agreed, int nranks) {
  if (nranks < 2 || nranks > max_group) return false;
  switch (agreed.coll) {
    case Coll::allgather:
    case Coll::alltoall:
    case Coll::bcast:
    case Coll::gather:
    case Coll::scatter:
      return true;
    case Coll::allreduce:
    case Coll::reduce:
    case Coll::reduce_scatter_block:
      return reduction_code(agreed.op, agreed.dtype).has_value();
    default:
      return false;
  }
}

bool moves(Coll coll) {
  switch (coll) {
    case Coll::allgather:
    case Coll::alltoall:
    case Coll::bcast:
    case Coll::gather:
    case Coll::scatter:
      return true;
    default:
      return false;
  }
}

}  // namespace tutti::gpu
