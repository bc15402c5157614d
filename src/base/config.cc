#include "base/config.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "base/hash.hpp"

namespace tutti {

namespace setting {

namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};

// Largest first, so that print finds the shortest form.
constexpr std::array<Unit, 4> byte_units = {
    {{"g", 1 << 30}, {"m", 1 << 20}, {"k", 1 << 10}, {"", 1}}};
constexpr std::array<Unit, 4> time_units = {
    {{"s", 1000000000}, {"ms", 1000000}, {"us", 1000}, {"ns", 1}}};

// "512k" as 512 * 1024. Nothing for an unknown unit, a sign, a blank or a number that does not fit.
std::optional<uint64_t> parse_scaled(std::string_view text, std::span<const Unit> units) {
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  auto [rest, fault] = std::from_chars(text.data(), end, number);
  if (fault != std::errc()) return std::nullopt;
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  for (const Unit& known : units) {
    if (unit != known.name) continue;
    if (number > std::numeric_limits<uint64_t>::max() / known.factor) return std::nullopt;
    return number * known.factor;
  }
  return std::nullopt;
}

std::string print_scaled(uint64_t value, std::span<const Unit> units) {
  for (const Unit& unit : units)
    if (value >= unit.factor && value % unit.factor == 0)
      return text("{}{}", value / unit.factor, unit.name);
  return text("{}{}", value, units.back().name);
}

template <class Value>
struct Word {
  std::string_view name;
  Value value;
};

template <class Value, size_t count>
std::optional<Value> parse_word(std::string_view text,
                                const std::array<Word<Value>, count>& words) {
  for (const Word<Value>& word : words)
    if (text == word.name) return word.value;
  return std::nullopt;
}

template <class Value, size_t count>
std::string print_word(Value value, const std::array<Word<Value>, count>& words) {
  for (const Word<Value>& word : words)
    if (value == word.value) return std::string(word.name);
  return "?";
}

// The first of a value is the one that is printed.
constexpr std::array<Word<bool>, 10> flags = {{{"y", true},
                                               {"n", false},
                                               {"yes", true},
                                               {"no", false},
                                               {"1", true},
                                               {"0", false},
                                               {"on", true},
                                               {"off", false},
                                               {"true", true},
                                               {"false", false}}};
constexpr std::array<Word<log::Level>, 6> levels = {{{"off", log::Level::off},
                                                     {"error", log::Level::error},
                                                     {"warn", log::Level::warn},
                                                     {"info", log::Level::info},
                                                     {"debug", log::Level::debug},
                                                     {"trace", log::Level::trace}}};
constexpr std::array<Word<Progress>, 3> progress_words = {
    {{"auto", Progress::automatic}, {"hook", Progress::hook}, {"thread", Progress::thread}}};
constexpr std::array<Word<bool Require::*>, 4> require_words = {{{"p2p", &Require::p2p},
                                                                 {"gdr", &Require::gdr},
                                                                 {"sharp", &Require::sharp},
                                                                 {"native", &Require::native}}};
constexpr std::array<std::string_view, 4> gpu_modules = {"auto", "cuda", "emu", "none"};

}  // namespace

std::optional<bool> Flag::parse(std::string_view text) {
  return parse_word(text, flags);
}
std::string Flag::print(bool value) {
  return print_word(value, flags);
}

std::optional<uint64_t> Count::parse(std::string_view text) {
  constexpr std::array<Unit, 1> one = {{{"", 1}}};
  return parse_scaled(text, one);
}
std::string Count::print(uint64_t value) {
  return text("{}", value);
}

std::optional<uint64_t> Bytes::parse(std::string_view text) {
  return parse_scaled(text, byte_units);
}
std::string Bytes::print(uint64_t value) {
  return print_scaled(value, byte_units);
}

std::optional<AutoBytes::Value> AutoBytes::parse(std::string_view text) {
  if (text == "auto") return Value();
  const std::optional<uint64_t> bytes = Bytes::parse(text);
  if (!bytes) return std::nullopt;
  return Value(*bytes);
}
std::string AutoBytes::print(Value value) {
  return value ? Bytes::print(*value) : "auto";
}

std::optional<uint64_t> Duration::parse(std::string_view text) {
  if (text == "off") return 0;
  // 0 is what off becomes; a time of nothing would say the opposite of what it does.
  const std::optional<uint64_t> time_ns = parse_scaled(text, time_units);
  return time_ns && *time_ns > 0 ? time_ns : std::nullopt;
}
std::string Duration::print(uint64_t value) {
  return value == 0 ? "off" : print_scaled(value, time_units);
}

std::optional<std::string> Text::parse(std::string_view text) {
  return std::string(text);
}
std::string Text::print(const std::string& value) {
  return value;
}

std::optional<std::string> GpuModule::parse(std::string_view text) {
  const bool named = std::find(gpu_modules.begin(), gpu_modules.end(), text) != gpu_modules.end();
  if (!named && text.find('/') == std::string_view::npos) return std::nullopt;
  return std::string(text);
}

std::optional<log::Level> LogLevel::parse(std::string_view text) {
  return parse_word(text, levels);
}
std::string LogLevel::print(log::Level value) {
  return print_word(value, levels);
}

std::optional<Progress> ProgressBy::parse(std::string_view text) {
  return parse_word(text, progress_words);
}
std::string ProgressBy::print(Progress value) {
  return print_word(value, progress_words);
}

std::optional<Require> RequireList::parse(std::string_view text) {
  Require require;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::optional<bool Require::*> member = parse_word(text.substr(0, comma), require_words);
    const bool trailing = comma != std::string_view::npos && comma + 1 == text.size();
    if (!member || trailing) return std::nullopt;
    require.*(*member) = true;
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return require;
}
std::string RequireList::print(Require value) {
  std::string list;
  for (const auto& word : require_words)
    if (value.*(word.value)) list += (list.empty() ? "" : ",") + std::string(word.name);
  return list;
}

}  // namespace setting

namespace {

constexpr std::string_view prefix = "TUTTI_";
constexpr std::string_view ucx_prefix = "TUTTI_UCX_";

// A row with the way to set its field: what parse_config needs beside SettingInfo.
using Setter = bool (*)(Config& config, std::string_view value);

template <class Type, auto field>
bool set_field(Config& config, std::string_view value) {
  auto parsed = Type::parse(value);
  if (!parsed) return false;
  config.*field = *std::move(parsed);
  return true;
}

template <class Type, auto field>
std::string print_field(const Config& config) {
  return Type::print(config.*field);
}

#define TUTTI_ROW(field, Type, name, standard, doc, agreed) \
  {"TUTTI_" name,                                           \
   #Type,                                                   \
   standard,                                                \
   doc,                                                     \
   setting::Type::accepts,                                  \
   agreed,                                                  \
   print_field<setting::Type, &Config::field>},
#define TUTTI_VAR(field, Type, name, standard, doc) \
  TUTTI_ROW(field, Type, name, standard, doc, false)
#define TUTTI_VAR_AGREED(field, Type, name, standard, doc) \
  TUTTI_ROW(field, Type, name, standard, doc, true)
constexpr SettingInfo rows[] = {
#include "base/config.def"
};
#undef TUTTI_VAR
#undef TUTTI_VAR_AGREED
#undef TUTTI_ROW

#define TUTTI_VAR(field, Type, name, standard, doc) set_field<setting::Type, &Config::field>,
#define TUTTI_VAR_AGREED TUTTI_VAR
constexpr Setter setters[] = {
#include "base/config.def"
};
#undef TUTTI_VAR
#undef TUTTI_VAR_AGREED

// Insertions, deletions, substitutions and swaps of neighbours that lead from one name to the other
// (optimal string alignment distance).
size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<size_t> before_last(to.size() + 1);
  std::vector<size_t> last(to.size() + 1);
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= from.size(); ++i) {
    std::swap(before_last, last);
    std::swap(last, row);
    row[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t changed = from[i - 1] == to[j - 1] ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + changed});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row.back();
}

std::string_view nearest_variable(std::string_view unknown) {
  return std::min_element(std::begin(rows), std::end(rows),
                          [&](const SettingInfo& a, const SettingInfo& b) {
                            return edit_distance(unknown, a.variable) <
                                   edit_distance(unknown, b.variable);
                          })
      ->variable;
}

}  // namespace

std::span<const SettingInfo> settings() {
  return rows;
}

ParsedConfig parse_config(std::span<const std::string> environment) {
  ParsedConfig parsed;
  std::set<std::string_view> seen;
  for (const std::string& entry : environment) {
    const std::string_view name = std::string_view(entry).substr(0, entry.find('='));
    if (!name.starts_with(prefix) || name.size() == entry.size()) continue;
    // Options of the UCX module's context, under UCX's own names: UCX reads and checks them.
    if (name.starts_with(ucx_prefix)) continue;
    if (!seen.insert(name).second) continue;
    const std::string_view value = std::string_view(entry).substr(name.size() + 1);
    const auto* row = std::find_if(std::begin(rows), std::end(rows),
                                   [&](const SettingInfo& info) { return name == info.variable; });
    if (row == std::end(rows))
      parsed.warnings.push_back(text("unknown setting {}, ignored; the nearest that exists is {}",
                                     name, nearest_variable(name)));
    else if (!setters[row - rows](parsed.config, value))
      parsed.errors.push_back(
          text("{}='{}' is no value for it, accepted: {}", name, value, row->accepts));
  }
  return parsed;
}

std::vector<std::string> process_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    entries.emplace_back(*entry);
  return entries;
}

std::optional<std::string> launches_wait(std::span<const std::string> environment) {
  // Blocking launches; one channel for all streams; libraries that the driver is told to load
  // (compute-sanitizer, ncu, Nsight Systems).
  for (const std::string& entry : environment) {
    const size_t equals = std::min(entry.find('='), entry.size());
    const std::string_view name = std::string_view(entry).substr(0, equals);
    const std::string_view value =
        std::string_view(entry).substr(std::min(equals + 1, entry.size()));
    const bool waits = (name == "CUDA_LAUNCH_BLOCKING" && !value.empty() && value != "0") ||
                       (name == "CUDA_DEVICE_MAX_CONNECTIONS" && value == "1") ||
                       (name == "CUDA_INJECTION64_PATH" && !value.empty()) ||
                       (name == "NVTX_INJECTION64_PATH" && !value.empty()) ||
                       name.starts_with("NV_SANITIZER_") || name.starts_with("CUDBG_");
    if (waits) return std::string(name);
  }
  return std::nullopt;
}

std::string agreed_settings(const Config& config) {
  std::string line;
  for (const SettingInfo& row : rows)
    if (row.agreed)
      line += text("{}{}={}", line.empty() ? "" : " ", row.variable, row.print(config));
  return line;
}

uint64_t agreed_hash(const Config& config) {
  return hash_of(agreed_settings(config));
}

}  // namespace tutti
