// The measured rows that come with tutti.
#pragma once

#include <span>

#include "tune/rules.hpp"

namespace tutti {

// Of calls between nodes over that kind of network. No row, not even one that names the MPI below:
// nobody measured such a call.
std::span<const TuneRule> shipped_rows(bool rdma);

}  // namespace tutti
