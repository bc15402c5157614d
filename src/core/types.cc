#include "core/types.hpp"

#include <iterator>

namespace tutti {

std::optional<Dtype> find_dtype(std::string_view name) {
  for (size_t i = 0; i < dtype_count; ++i)
    if (name == dtype_table[i].name) return static_cast<Dtype>(i);
  return std::nullopt;
}

std::optional<Op> find_op(std::string_view name) {
  for (size_t i = 0; i < op_count; ++i)
    if (name == op_names[i]) return static_cast<Op>(i);
  return std::nullopt;
}

std::optional<Coll> find_coll(std::string_view name) {
  for (size_t i = 0; i < coll_count; ++i)
    if (name == coll_names[i]) return static_cast<Coll>(i);
  return std::nullopt;
}

}  // namespace tutti
