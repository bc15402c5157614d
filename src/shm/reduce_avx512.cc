#define TUTTI_REDUCE_VARIANT avx512
#define TUTTI_REDUCE_VECTOR_BYTES 64
#include "shm/reduce_vector.hpp"

namespace tutti::shm {

void add_avx512(ReducerTable& table) {
  avx512::add(table);
}

}  // namespace tutti::shm
