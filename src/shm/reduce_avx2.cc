#define TUTTI_REDUCE_VARIANT avx2
#define TUTTI_REDUCE_VECTOR_BYTES 32
#include "shm/reduce_vector.hpp"

namespace tutti::shm {

void add_avx2(ReducerTable& table) {
  avx2::add(table);
}

}  // namespace tutti::shm
