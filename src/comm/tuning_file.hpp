// The user's table of measured rows (TUTTI_TABLE), which bench/table makes: read once, at MPI_Init, where a
// fault ends the job; its content must be equal on all ranks, so its hash goes where those of settings go.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "tune/rules.hpp"

namespace tutti {

struct TuningFile {
  std::vector<TuneRule> rows;
  uint64_t hash = 0;  // of the bytes; 0 for no file
};

// An empty path is no file. Logs what is wrong, with file and row; then bad_setting.
Result<TuningFile> read_tuning_file(const std::string& path);

}  // namespace tutti
