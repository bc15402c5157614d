// tutti-perf: how long a collective takes in this MPI program, with whatever is loaded.
//
//   mpirun -n 2 tutti-perf                                   the MPI alone
//   mpirun -n 2 -x LD_PRELOAD=libtutti.so tutti-perf         with tutti
//
// It links to the MPI only. A sample is the time of a batch of calls, divided by their number, of
// the slowest rank. For each size it prints median, 99th percentile, spread (interquartile range
// over median) and the share of the calls that tutti's own paths took, from tutti's counters;
// --json keeps every sample.
#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kinds.hpp"

namespace {

using Json = nlohmann::ordered_json;

struct Type {
  MPI_Datatype handle;
  size_t bytes;
  bool real;
};

const std::map<std::string, Type>& types() {
  static const std::map<std::string, Type> all = {
      {"f32", {MPI_FLOAT, 4, true}},    {"f64", {MPI_DOUBLE, 8, true}},
      {"i8", {MPI_INT8_T, 1, false}},   {"i32", {MPI_INT32_T, 4, false}},
      {"i64", {MPI_INT64_T, 8, false}}, {"u64", {MPI_UINT64_T, 8, false}},
      {"byte", {MPI_BYTE, 1, false}},
  };
  return all;
}

const std::map<std::string, MPI_Op>& operations() {
  static const std::map<std::string, MPI_Op> all = {
      {"sum", MPI_SUM}, {"min", MPI_MIN}, {"max", MPI_MAX}, {"prod", MPI_PROD}};
  return all;
}

struct Options {
  std::string collective = "allreduce";
  std::vector<size_t> sizes;
  size_t min_bytes = 8;
  size_t max_bytes = 16 << 20;
  std::string dtype = "f32";
  std::string op = "sum";
  std::string kind = "host";
  std::string memory;
  bool in_place = false;
  bool nonblocking = false;
  int iterations = 0;
  double seconds = 0.25;
  std::string json;
};

// ---- What is measured. ----

struct Call {
  const void* send;
  void* recv;
  int count;
  MPI_Datatype type;
  MPI_Op op;
  MPI_Comm comm;
  // Of the forms with a count for each rank: all the same, one behind the other.
  const int* counts = nullptr;
  const int* displs = nullptr;
};

struct Collective {
  const char* name;
  // Buffer sizes in blocks of the printed size, and whether the result is checked as a reduction.
  bool all_send;
  bool all_recv;
  bool reduces;
  bool can_be_in_place;
  int (*blocking)(const Call& c);
  int (*nonblocking)(const Call& c, MPI_Request* request);
};

const Collective collectives[] = {
    {"allreduce", false, false, true, true,
     [](const Call& c) { return MPI_Allreduce(c.send, c.recv, c.count, c.type, c.op, c.comm); },
     [](const Call& c, MPI_Request* r) {
       return MPI_Iallreduce(c.send, c.recv, c.count, c.type, c.op, c.comm, r);
     }},
    {"bcast", false, false, false, false,
     [](const Call& c) { return MPI_Bcast(c.recv, c.count, c.type, 0, c.comm); },
     [](const Call& c, MPI_Request* r) {
       return MPI_Ibcast(c.recv, c.count, c.type, 0, c.comm, r);
     }},
    {"allgather", false, true, false, false,
     [](const Call& c) {
       return MPI_Allgather(c.send, c.count, c.type, c.recv, c.count, c.type, c.comm);
     },
     [](const Call& c, MPI_Request* r) {
       return MPI_Iallgather(c.send, c.count, c.type, c.recv, c.count, c.type, c.comm, r);
     }},
    {"alltoall", true, true, false, false,
     [](const Call& c) {
       return MPI_Alltoall(c.send, c.count, c.type, c.recv, c.count, c.type, c.comm);
     },
     [](const Call& c, MPI_Request* r) {
       return MPI_Ialltoall(c.send, c.count, c.type, c.recv, c.count, c.type, c.comm, r);
     }},
    {"reduce_scatter_block", true, false, false, false,
     [](const Call& c) {
       return MPI_Reduce_scatter_block(c.send, c.recv, c.count, c.type, c.op, c.comm);
     },
     [](const Call& c, MPI_Request* r) {
       return MPI_Ireduce_scatter_block(c.send, c.recv, c.count, c.type, c.op, c.comm, r);
     }},
    {"reduce_scatter", true, false, false, false,
     [](const Call& c) {
       return MPI_Reduce_scatter(c.send, c.recv, c.counts, c.type, c.op, c.comm);
     },
     [](const Call& c, MPI_Request* r) {
       return MPI_Ireduce_scatter(c.send, c.recv, c.counts, c.type, c.op, c.comm, r);
     }},
    {"reduce", false, false, false, false,
     [](const Call& c) { return MPI_Reduce(c.send, c.recv, c.count, c.type, c.op, 0, c.comm); },
     [](const Call& c, MPI_Request* r) {
       return MPI_Ireduce(c.send, c.recv, c.count, c.type, c.op, 0, c.comm, r);
     }},
    {"scan", false, false, false, false,
     [](const Call& c) { return MPI_Scan(c.send, c.recv, c.count, c.type, c.op, c.comm); },
     [](const Call& c, MPI_Request* r) {
       return MPI_Iscan(c.send, c.recv, c.count, c.type, c.op, c.comm, r);
     }},
    {"exscan", false, false, false, false,
     [](const Call& c) { return MPI_Exscan(c.send, c.recv, c.count, c.type, c.op, c.comm); },
     [](const Call& c, MPI_Request* r) {
       return MPI_Iexscan(c.send, c.recv, c.count, c.type, c.op, c.comm, r);
     }},
    {"gather", false, true, false, false,
     [](const Call& c) {
       return MPI_Gather(c.send, c.count, c.type, c.recv, c.count, c.type, 0, c.comm);
     },
     [](const Call& c, MPI_Request* r) {
       return MPI_Igather(c.send, c.count, c.type, c.recv, c.count, c.type, 0, c.comm, r);
     }},
    {"gatherv", false, true, false, false,
     [](const Call& c) {
       return MPI_Gatherv(c.send, c.count, c.type, c.recv, c.counts, c.displs, c.type, 0, c.comm);
     },
     [](const Call& c, MPI_Request* r) {
       return MPI_Igatherv(c.send, c.count, c.type, c.recv, c.counts, c.displs, c.type, 0, c.comm,
                           r);
     }},
    {"scatter", true, false, false, false,
     [](const Call& c) {
       return MPI_Scatter(c.send, c.count, c.type, c.recv, c.count, c.type, 0, c.comm);
     },
     [](const Call& c, MPI_Request* r) {
       return MPI_Iscatter(c.send, c.count, c.type, c.recv, c.count, c.type, 0, c.comm, r);
     }},
    {"scatterv", true, false, false, false,
     [](const Call& c) {
       return MPI_Scatterv(c.send, c.counts, c.displs, c.type, c.recv, c.count, c.type, 0, c.comm);
     },
     [](const Call& c, MPI_Request* r) {
       return MPI_Iscatterv(c.send, c.counts, c.displs, c.type, c.recv, c.count, c.type, 0, c.comm,
                            r);
     }},
    {"allgatherv", false, true, false, false,
     [](const Call& c) {
       return MPI_Allgatherv(c.send, c.count, c.type, c.recv, c.counts, c.displs, c.type, c.comm);
     },
     [](const Call& c, MPI_Request* r) {
       return MPI_Iallgatherv(c.send, c.count, c.type, c.recv, c.counts, c.displs, c.type, c.comm,
                              r);
     }},
    {"alltoallv", true, true, false, false,
     [](const Call& c) {
       return MPI_Alltoallv(c.send, c.counts, c.displs, c.type, c.recv, c.counts, c.displs, c.type,
                            c.comm);
     },
     [](const Call& c, MPI_Request* r) {
       return MPI_Ialltoallv(c.send, c.counts, c.displs, c.type, c.recv, c.counts, c.displs, c.type,
                             c.comm, r);
     }},
    {"barrier", false, false, false, false, [](const Call& c) { return MPI_Barrier(c.comm); },
     [](const Call& c, MPI_Request* r) { return MPI_Ibarrier(c.comm, r); }},
};

// ---- tutti's counters, where it is loaded. ----

struct Counts {
  unsigned long long calls = 0;
  unsigned long long native = 0;
  unsigned long long bounce = 0;
  unsigned long long below = 0;
};

struct Tutti {
  unsigned long long (*calls)(const char*) = nullptr;
  unsigned long long (*path)(const char*, int) = nullptr;
  const char* (*version)() = nullptr;
  int (*verdict)(const void*, char*, int) = nullptr;
  bool loaded() const { return calls != nullptr && path != nullptr && version != nullptr; }
  Counts count(const char* collective) const {
    if (!loaded()) return {};
    // enum tutti_path of tutti.h: native 0, bounce 1, below 2.
    return {calls(collective), path(collective, 0), path(collective, 1), path(collective, 2)};
  }
};

Tutti find_tutti() {
  Tutti t;
  t.calls = reinterpret_cast<decltype(t.calls)>(dlsym(RTLD_DEFAULT, "tutti_count_calls"));
  t.path = reinterpret_cast<decltype(t.path)>(dlsym(RTLD_DEFAULT, "tutti_count_path"));
  t.version = reinterpret_cast<decltype(t.version)>(dlsym(RTLD_DEFAULT, "tutti_version"));
  t.verdict = reinterpret_cast<decltype(t.verdict)>(dlsym(RTLD_DEFAULT, "tutti_comm_verdict"));
  return t;
}

// ---- Measurement. ----

struct Job {
  Options options;
  const Collective* collective = nullptr;
  Type type;
  MPI_Op op;
  int rank = 0;
  int nranks = 0;
  Tutti tutti;
  std::string verdict;
};

struct Row {
  size_t bytes = 0;
  int batch = 0;
  std::vector<double> samples_us;  // sorted; of the slowest rank
  Counts counts;
};

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "tutti-perf: %s\n", why.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

void run_once(const Job& job, const Call& call) {
  int rc = MPI_SUCCESS;
  if (job.options.nonblocking) {
    MPI_Request request = MPI_REQUEST_NULL;
    rc = job.collective->nonblocking(call, &request);
    if (rc == MPI_SUCCESS) rc = MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else {
    rc = job.collective->blocking(call);
  }
  if (rc != MPI_SUCCESS) fail("a call failed");
}

double time_batch(const Job& job, const Call& call, int batch) {
  const double begin = now_us();
  for (int i = 0; i < batch; ++i) run_once(job, call);
  return (now_us() - begin) / batch;
}

// Every element rank + 1, so that a sum is known on every rank and exact.
std::vector<char> pattern(const Job& job, size_t elements) {
  std::vector<char> bytes(elements * job.type.bytes);
  const int value = job.rank + 1;
  for (size_t i = 0; i < elements; ++i) {
    char* to = bytes.data() + i * job.type.bytes;
    if (job.type.real && job.type.bytes == 4) {
      const float f = static_cast<float>(value);
      std::memcpy(to, &f, 4);
    } else if (job.type.real) {
      const double d = value;
      std::memcpy(to, &d, 8);
    } else {
      const int64_t n = value;
      std::memcpy(to, &n, job.type.bytes);
    }
  }
  return bytes;
}

bool sum_is_right(const Job& job, const std::vector<char>& result) {
  Job expected = job;
  expected.rank = job.nranks * (job.nranks + 1) / 2 - 1;
  return result == pattern(expected, result.size() / job.type.bytes);
}

// Slowest rank's time of each sample, on rank 0.
std::vector<double> slowest(const Job& job, const std::vector<double>& mine) {
  std::vector<double> all(mine.size());
  MPI_Reduce(mine.data(), all.data(), static_cast<int>(mine.size()), MPI_DOUBLE, MPI_MAX, 0,
             MPI_COMM_WORLD);
  if (job.rank != 0) all.clear();
  return all;
}

// Rank 0's view of how many calls a sample and how many samples; the same on all.
void plan(const Job& job, const Call& call, int* batch, int* samples) {
  constexpr double sample_us = 20;  // long beside the clock's own 30 ns
  constexpr int least = 11;
  constexpr int most = 2000;
  time_batch(job, call, 3);
  MPI_Barrier(MPI_COMM_WORLD);
  // The best of some, as one may meet another process on its core.
  double first_us = time_batch(job, call, 4);
  for (int i = 0; i < 4; ++i) first_us = std::min(first_us, time_batch(job, call, 4));
  first_us = std::max(first_us, 0.01);
  int numbers[2];
  numbers[0] = std::clamp(static_cast<int>(sample_us / first_us), 1, 1000);
  const double budget_us = job.options.seconds * 1e6;
  numbers[1] = job.options.iterations != 0
                   ? std::max(1, job.options.iterations / numbers[0])
                   : static_cast<int>(std::clamp(budget_us / (first_us * numbers[0]), double{least},
                                                 double{most}));
  MPI_Bcast(numbers, 2, MPI_INT, 0, MPI_COMM_WORLD);
  *batch = numbers[0];
  *samples = numbers[1];
}

Row measure(const Job& job, size_t bytes) {
  const Collective& c = *job.collective;
  const size_t elements = std::max<size_t>(bytes / job.type.bytes, 1);
  const kinds::Kind kind = kinds::find_kind(job.options.kind);
  const std::vector<char> input = pattern(job, elements * (c.all_send ? job.nranks : 1));
  kinds::Memory send(kind, input);
  kinds::Memory recv(
      kind,
      job.options.in_place
          ? input
          : std::vector<char>(elements * job.type.bytes * (c.all_recv ? job.nranks : 1), 0x55));
  const auto count = static_cast<int>(elements);
  const std::vector<int> counts(static_cast<size_t>(job.nranks), count);
  std::vector<int> displs;
  for (int r = 0; r < job.nranks; ++r) displs.push_back(r * count);
  Call call = {job.options.in_place ? MPI_IN_PLACE : send.data(),
               recv.data(),
               count,
               job.type.handle,
               job.op,
               MPI_COMM_WORLD,
               counts.data(),
               displs.data()};
  run_once(job, call);
  if (c.reduces && job.options.op == "sum" && job.type.bytes > 1 && !sum_is_right(job, recv.read()))
    fail("wrong result of " + std::to_string(bytes) + " bytes");
  // In place, values would grow without end, and with them the time of an addition of denormals or
  // infinities; zeros stay.
  if (job.options.in_place) recv.write(std::vector<char>(input.size(), 0));
  Row row;
  row.bytes = elements * job.type.bytes;
  int samples = 0;
  plan(job, call, &row.batch, &samples);
  std::vector<double> mine(samples);
  const Counts before = job.tutti.count(c.name);
  MPI_Barrier(MPI_COMM_WORLD);
  for (double& sample : mine) sample = time_batch(job, call, row.batch);
  const Counts after = job.tutti.count(c.name);
  row.counts = {after.calls - before.calls, after.native - before.native,
                after.bounce - before.bounce, after.below - before.below};
  row.samples_us = slowest(job, mine);
  std::sort(row.samples_us.begin(), row.samples_us.end());
  return row;
}

double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const size_t low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - std::floor(at));
}

// ---- Output. ----

void print_head(const Job& job) {
  char library[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(library, &length);
  library[std::strcspn(library, ",\n")] = '\0';
  std::printf("# %s%s %s %s%s, %d ranks, %s memory, %s, %s%s\n", job.options.nonblocking ? "i" : "",
              job.collective->name, job.options.dtype.c_str(), job.options.op.c_str(),
              job.options.in_place ? " in place" : "", job.nranks, job.options.kind.c_str(),
              library, job.tutti.loaded() ? "tutti " : "without tutti",
              job.tutti.loaded() ? job.tutti.version() : "");
  if (!job.verdict.empty()) std::printf("# %s\n", job.verdict.c_str());
  std::printf("# %10s %8s %6s %12s %12s %9s %10s %8s\n", "bytes", "samples", "batch", "median_us",
              "p99_us", "spread_%", "GB/s", "native_%");
}

void print_row(const Row& row) {
  const double median = quantile(row.samples_us, 0.5);
  const double spread =
      100 * (quantile(row.samples_us, 0.75) - quantile(row.samples_us, 0.25)) / median;
  char native[16] = "-";
  if (row.counts.calls != 0)
    std::snprintf(
        native, sizeof native, "%.0f",
        100.0 * static_cast<double>(row.counts.native) / static_cast<double>(row.counts.calls));
  std::printf("%12zu %8zu %6d %12.3f %12.3f %9.1f %10.3f %8s\n", row.bytes, row.samples_us.size(),
              row.batch, median, quantile(row.samples_us, 0.99), spread,
              static_cast<double>(row.bytes) / median / 1e3, native);
  std::fflush(stdout);
}

Json describe(const Job& job) {
  char library[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(library, &length);
  Json out;
  out["tool"] = "tutti-perf";
  out["collective"] = job.collective->name;
  out["nonblocking"] = job.options.nonblocking;
  out["in_place"] = job.options.in_place;
  out["dtype"] = job.options.dtype;
  out["op"] = job.options.op;
  out["memory"] = job.options.kind;
  out["ranks"] = job.nranks;
  out["mpi"] = std::string(library, std::strcspn(library, "\n"));
  out["tutti"] = job.tutti.loaded() ? Json(job.tutti.version()) : Json(nullptr);
  if (!job.verdict.empty()) out["verdict"] = job.verdict;
  out["rows"] = Json::array();
  return out;
}

Json describe(const Row& row) {
  Json out;
  out["bytes"] = row.bytes;
  out["batch"] = row.batch;
  out["calls"] = row.counts.calls;
  out["native"] = row.counts.native;
  out["bounce"] = row.counts.bounce;
  out["below"] = row.counts.below;
  out["samples_us"] = row.samples_us;
  return out;
}

// ---- Options. ----

std::vector<size_t> sizes(const Options& options) {
  if (!options.sizes.empty()) return options.sizes;
  std::vector<size_t> out;
  for (size_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= 2)
    out.push_back(bytes);
  return out;
}

template <class Map>
std::vector<std::string> keys(const Map& map) {
  std::vector<std::string> out;
  for (const auto& [key, value] : map) out.push_back(key);
  return out;
}

void add_options(CLI::App& app, Options& options) {
  const CLI::AsSizeValue binary(false);  // k is 1024
  std::vector<std::string> names;
  for (const Collective& row : collectives) names.push_back(row.name);
  app.add_option("-c,--coll,--collective,collective", options.collective, "What to measure.")
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  app.add_option("-s,--sizes", options.sizes, "Sizes in bytes, as 8,4k,1m.")
      ->delimiter(',')
      ->transform(binary);
  app.add_option("--min", options.min_bytes, "Smallest size; doubled up to --max.")
      ->transform(binary);
  app.add_option("--max", options.max_bytes, "Largest size.")->transform(binary);
  app.add_option("-t,--dtype", options.dtype, "Type of the elements.")
      ->check(CLI::IsMember(keys(types())))
      ->capture_default_str();
  app.add_option("-o,--op", options.op, "Operation.")
      ->check(CLI::IsMember(keys(operations())))
      ->capture_default_str();
  app.add_option("-k,--kind", options.kind, "Kind of memory.")
      ->check(CLI::IsMember({"host", "pinned", "managed", "device", "async"}))
      ->capture_default_str();
  app.add_option("--memory", options.memory,
                 "Where kinds but host come from: cuda, or the path of libtutti_emu.so.");
  app.add_flag("--in-place", options.in_place, "With MPI_IN_PLACE on all ranks.");
  app.add_flag("--nonblocking", options.nonblocking, "The nonblocking form, waited for at once.");
  app.add_option("-i,--iterations", options.iterations, "Calls a size; by time where not given.");
  app.add_option("--seconds", options.seconds, "Time a size.")->capture_default_str();
  app.add_option("--json", options.json, "File for every sample.");
}

void prepare(Job& job) {
  const Options& options = job.options;
  job.collective = std::find_if(std::begin(collectives), std::end(collectives),
                                [&](const Collective& c) { return c.name == options.collective; });
  job.type = types().at(options.dtype);
  job.op = operations().at(options.op);
  job.tutti = find_tutti();
  MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &job.nranks);
  std::string why;
  if (options.in_place && !job.collective->can_be_in_place)
    fail("--in-place is for allreduce here");
  if (options.kind != "host" && options.memory.empty()) fail("--kind needs --memory");
  if (!kinds::open_memory(options.memory, job.rank, &why)) fail(why);
}

// What tutti has found out about MPI_COMM_WORLD, after a first call on it.
std::string verdict(const Job& job) {
  int one = 1;
  MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  char text[300] = {};
  const MPI_Comm world = MPI_COMM_WORLD;
  if (job.tutti.verdict == nullptr || job.tutti.verdict(&world, text, sizeof(text)) < 0) return "";
  return text;
}

void run(Job& job) {
  prepare(job);
  job.verdict = verdict(job);
  Json out = describe(job);
  if (job.rank == 0) print_head(job);
  for (size_t bytes : sizes(job.options)) {
    const Row row = measure(job, bytes);
    if (job.rank != 0) continue;
    print_row(row);
    out["rows"].push_back(describe(row));
  }
  if (job.rank != 0 || job.options.json.empty()) return;
  std::ofstream file(job.options.json);
  file << out.dump() << "\n";
  file.close();
  if (!file) fail("cannot write " + job.options.json);
}

}  // namespace

int main(int argc, char** argv) {
  Job job;
  CLI::App app("Time of a collective, with or without tutti.");
  add_options(app, job.options);
  CLI11_PARSE(app, argc, argv);
  MPI_Init(&argc, &argv);
  run(job);
  MPI_Finalize();
  return 0;
}
