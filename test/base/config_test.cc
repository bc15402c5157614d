#include "base/config.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace tutti {
namespace {

ParsedConfig parse(std::vector<std::string> environment) {
  return parse_config(environment);
}

TEST(Config, DefaultsAreThoseOfTheTable) {
  const Config config;
  EXPECT_TRUE(config.enable);
  EXPECT_EQ(config.log_level, log::Level::warn);
  EXPECT_EQ(config.timeout_warn_ns, 30'000'000'000U);
  EXPECT_EQ(config.timeout_ns, 0U);
  EXPECT_EQ(config.gpu_lane_bytes, 40U << 20);
  EXPECT_FALSE(config.shm_oneshot_bytes.has_value());
  EXPECT_EQ(config.progress, Progress::automatic);
  EXPECT_EQ(config.require, Require{});
  for (const SettingInfo& row : settings())
    EXPECT_EQ(row.print(config), row.standard) << row.variable;
}

TEST(Config, EveryRowIsSetByItsOwnVariableAlone) {
  // A value other than the default for every type of row.
  auto other = [](const SettingInfo& row) -> std::string {
    const std::string type = row.type;
    if (type == "Flag") return std::string(row.standard) == "y" ? "n" : "y";
    if (type == "Count") return "12345";
    if (type == "Bytes" || type == "AutoBytes") return "77k";
    if (type == "Duration") return "123us";
    if (type == "LogLevel") return "trace";
    if (type == "ProgressBy") return "thread";
    if (type == "RequireList") return "gdr,native";
    if (type == "GpuModule") return "./somewhere.so";
    if (type == "Text" || type == "Rules") return "ring @ 1m..";
    ADD_FAILURE() << "no value known for a setting of type " << type;
    return "";
  };
  const Config defaults;
  for (const SettingInfo& row : settings()) {
    const std::string value = other(row);
    const ParsedConfig parsed = parse({std::string(row.variable) + "=" + value});
    EXPECT_TRUE(parsed.errors.empty() && parsed.warnings.empty()) << row.variable;
    for (const SettingInfo& each : settings())
      EXPECT_EQ(each.print(parsed.config),
                each.variable == row.variable ? value : each.print(defaults))
          << row.variable << " and " << each.variable;
  }
}

TEST(Config, FindsWhatMakesLaunchesWait) {
  const auto found = [](std::vector<std::string> environment) {
    return launches_wait(environment);
  };
  EXPECT_EQ(found({"HOME=/", "CUDA_LAUNCH_BLOCKING=1"}), "CUDA_LAUNCH_BLOCKING");
  EXPECT_EQ(found({"CUDA_DEVICE_MAX_CONNECTIONS=1"}), "CUDA_DEVICE_MAX_CONNECTIONS");
  EXPECT_EQ(found({"CUDA_INJECTION64_PATH=/tool.so"}), "CUDA_INJECTION64_PATH");
  EXPECT_EQ(found({"NV_SANITIZER_INJECTION_PORT_BASE=49152"}), "NV_SANITIZER_INJECTION_PORT_BASE");
  EXPECT_FALSE(
      found({"CUDA_LAUNCH_BLOCKING=0", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS=8",
             "CUDA_INJECTION64_PATH=", "MY_CUDA_LAUNCH_BLOCKING=1", ""}));
}

TEST(Config, BadValuesNameVariableValueAndWhatIsAccepted) {
  const ParsedConfig parsed =
      parse({"TUTTI_ENABLE=maybe", "TUTTI_TIMEOUT=10", "TUTTI_GPU_LANE=-1"});
  ASSERT_EQ(parsed.errors.size(), 3U);
  EXPECT_EQ(parsed.errors[0].find("TUTTI_ENABLE='maybe' is no value for it, accepted: y or n"), 0U);
  EXPECT_NE(parsed.errors[1].find("TUTTI_TIMEOUT='10'"), std::string::npos);
  EXPECT_NE(parsed.errors[2].find("TUTTI_GPU_LANE='-1'"), std::string::npos);
  EXPECT_TRUE(parsed.config.enable);  // a row with a bad value keeps its default
  EXPECT_EQ(parsed.config.timeout_ns, 0U);
}

TEST(Config, FlagsTakeTheUsualWords) {
  for (const char* yes : {"y", "yes", "1", "on", "true"})
    EXPECT_TRUE(parse({std::string("TUTTI_STATS=") + yes}).config.stats) << yes;
  for (const char* no : {"n", "no", "0", "off", "false"}) {
    const ParsedConfig parsed = parse({std::string("TUTTI_ENABLE=") + no});
    EXPECT_TRUE(parsed.errors.empty());
    EXPECT_FALSE(parsed.config.enable) << no;
  }
}

TEST(Config, UnknownNamesGiveOneWarningWithTheNearest) {
  const ParsedConfig parsed = parse({"TUTTI_LGO=debug", "TUTTI_LGO=info", "TUTTI_TIMEOUT_WARM=1s",
                                     "PATH=/bin", "TUTTIFRUTTI=y", "TUTTI_STATS"});
  EXPECT_TRUE(parsed.errors.empty());
  ASSERT_EQ(parsed.warnings.size(), 2U);
  EXPECT_EQ(parsed.warnings[0],
            "unknown setting TUTTI_LGO, ignored; the nearest that exists is TUTTI_LOG");
  EXPECT_NE(parsed.warnings[1].find("nearest that exists is TUTTI_TIMEOUT_WARN"),
            std::string::npos);
}

TEST(Config, OptionsOfUcxAreUcxsOwn) {
  ParsedConfig parsed = parse_config(std::vector<std::string>{"TUTTI_UCX_TLS=tcp"});
  EXPECT_TRUE(parsed.errors.empty());
  EXPECT_TRUE(parsed.warnings.empty());
}

TEST(Config, TheFirstOfTwoEntriesCounts) {
  const ParsedConfig parsed = parse({"TUTTI_STATS=y", "TUTTI_STATS=n"});
  EXPECT_TRUE(parsed.config.stats);
}

TEST(Config, OnlyAgreedSettingsChangeTheHash) {
  const Config defaults;
  for (const SettingInfo& row : settings()) {
    for (const char* value : {"n", "y", "9", "9k", "9s", "debug", "thread", "p2p", "/x"}) {
      const ParsedConfig parsed = parse({std::string(row.variable) + "=" + value});
      if (!parsed.errors.empty() || row.print(parsed.config) == row.standard) continue;
      EXPECT_EQ(agreed_hash(parsed.config) != agreed_hash(defaults), row.agreed) << row.variable;
    }
  }
}

TEST(Config, TheEnvironmentIsReadWhole) {
  ASSERT_EQ(setenv("TUTTI_STATS", "y", 1), 0);
  const ParsedConfig parsed = parse_config(process_environment());
  unsetenv("TUTTI_STATS");
  EXPECT_TRUE(parsed.config.stats);
}

TEST(Bytes, HasOneSpellingForEverySize) {
  EXPECT_EQ(setting::Bytes::parse("512k"), 512U << 10);
  EXPECT_EQ(setting::Bytes::parse("0"), 0U);
  EXPECT_EQ(setting::Bytes::parse("18446744073709551615"), UINT64_MAX);
  for (const char* bad : {"", "k", "1K", "1 k", " 1", "+1", "-1", "1.5m", "1kb", "0x10",
                          "18446744073709551616", "18014398509481984k"})
    EXPECT_FALSE(setting::Bytes::parse(bad)) << bad;
}

TEST(Duration, NeedsAUnitAndIsNeverZero) {
  EXPECT_EQ(setting::Duration::parse("10us"), 10'000U);
  EXPECT_EQ(setting::Duration::parse("30s"), 30'000'000'000U);
  EXPECT_EQ(setting::Duration::parse("off"), 0U);
  for (const char* bad : {"", "10", "0s", "s", "1h", "-1s", "99999999999s"})
    EXPECT_FALSE(setting::Duration::parse(bad)) << bad;
}

TEST(RequireList, IsAListApartByCommas) {
  EXPECT_EQ(setting::RequireList::parse(""), Require{});
  const auto both = setting::RequireList::parse("native,p2p");
  ASSERT_TRUE(both);
  EXPECT_TRUE(both->p2p && both->native && !both->gdr && !both->sharp);
  for (const char* bad : {"nvlink", "p2p,", ",p2p", "p2p,,gdr", "p2p gdr"})
    EXPECT_FALSE(setting::RequireList::parse(bad)) << bad;
}

TEST(Setting, PrintedValuesParseToThemselves) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 2000; ++i) {
    // Small and large, round and not.
    const uint64_t value = (random() >> (random() % 64)) << (random() % 3 == 0 ? 10 : 0);
    EXPECT_EQ(setting::Bytes::parse(setting::Bytes::print(value)), value);
    EXPECT_EQ(setting::Duration::parse(setting::Duration::print(value)), value);
    EXPECT_EQ(setting::Count::parse(setting::Count::print(value)), value);
    const setting::AutoBytes::Value maybe(value);
    EXPECT_EQ(setting::AutoBytes::parse(setting::AutoBytes::print(maybe)), maybe);
  }
}

}  // namespace
}  // namespace tutti
