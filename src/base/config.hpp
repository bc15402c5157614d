// Settings: one const Config, expanded from config.def, made once and passed down.
//
// The environment is read here and nowhere else. A test makes its own Config: `Config{}` has every
// default, and parse_config() takes any list of "NAME=VALUE" strings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"

namespace tutti {

// What drives pending nonblocking calls while the program is inside the MPI below.
enum class Progress : uint8_t { automatic, hook, thread };

// Paths whose absence is an error (TUTTI_REQUIRE).
struct Require {
  bool p2p = false;     // GPUs of a node reach each other's memory
  bool gdr = false;     // the network card reads and writes device memory
  bool sharp = false;   // the switches reduce
  bool native = false;  // no call goes to the MPI below for want of a path
  friend bool operator==(const Require&, const Require&) = default;
};

// The types of config.def's rows. Each has the value a row becomes, what it accepts, and the way
// from text to value and back: parse(print(v)) == v. There is one spelling for everything.
namespace setting {

struct Flag {
  using Value = bool;
  static constexpr const char* accepts = "y or n (or yes, no, 1, 0, on, off, true, false)";
  static std::optional<Value> parse(std::string_view text);
  static std::string print(Value value);
};

struct Count {
  using Value = uint64_t;
  static constexpr const char* accepts = "a whole number";
  static std::optional<Value> parse(std::string_view text);
  static std::string print(Value value);
};

struct Bytes {
  using Value = uint64_t;
  static constexpr const char* accepts =
      "a number of bytes, with k, m or g behind it for 1024 to that power";
  static std::optional<Value> parse(std::string_view text);
  static std::string print(Value value);
};

// No value means that the tuned number holds.
struct AutoBytes {
  using Value = std::optional<uint64_t>;
  static constexpr const char* accepts =
      "auto, or a number of bytes, with k, m or g behind it for 1024 to that power";
  static std::optional<Value> parse(std::string_view text);
  static std::string print(Value value);
};

// Nanoseconds; 0 is off.
struct Duration {
  using Value = uint64_t;
  static constexpr const char* accepts = "off, or a time with its unit: ns, us, ms or s";
  static std::optional<Value> parse(std::string_view text);
  static std::string print(Value value);
};

struct Text {
  using Value = std::string;
  static constexpr const char* accepts = "any text";
  static std::optional<Value> parse(std::string_view text);
  static std::string print(const Value& value);
};

// Read by tune, which knows the algorithms; here it is text.
struct Rules : Text {
  static constexpr const char* accepts =
      "rules apart by ';', each an algorithm with its parameters and the sizes it is for";
};

// A name, or a path: something with a slash in it.
struct GpuModule : Text {
  static constexpr const char* accepts = "auto, cuda, emu, none, or a path with a slash in it";
  static std::optional<Value> parse(std::string_view text);
};

struct LogLevel {
  using Value = log::Level;
  static constexpr const char* accepts = "off, error, warn, info, debug or trace";
  static std::optional<Value> parse(std::string_view text);
  static std::string print(Value value);
};

struct ProgressBy {
  using Value = Progress;
  static constexpr const char* accepts = "auto, hook or thread";
  static std::optional<Value> parse(std::string_view text);
  static std::string print(Value value);
};

struct RequireList {
  using Value = Require;
  static constexpr const char* accepts =
      "a list apart by commas of p2p, gdr, sharp and native, or nothing";
  static std::optional<Value> parse(std::string_view text);
  static std::string print(Value value);
};

}  // namespace setting

struct Config {
#define TUTTI_VAR(field, Type, name, standard, doc) \
  setting::Type::Value field = setting::Type::parse(standard).value();
#define TUTTI_VAR_AGREED TUTTI_VAR
#include "base/config.def"
#undef TUTTI_VAR
#undef TUTTI_VAR_AGREED
};

// One row of config.def, for tutti-info, the man page and messages.
struct SettingInfo {
  const char* variable;  // "TUTTI_LOG"
  const char* type;      // "LogLevel"
  const char* standard;
  const char* doc;
  const char* accepts;
  bool agreed;  // must be equal on all ranks
  std::string (*print)(const Config& config);
};
std::span<const SettingInfo> settings();

// A Config, and all that was wrong on the way to it. A row with a bad value keeps its default.
struct ParsedConfig {
  Config config;
  std::vector<std::string> errors;    // a bad value: variable, value, what is accepted
  std::vector<std::string> warnings;  // an unknown TUTTI_ name, with the nearest that exists
};
// Entries that are no TUTTI_ variable are skipped; of a name given twice the first counts, as in
// getenv.
ParsedConfig parse_config(std::span<const std::string> environment);

// A copy of this process's environment.
std::vector<std::string> process_environment();

// The variable, if any, by which a kernel launch waits for the kernel's end, or that lets a tool work
// between launches: there no kernel may stay and wait for the program's next call.
std::optional<std::string> launches_wait(std::span<const std::string> environment);

// The agreed settings as one line, "TUTTI_ENABLE=y ...", and a hash of it: ranks compare the hash
// and say when these settings are.
std::string agreed_settings(const Config& config);
uint64_t agreed_hash(const Config& config);

}  // namespace tutti
