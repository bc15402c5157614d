#include "comm/tuning_file.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/hash.hpp"
#include "base/log.hpp"

namespace tutti {

Result<TuningFile> read_tuning_file(const std::string& path) {
  TuningFile table;
  if (path.empty()) return table;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  if (file) bytes << file.rdbuf();
  if (!file) {
    TUTTI_ERROR("comm", "TUTTI_TABLE={}: cannot be read: {}; give a file that every rank can read",
                path, std::strerror(errno));
    return Code::bad_setting;
  }
  const std::string content = bytes.str();
  Result<std::vector<TuneRule>> rows = parse_table(content);
  if (!rows.ok()) {
    TUTTI_ERROR("comm", "TUTTI_TABLE={}: the row above is none; see tutti-config(7) for rules",
                path);
    return rows.status();
  }
  table.rows = std::move(*rows);
  table.hash = hash_of(content);
  return table;
}

}  // namespace tutti
