// Formatting with {fmt}, compiled once: every other file includes only fmt's light core header.
#pragma once

#include <fmt/core.h>

#include <string>

namespace tutti {

std::string vtext(fmt::string_view format, fmt::format_args args);

// text("{} bytes", n): fmt::format, with the format string checked at compile time.
template <class... Args>
std::string text(fmt::format_string<Args...> format_string, Args&&... args) {
  return vtext(format_string, fmt::make_format_args(args...));
}

}  // namespace tutti
