#include "gpu/plan.hpp"

#include <algorithm>

#include "gpu/device.hpp"
#include "gpu/reduction.hpp"

namespace tutti::gpu {

namespace {

struct KernelRow {
  const char* name;
  uint32_t most_threads;
};
constexpr KernelRow kernel_rows[] = {
#define TUTTI_KERNEL(name, threads, body) {#name, threads},
#include "gpu/kernels.def"
#include "gpu/kernels_move.def"
#undef TUTTI_KERNEL
};

constexpr uint64_t round_up(uint64_t value, uint64_t step) {
  return (value + step - 1) / step * step;
}

bool wide(const Agreed& agreed) {
  return !moves(agreed.coll) && info(agreed.dtype).bytes == 8;
}

uint64_t ll_limit(Coll coll, const PlanSpace& space) {
  uint64_t inbox_data = space.layout.ll_inbox_bytes / ll_line_bytes * ll_data_bytes;
  // Two-line units: an odd last line would lie past the inbox.
  inbox_data -= std::min<uint64_t>(inbox_data, 2 * ll_data_bytes);
  const bool whole_vector = coll == Coll::allreduce || coll == Coll::reduce || coll == Coll::bcast;
  for (const LlLimit& row : space.tuning->ll_limits)
    if (space.nranks <= row.up_to_ranks)
      return std::min(inbox_data, whole_vector ? row.allreduce_bytes : row.block_bytes);
  return 0;
}

KernelId ll_kernel_for(const Agreed& agreed, const PlanSpace& space, uint64_t lines) {
  const bool two = space.nranks == 2;
  switch (agreed.coll) {
    case Coll::allgather:
      return two ? KernelId::ll_allgather_2 : KernelId::ll_allgather_8;
    case Coll::bcast:
      return KernelId::ll_bcast;
    case Coll::gather:
      return KernelId::ll_gather;
    case Coll::scatter:
      return KernelId::ll_scatter;
    case Coll::alltoall:
      return KernelId::ll_alltoall;
    case Coll::reduce:
      if (wide(agreed)) return two ? KernelId::ll_reduce_2_wide : KernelId::ll_reduce_8_wide;
      return two ? KernelId::ll_reduce_2 : KernelId::ll_reduce_8;
    case Coll::reduce_scatter_block:
      if (wide(agreed))
        return two ? KernelId::ll_reduce_scatter_2_wide : KernelId::ll_reduce_scatter_8_wide;
      return two ? KernelId::ll_reduce_scatter_2 : KernelId::ll_reduce_scatter_8;
    default:
      if (wide(agreed)) return two ? KernelId::ll_allreduce_2_wide : KernelId::ll_allreduce_8_wide;
      if (!two) return KernelId::ll_allreduce_8;
      // Two lines a thread only when one a thread does not fit in a pass.
      return lines > uint64_t{1024} * space.cta_budget ? KernelId::ll_allreduce_2_deep
                                                       : KernelId::ll_allreduce_2;
  }
}

void plan_ll(const Agreed& agreed, const PlanSpace& space, Plan& plan) {
  const uint64_t unit_lines = wide(agreed) ? 2 : 1;
  const uint64_t lines = (plan.bytes + ll_data_bytes - 1) / ll_data_bytes;
  const uint64_t units = (lines + unit_lines - 1) / unit_lines;
  plan.ll = true;
  plan.kernel = ll_kernel_for(agreed, space, lines);
  for (const LlRow& row : space.tuning->ll_rows)
    if (units <= row.up_to_lines) {
      plan.threads = std::min(row.threads, most_threads(plan.kernel));
      break;
    }
  const uint64_t depth = plan.kernel == KernelId::ll_allreduce_2_deep ? 2 : 1;
  const uint64_t ctas = (units + plan.threads * depth - 1) / (plan.threads * depth);
  plan.ctas = static_cast<uint32_t>(std::min<uint64_t>(ctas, space.cta_budget));
}

const PushRow& find_row(std::span<const PushRow> rows, uint64_t pushed_bytes) {
  for (const PushRow& row : rows)
    if (pushed_bytes <= row.up_to_bytes) return row;
  return rows.back();
}

// Fits the roles of a row into the budget, keeping their proportions and at least one CTA each.
void fit_roles(const PushRow& row, uint32_t budget, Plan& plan) {
  const uint32_t wanted = row.push_ctas + row.reduce_ctas + row.drain_ctas;
  const uint32_t granted = std::min(wanted, budget);
  const auto share = [&](uint32_t ctas) {
    return ctas == 0 ? 0 : std::max<uint32_t>(1, ctas * granted / wanted);
  };
  plan.push_ctas = share(row.push_ctas);
  plan.reduce_ctas = share(row.reduce_ctas);
  plan.drain_ctas = share(row.drain_ctas);
}

// Chunk and slots: small enough that every pusher has work, large enough to be worth a flag, and at
// least three slots a pusher while the ring allows it.
void cut_chunks(const PushRow& row, const PlanSpace& space, uint32_t rings, uint64_t part,
                Plan& plan) {
  const uint64_t peers = space.nranks - 1;
  plan.ring_bytes = space.layout.ring_bytes / rings / 4096 * 4096;
  uint64_t chunk = row.chunk_bytes;
  const uint64_t smallest = std::min<uint64_t>(8 << 10, chunk);
  const uint64_t fair = round_up((part * peers + plan.push_ctas - 1) / plan.push_ctas, 512);
  chunk = std::clamp(fair, smallest, chunk);
  const uint64_t slots_wanted = std::max<uint64_t>(2, (3 * plan.push_ctas + peers - 1) / peers);
  while (chunk > smallest && plan.ring_bytes / chunk < slots_wanted &&
         (part + chunk - 1) / chunk > plan.ring_bytes / chunk)
    chunk = round_up(chunk / 2, 512);
  chunk = std::min<uint64_t>(chunk, plan.ring_bytes / 2 / 16 * 16);
  plan.chunk = static_cast<uint32_t>(chunk);
  plan.slots =
      static_cast<uint32_t>(std::min<uint64_t>(plan.ring_bytes / chunk, space.layout.slots_max));
  plan.chunks = (part + chunk - 1) / chunk;
}

KernelId push_kernel_for(Coll coll, bool two) {
  switch (coll) {
    case Coll::allgather:
      return KernelId::push_allgather_8;
    case Coll::bcast:
      return KernelId::push_bcast;
    case Coll::gather:
      return KernelId::push_gather;
    case Coll::scatter:
      return KernelId::push_scatter;
    case Coll::alltoall:
      return KernelId::push_alltoall;
    case Coll::reduce:
      return two ? KernelId::push_reduce_2 : KernelId::push_reduce_8;
    case Coll::allreduce:
      if (!two) return KernelId::push_two_shot_8;
      [[fallthrough]];
    default:
      return two ? KernelId::push_exchange_2 : KernelId::push_exchange_8;
  }
}

void plan_push(const Agreed& agreed, const PlanSpace& space, Plan& plan) {
  const uint32_t n = space.nranks;
  const Tuning& tuning = *space.tuning;
  const bool two_shot = agreed.coll == Coll::allreduce && n > 2;
  uint64_t part = plan.bytes;
  std::span<const PushRow> rows = tuning.exchange_rows;
  plan.kernel = push_kernel_for(agreed.coll, n == 2);
  if (two_shot) {
    part = plan.slice = round_up((plan.bytes + n - 1) / n, 16);
    rows = tuning.two_shot_rows;
  } else if (moves(agreed.coll)) {
    rows = tuning.allgather_rows;
  } else {
    plan.slice = agreed.coll == Coll::reduce_scatter_block ? plan.bytes : 0;
  }
  const PushRow& row = find_row(rows, part * (n - 1));
  fit_roles(row, space.cta_budget, plan);
  cut_chunks(row, space, (two_shot ? 2 : 1) * (n - 1), part, plan);
  plan.threads = std::min(row.threads, most_threads(plan.kernel));
  plan.ctas = plan.push_ctas + plan.reduce_ctas + plan.drain_ctas;
}

}  // namespace

const char* name(KernelId id) {
  return kernel_rows[static_cast<uint32_t>(id)].name;
}

uint32_t most_threads(KernelId id) {
  return kernel_rows[static_cast<uint32_t>(id)].most_threads;
}

Plan make_plan(const Agreed& agreed, const PlanSpace& space) {
  Plan plan;
  plan.bytes = agreed.bytes();
  if (!moves(agreed.coll)) plan.code = reduction_code(agreed.op, agreed.dtype).value_or(0);
  if (plan.bytes <= ll_limit(agreed.coll, space))
    plan_ll(agreed, space, plan);
  else
    plan_push(agreed, space, plan);
  return plan;
}

void apply_plan(const Plan& plan, KernelArgs& args) {
  args.bytes = plan.bytes;
  args.code = plan.code;
  args.slice = plan.slice;
  args.ring_bytes = plan.ring_bytes;
  args.chunk = plan.chunk;
  args.slots = plan.slots;
  args.push_ctas = plan.push_ctas;
  args.reduce_ctas = plan.reduce_ctas;
  args.drain_ctas = plan.drain_ctas;
}

}  // namespace tutti::gpu
