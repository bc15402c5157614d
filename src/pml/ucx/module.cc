// The module's entry: checks of the library that is in the process, and the options of its context.
#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "pml/ucx/network.hpp"
#include "pml/ucx/tag.hpp"

namespace tutti::ucx {

namespace {

const net::Services* host = nullptr;

struct Version {
  unsigned major = 0, minor = 0, release = 0;
  constexpr bool operator<(const Version& other) const {
    return major != other.major ? major < other.major : minor < other.minor;
  }
};

Version library_version() {
  Version version;
  ucp_get_version(&version.major, &version.minor, &version.release);
  return version;
}

// Files of libucp in the process: two copies share no state and hang in each other's sockets.
std::set<std::string> loaded_copies() {
  std::set<std::string> names;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        const std::string_view path = info->dlpi_name != nullptr ? info->dlpi_name : "";
        if (path.substr(path.rfind('/') + 1).starts_with("libucp"))
          static_cast<std::set<std::string>*>(out)->emplace(path);
        return 0;
      },
      &names);
  return names;
}

bool any_verbs_device() {
  std::error_code error;
  std::filesystem::directory_iterator devices("/sys/class/infiniband", error);
  return !error && devices != std::filesystem::directory_iterator();
}

// Options of the context. What the user set for the MPI (UCX_*) must not change what tutti's
// context does, so each is set here unless the user gave it to tutti (TUTTI_UCX_*). An option whose
// name the library does not know makes it warn: hence the versions.
enum class Needs : uint8_t { nothing, verbs, no_verbs, tcp };

struct OptionRow {
  const char* key;
  const char* value;
  Version from;
  Version before;  // 0.0: no end
  Needs needs = Needs::nothing;
};

constexpr OptionRow option_rows[] = {
    // One rail each: striping is the schedule's.
    {"MAX_EAGER_RAILS", "1", {1, 13}, {}},
    {"MAX_RNDV_RAILS", "1", {1, 13}, {}},
    {"RNDV_THRESH", "auto", {1, 13}, {}, Needs::verbs},
    // TCP copies whatever is done; a handshake only adds round trips, and turns of both processes. At
    // 1 Gbit/s an allreduce of 256 KiB on four hosts took 9 ms in place of 35 (2-core machine, busy,
    // 2026-11-30).
    {"RNDV_THRESH", "inf", {1, 13}, {}, Needs::no_verbs},
    {"RNDV_SCHEME", "auto", {1, 13}, {}},
    {"ZCOPY_THRESH", "auto", {1, 13}, {}},
    // Registration caches hook the program's allocator (law 4).
    {"RCACHE_ENABLE", "n", {1, 13}, {}},
    {"REG_METHODS", "direct", {1, 13}, {1, 15}, Needs::verbs},
    // A peer that does not answer must not block a call.
    {"CONN_NB", "y", {1, 13}, {1, 17}, Needs::tcp},
    {"TCP_CONN_NB", "y", {1, 17}, {}, Needs::tcp},
};

// Device memory is not this context's business, and UCX's CUDA part would touch the program's CUDA
// context (law 4): so the transports are named.
constexpr const char* transports = "self,sm,tcp";
constexpr const char* transports_with_verbs = "self,sm,tcp,ib";

bool given_by_user(const net::Options& options, std::string_view key) {
  for (const char* const* name = options.user_options; name != nullptr && *name != nullptr; ++name)
    if (key == *name) return true;
  return false;
}

void set_option(ucp_config_t* config, const net::Options& options, const char* key,
                const char* value) {
  if (given_by_user(options, key)) return;
  if (ucs_status_t status = ucp_config_modify(config, key, value); status != UCS_OK)
    say(Level::debug, text("UCX refuses option {}={}: {}", key, value, ucs_status_string(status)));
}

void set_options(ucp_config_t* config, const net::Options& options) {
  const Version version = library_version();
  const bool verbs = any_verbs_device();
  // Whether a transport that the user chose is tcp is not known here; its option stays as it is.
  const bool tcp = !given_by_user(options, "TLS");
  for (const OptionRow& row : option_rows) {
    const bool ended = row.before.major != 0 && !(version < row.before);
    if (version < row.from || ended || (row.needs == Needs::verbs && !verbs) ||
        (row.needs == Needs::no_verbs && verbs) || (row.needs == Needs::tcp && !tcp))
      continue;
    set_option(config, options, row.key, row.value);
  }
  set_option(config, options, "TLS", verbs ? transports_with_verbs : transports);
  const bool any = std::string_view(options.devices) == "auto";
  set_option(config, options, "NET_DEVICES", any ? "all" : options.devices);
}

Status open(const net::Options& options, net::Network** out) {
  return UcxNetwork::open(options, out);
}

const net::Module* make_module() {
  static std::string version_text;
  static net::Module table;
  const Version version = library_version();
  version_text = text("{}.{}.{}", version.major, version.minor, version.release);
  const Version headers{UCP_API_MAJOR, UCP_API_MINOR, 0};
  if (version < headers || version.major != headers.major) {
    say(Level::warn, text("UCX {} is in the process, but the module was built for {}.{} or later",
                          version_text, headers.major, headers.minor));
    return nullptr;
  }
  if (std::set<std::string> copies = loaded_copies(); copies.size() > 1) {
    std::string names;
    for (const std::string& name : copies) names += " " + name;
    say(Level::warn, text("several copies of UCX are in the process, using none:{}", names));
    return nullptr;
  }
  table.name = "ucx";
  table.version = version_text.c_str();
  table.open = open;
  return &table;
}

}  // namespace

void say(Level level, const std::string& message) {
  if (host != nullptr && host->log != nullptr)
    host->log(static_cast<int>(level), "ucx", message.c_str());
}

void set_services(const net::Services* services) {
  host = services;
}

Status UcxNetwork::open(const net::Options& options, net::Network** out) {
  std::unique_ptr<UcxNetwork> network(new UcxNetwork(options.several_threads));
  TUTTI_TRY(network->start(options));
  *out = network.release();
  return {};
}

Status UcxNetwork::start(const net::Options& options) {
  ucp_config_t* config = nullptr;
  if (ucs_status_t status = ucp_config_read("TUTTI", nullptr, &config); status != UCS_OK) {
    say(Level::warn, text("UCX cannot read its settings: {}", ucs_status_string(status)));
    return Code::bad_setting;
  }
  set_options(config, options);
  rdma_ = any_verbs_device() && !given_by_user(options, "TLS");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
                      UCP_PARAM_FIELD_TAG_SENDER_MASK | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_TAG;
  params.estimated_num_eps = options.expected_peers;
  params.tag_sender_mask = sender_mask;
  params.name = "tutti";
  const ucs_status_t status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  if (status != UCS_OK) {
    context_ = nullptr;
    say(Level::warn, text("UCX finds no usable transport (devices: {}): {}", options.devices,
                          ucs_status_string(status)));
    return Code::no_device;
  }
  return open_worker();
}

}  // namespace tutti::ucx

extern "C" __attribute__((visibility("default"))) const tutti::net::Module* tutti_net_module(
    const tutti::net::Services* services) {
  tutti::ucx::set_services(services);
  return tutti::ucx::make_module();
}
