#define TUTTI_REDUCE_VARIANT generic
#define TUTTI_REDUCE_VECTOR_BYTES 16
#include "shm/reduce_vector.hpp"

namespace tutti::shm {

void add_generic(ReducerTable& table) {
  generic::add(table);
}

}  // namespace tutti::shm
