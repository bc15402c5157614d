#include "cuda/knobs.hpp"

#include <cstring>
#include <memory>
#include <vector>

#include "base/text.hpp"
#include "cuda/device.hpp"
#include "cuda/driver.hpp"

namespace tutti::cuda {

namespace {

struct Knobs {
  long push_ctas = 0;
  long reduce_ctas = 0;
  long drain_ctas = 0;
  long threads = 0;
  long chunk_bytes = 0;
  long ll_threads = 0;
  long ll_bytes = 0;  // up to which LL serves; -1: never
};
Knobs knobs;

void replace(uint32_t& value, long knob) {
  if (knob > 0) value = static_cast<uint32_t>(knob);
}

// A tuning with rows of its own.
struct Owned {
  std::vector<gpu::LlLimit> limits;
  std::vector<gpu::LlRow> ll;
  std::vector<gpu::PushRow> push[3];
  gpu::Tuning tuning;
};

}  // namespace

const gpu::Tuning* tuning_in_force() {
  const gpu::Tuning& table = gpu::tuning_h200;
  static const Knobs untouched;
  if (std::memcmp(&knobs, &untouched, sizeof knobs) == 0) return &table;
  auto& made = *new Owned;  // groups keep it: one a measurement
  made.tuning = table;
  made.limits.assign(table.ll_limits.begin(), table.ll_limits.end());
  made.ll.assign(table.ll_rows.begin(), table.ll_rows.end());
  const std::span<const gpu::PushRow> rows[] = {table.exchange_rows, table.two_shot_rows,
                                                table.allgather_rows};
  if (knobs.ll_bytes != 0)
    for (gpu::LlLimit& limit : made.limits)
      limit.allreduce_bytes = limit.block_bytes =
          knobs.ll_bytes < 0 ? 0 : static_cast<uint64_t>(knobs.ll_bytes);
  for (gpu::LlRow& row : made.ll) replace(row.threads, knobs.ll_threads);
  for (int i = 0; i < 3; ++i) {
    made.push[i].assign(rows[i].begin(), rows[i].end());
    for (gpu::PushRow& row : made.push[i]) {
      if (row.push_ctas) replace(row.push_ctas, knobs.push_ctas);
      if (row.reduce_ctas) replace(row.reduce_ctas, knobs.reduce_ctas);
      if (row.drain_ctas) replace(row.drain_ctas, knobs.drain_ctas);
      replace(row.threads, knobs.threads);
      replace(row.chunk_bytes, knobs.chunk_bytes);
    }
  }
  made.tuning.ll_limits = made.limits;
  made.tuning.ll_rows = made.ll;
  made.tuning.exchange_rows = made.push[0];
  made.tuning.two_shot_rows = made.push[1];
  made.tuning.allgather_rows = made.push[2];
  return &made.tuning;
}

std::atomic<long> calls_started{0};

Refusals& refusals() {
  static Refusals all;
  return all;
}

bool refuse(std::atomic<long>& countdown, const char* what) {
  if (countdown.load(std::memory_order_relaxed) == 0) return false;
  if (countdown.fetch_sub(1, std::memory_order_relaxed) != 1) return false;
  say(level_warn, text("{} refused by the test", what));
  return true;
}

}  // namespace tutti::cuda

int tutti_cuda_set(const char* knob, long value) {
  using tutti::cuda::knobs;
  const struct {
    const char* name;
    long& knob;
  } rows[] = {{"push_ctas", knobs.push_ctas},     {"reduce_ctas", knobs.reduce_ctas},
              {"drain_ctas", knobs.drain_ctas},   {"threads", knobs.threads},
              {"chunk_bytes", knobs.chunk_bytes}, {"ll_threads", knobs.ll_threads},
              {"ll_bytes", knobs.ll_bytes}};
  for (const auto& row : rows)
    if (std::strcmp(row.name, knob) == 0) {
      row.knob = value;
      return 0;
    }
  if (std::strcmp("linger_eager", knob) == 0) {
    tutti::gpu::LingerPolicy::eager.store(value != 0);
    return 0;
  }
  tutti::cuda::Refusals& refusals = tutti::cuda::refusals();
  const struct {
    const char* name;
    std::atomic<long>& countdown;
  } hooks[] = {{"refuse_export", refusals.exports},
               {"refuse_import", refusals.imports},
               {"refuse_launch", refusals.launches}};
  for (const auto& hook : hooks)
    if (std::strcmp(hook.name, knob) == 0) {
      hook.countdown.store(value);
      return 0;
    }
  return -1;
}

long tutti_cuda_get(const char* count) {
  if (std::strcmp(count, "started") == 0) return tutti::cuda::calls_started.load();
  return tutti::cuda::linger_count(count);
}
