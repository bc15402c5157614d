#define FMT_HEADER_ONLY
#include "base/text.hpp"

#include <fmt/format.h>

namespace tutti {

std::string vtext(fmt::string_view format, fmt::format_args args) {
  return fmt::vformat(format, args);
}

}  // namespace tutti
