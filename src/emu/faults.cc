#include "emu/faults.hpp"

#include <cstring>

#include "gpu/emu.hpp"
#include "gpu/linger.hpp"

namespace tutti::emu {

Faults& faults() {
  static Faults all;
  return all;
}

bool refuse(std::atomic<int64_t>& countdown) {
  if (countdown.load(std::memory_order_relaxed) == 0) return false;
  return countdown.fetch_sub(1, std::memory_order_relaxed) == 1;
}

}  // namespace tutti::emu

int tutti_emu_set(const char* knob, long value) {
  tutti::emu::Faults& all = tutti::emu::faults();
  const struct {
    const char* name;
    std::atomic<int64_t>& knob;
  } rows[] = {{"refuse_alloc", all.refuse_alloc},
              {"refuse_export", all.refuse_export},
              {"refuse_import", all.refuse_import},
              {"refuse_launch", all.refuse_launch},
              {"fault_launch", all.fault_launch},
              {"delay_us", all.delay_us},
              {"seed", all.seed},
              {"first_call", all.first_call},
              {"skip_calls", all.skip_calls},
              {"small_lanes", all.small_lanes}};
  if (std::strcmp("linger_eager", knob) == 0) {
    tutti::gpu::LingerPolicy::eager.store(value != 0);
    return 0;
  }
  for (const auto& row : rows)
    if (std::strcmp(row.name, knob) == 0) {
      row.knob.store(value);
      return 0;
    }
  return -1;
}
