// tutti-info: what this installation of tutti has and does: settings, algorithms, modules, the machine.
#include <CLI/CLI.hpp>
#ifdef TUTTI_WITH_HWLOC
#include <hwloc.h>
#endif

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.hpp"
#include "base/text.hpp"
#include "coll/registry.hpp"
#include "comm/tuning_file.hpp"
#include "config.h"
#include "gpu/module.hpp"
#include "tune/select.hpp"

namespace tutti {
namespace {

void put(const std::string& line) {
  std::fputs(line.c_str(), stdout);
}

// The settings of this environment, each with where its value is from.
int print_settings(const ParsedConfig& parsed) {
  put("settings\n");
  const Config standard;
  for (const SettingInfo& row : settings()) {
    const std::string value = row.print(parsed.config);
    put(text("  {}={}{}\n      {}{}\n", row.variable, value,
             value == row.print(standard) ? "" : text("  (default {})", row.print(standard)),
             row.doc, row.agreed ? " Equal on all ranks." : ""));
  }
  for (const std::string& warning : parsed.warnings) put(text("  warning: {}\n", warning));
  for (const std::string& error : parsed.errors) put(text("  error: {}\n", error));
  return parsed.errors.empty() ? 0 : 1;
}

void print_algorithms() {
  put("algorithms between nodes, and the name of each in rules\n");
  for (size_t i = 0; i < coll_count; ++i) {
    const auto coll = static_cast<Coll>(i);
    bool any = false;
    for (const Algorithm* algorithm : algorithms()) {
      if (!algorithm->serves(coll)) continue;
      if (!any) put(text("  {}\n", name(coll)));
      any = true;
      put(text("    {}: {}\n", algorithm->scheme, algorithm->doc));
      for (const Param& param : algorithm->parameters)
        put(text("      {}={}: {}\n", param.name,
                 param.unit == Param::Unit::bytes ? setting::Bytes::print(param.standard)
                                                  : setting::Count::print(param.standard),
                 param.doc));
    }
  }
}

void print_machine() {
  put("this machine\n");
#ifdef TUTTI_WITH_HWLOC
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) == 0 && hwloc_topology_load(topology) == 0) {
    const auto count = [&](hwloc_obj_type_t type) {
      return hwloc_get_nbobjs_by_type(topology, type);
    };
    put(text("  packages {}, NUMA nodes {}, cores {}, processing units {}\n",
             count(HWLOC_OBJ_PACKAGE), count(HWLOC_OBJ_NUMANODE), count(HWLOC_OBJ_CORE),
             count(HWLOC_OBJ_PU)));
  } else {
    put("  hwloc could not read the topology\n");
  }
  if (topology != nullptr) hwloc_topology_destroy(topology);
#else
  put("  unknown: built without hwloc\n");
#endif
  put("modules\n");
  // Opening a module initialises no driver; it says what is missing when it does not open.
  for (const char* module : {"cuda", "emu"})
    put(text("  {}: {}\n", module, gpu::open_module(module).ok() ? "opens" : "does not open"));
}

void print_version() {
  put(text("tutti {}, modules in {}\n", PACKAGE_VERSION, TUTTI_MODULE_DIR));
}

// Candidates for one call, their costs, the winner and what decided it.
int print_explanation(const std::string& coll_name, const std::string& size,
                      const std::string& comm, bool messages) {
  const auto coll = find_coll(coll_name);
  const auto bytes = setting::Bytes::parse(size);
  const Result<Topology> topology = parse_topology(comm);
  if (!coll || !bytes || !topology.ok()) {
    std::fprintf(stderr, "tutti-info: --explain needs a collective, a size and a topology\n");
    return 2;
  }
  // Rules of this environment; the setting is checked where it is read.
  const ParsedConfig parsed = parse_config(process_environment());
  const Result<std::vector<TuneRule>> rules =
      parse_rules(*coll, *coll == Coll::allreduce ? parsed.config.allreduce : std::string());
  const Result<TuningFile> table = read_tuning_file(parsed.config.table);
  if (!rules.ok() || !table.ok()) return 1;
  Agreed agreed;
  agreed.coll = *coll;
  agreed.dtype = reduces(*coll) ? Dtype::f32 : Dtype::byte;
  agreed.count = *coll == Coll::barrier ? 0 : *bytes / info(agreed.dtype).extent;
  Tuning tuning;
  tuning.rules = *rules;
  tuning.table = table->rows;
  tuning.groups = !messages;
  tuning.switches = true;  // where the topology has them
  put(text("{} of {} bytes, {} ranks on {} nodes, cost model {}\n", coll_name, *bytes,
           topology->nranks, topology->node_count(), cost_models()[0].name));
  put(print(explain(agreed, *topology, tuning)));
  put("figures of the model\n");
  for (const Figure& figure : figures(cost_models()[0]))
    put(text("  {}: {} ({})\n", figure.name, figure.value, figure.source));
  return 0;
}

// Text in mdoc: a backslash and a quote are escaped, a sentence's end is a line's end, so that the
// formatter sets the space between sentences, and no line is longer than 78 characters.
std::string mdoc(std::string_view plain) {
  std::string page;
  size_t line_begin = 0;
  for (size_t at = 0; at < plain.size(); ++at) {
    const char c = plain[at];
    if (c == '\\') {
      page += "\\e";
    } else if (c == '"') {
      page += "\\(dq";
    } else if (c == ' ') {
      const size_t word_end = std::min(plain.find(' ', at + 1), plain.size());
      const bool full = page.size() - line_begin + (word_end - at) > 78;
      page += full || page.ends_with('.') ? '\n' : ' ';
      if (page.back() == '\n') line_begin = page.size();
    } else {
      page += c;
    }
  }
  return page;
}

// The page tutti-config(7), from the same rows that the library reads.
void print_man_page() {
  put(".\\\" Made by `tutti-info --man` from the table of settings; not for editing.\n"
      ".Dd November 29, 2026\n.Dt TUTTI-CONFIG 7\n.Os\n.Sh NAME\n.Nm tutti-config\n"
      ".Nd settings of tutti\n.Sh DESCRIPTION\n"
      "Every setting is an environment variable, read once in\n.Fn MPI_Init .\n"
      "A bad value is an error there, on all ranks; an unknown name that begins with\n"
      ".Ev TUTTI_\nis a warning that names the nearest one.\n"
      "Settings marked\n.Dq agreed\nchoose paths and must have one value on all ranks of a job.\n"
      ".Pp\nSizes are a number of bytes, with\n.Ql k ,\n.Ql m\nor\n.Ql g\n"
      "behind it for 1024 to that power.\nTimes carry their unit:\n.Ql ns ,\n.Ql us ,\n.Ql ms\nor\n"
      ".Ql s .\n.Sh ENVIRONMENT\n.Bl -tag -width Ds\n");
  for (const SettingInfo& row : settings()) {
    put(text(".It Ev {}\n{}\n", row.variable, mdoc(row.doc)));
    put(mdoc(text("Accepted: {}.", row.accepts)) + "\n");
    put(std::string_view(row.standard).empty() ? "Default: empty.\n"
                                               : text("Default:\n.Ql {} .\n", mdoc(row.standard)));
    if (row.agreed) put("Agreed.\n");
  }
  put(".El\n.Sh ALGORITHMS\nNames that a rule may use, with their parameters:\n"
      ".Bl -tag -width Ds\n");
  for (const Algorithm* algorithm : algorithms()) {
    std::string colls;
    for (const Coll coll : algorithm->collectives)
      colls += text("{}{}", colls.empty() ? "" : ", ", name(coll));
    put(text(".It {}\n{}\n{}\n", algorithm->scheme, mdoc(algorithm->doc),
             mdoc(text("For {}.", colls))));
    for (const Param& param : algorithm->parameters)
      put(text("Parameter\n.Cm {} :\n{}\n", param.name, mdoc(param.doc)));
  }
  put(".El\n.Sh SEE ALSO\n.Xr tutti-info 1 ,\n.Xr tutti 7\n");
}

int run(int argc, char** argv) {
  CLI::App app("What this installation of tutti has and does.");
  bool only_settings = false;
  bool only_algorithms = false;
  bool only_machine = false;
  bool man = false;
  bool messages = false;
  std::string explain_coll, bytes = "1m", comm = "node:2,gpu:8,nic:8";
  app.add_option("--explain", explain_coll, "How an algorithm is chosen for this collective");
  app.add_option("--bytes", bytes, "Bytes of the vector or of a block, for --explain");
  app.add_option("--comm", comm, "Topology, as node:32,gpu:8, for --explain");
  app.add_flag("--messages", messages,
               "As where no group steps (kernels, shared memory) work inside nodes, for --explain");
  app.add_flag("--settings", only_settings, "Settings, as this environment makes them");
  app.add_flag("--algorithms", only_algorithms, "Algorithms and their parameters");
  app.add_flag("--machine", only_machine, "This machine and the modules that open on it");
  app.add_flag("--man", man, "The manual page of all settings, tutti-config(7)");
  app.set_version_flag("--version", "tutti " PACKAGE_VERSION);
  CLI11_PARSE(app, argc, argv);
  if (man) {
    print_man_page();
    return 0;
  }
  if (!explain_coll.empty()) return print_explanation(explain_coll, bytes, comm, messages);
  const bool all = !only_settings && !only_algorithms && !only_machine;
  int status = 0;
  if (all) print_version();
  if (all || only_settings) status = print_settings(parse_config(process_environment()));
  if (all || only_algorithms) print_algorithms();
  if (all || only_machine) print_machine();
  return status;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  try {
    return tutti::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tutti-info: %s\n", error.what());
    return 2;
  }
}
