#include "gpu/plan.hpp"

#include <gtest/gtest.h>

#include "gpu/device.hpp"
#include "gpu/epoch.hpp"
#include "gpu/lane_pool.hpp"
#include "gpu/reduction.hpp"

namespace tutti::gpu {
namespace {

PlanSpace space_of(uint64_t lane_bytes, uint32_t nranks, uint32_t budget, const Tuning& tuning) {
  PlanSpace space;
  space.nranks = nranks;
  space.layout = lane_layout(lane_bytes, nranks);
  space.cta_budget = budget;
  space.tuning = &tuning;
  return space;
}

void expect_sound(const Agreed& agreed, const PlanSpace& space, uint64_t lane_bytes) {
  const Plan plan = make_plan(agreed, space);
  SCOPED_TRACE(testing::Message() << name(agreed.coll) << ' ' << name(agreed.dtype) << " bytes "
                                  << agreed.bytes() << " ranks " << space.nranks << " lane "
                                  << lane_bytes << " budget " << space.cta_budget);
  ASSERT_NE(plan.kernel, KernelId::count);
  EXPECT_GE(plan.threads, 1u);
  EXPECT_LE(plan.threads, most_threads(plan.kernel));
  EXPECT_GE(plan.ctas, 1u);
  EXPECT_LE(plan.ctas, space.cta_budget);
  if (plan.ll) {
    const uint64_t unit_lines = info(agreed.dtype).bytes == 8 && !moves(agreed.coll) ? 2 : 1;
    const uint64_t units = (plan.bytes + 12 * unit_lines - 1) / (12 * unit_lines);
    EXPECT_LE(units * unit_lines * ll_line_bytes, space.layout.ll_inbox_bytes);
    return;
  }
  const uint64_t rings = (plan.kernel == KernelId::push_two_shot_8 ? 2 : 1) * (space.nranks - 1);
  EXPECT_EQ(plan.chunk % 16, 0u);
  EXPECT_GE(plan.slots, 2u);
  EXPECT_LE(plan.slots, space.layout.slots_max);
  EXPECT_LE(uint64_t{plan.slots} * plan.chunk, plan.ring_bytes);
  EXPECT_LE(rings * plan.ring_bytes, space.layout.ring_bytes);
  EXPECT_LE(space.layout.ring_offset + space.layout.ring_bytes, lane_bytes);
  EXPECT_EQ(plan.ctas, plan.push_ctas + plan.reduce_ctas + plan.drain_ctas);
  EXPECT_GE(plan.push_ctas, 1u);
  EXPECT_GE(plan.reduce_ctas + plan.drain_ctas, 1u);
  if (agreed.coll == Coll::allreduce && space.nranks > 2) {
    EXPECT_EQ(plan.slice % 16, 0u);
    EXPECT_GE(plan.slice * space.nranks, plan.bytes);
  }
}

TEST(Plan, FitsLaneInboxAndBudgetAtEverySize) {
  for (const Tuning* tuning : {&tuning_h200, &tuning_emulated})
    for (uint64_t lane : {smallest_lane_bytes, small_lane_bytes, default_lane_bytes})
      for (uint32_t nranks = 2; nranks <= max_ranks; ++nranks)
        for (uint32_t budget : {4u, 5u, 16u, 132u})
          for (Coll coll : {Coll::allreduce, Coll::allgather, Coll::reduce_scatter_block,
                            Coll::reduce, Coll::bcast, Coll::alltoall, Coll::gather, Coll::scatter})
            for (Dtype dtype : {Dtype::f16, Dtype::f32, Dtype::f64})
              for (uint64_t count = 1; count <= uint64_t{1} << 31; count = count * 3 + 1) {
                Agreed agreed;
                agreed.coll = coll;
                agreed.dtype = dtype;
                agreed.count = count;
                expect_sound(agreed, space_of(lane, nranks, budget, *tuning), lane);
                if (HasFatalFailure()) return;
              }
}

TEST(Lane, TablesAndInboxesDoNotOverlap) {
  for (uint64_t bytes : {smallest_lane_bytes, small_lane_bytes, default_lane_bytes})
    for (uint32_t nranks = 2; nranks <= max_ranks; ++nranks) {
      const Layout layout = lane_layout(bytes, nranks);
      EXPECT_GE(layout.ll_offset,
                layout.flag_offset + flag_bytes * flag_tables * max_ranks * layout.slots_max);
      EXPECT_EQ(layout.ring_offset, layout.ll_offset + 2 * (nranks - 1) * layout.ll_inbox_bytes);
      EXPECT_GT(layout.ll_inbox_bytes, 0u);
      EXPECT_LE(layout.ring_offset + layout.ring_bytes, bytes);
      // A lane is cleared by its own size, then used by the smallest member's layout.
      EXPECT_GE(lane_cleared_bytes(lane_layout(default_lane_bytes, nranks)),
                lane_cleared_bytes(layout));
    }
}

TEST(Epoch, AlternatesParityAndClearsBothInboxesInTime) {
  EpochCounter counter(0xfffffffe - 4);
  uint32_t last = 0;
  for (int i = 0; i < 10; ++i) {
    EpochCounter::Turn turn = counter.next();
    EXPECT_NE(turn.epoch, 0u);
    if (i > 0) {
      EXPECT_NE(turn.epoch & 1, last & 1);
    }
    last = turn.epoch;
  }
  EpochCounter near((uint64_t{1} << 30) - 3);
  bool cleared[2] = {};
  for (int i = 0; i < 6; ++i) {
    EpochCounter::Turn turn = near.next();
    if (turn.clear_other) cleared[1 - (turn.epoch & 1)] = true;
  }
  EXPECT_TRUE(cleared[0] && cleared[1]);
}

TEST(LanePool, GivesTheLargeLaneFirstAndRunsOut) {
  LanePool pool(8 << 20, 2 << 20, 2);
  EXPECT_EQ(pool.total_bytes(), uint64_t{12 << 20});
  auto first = pool.take();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->bytes, uint64_t{8 << 20});
  auto second = pool.take();
  auto third = pool.take();
  ASSERT_TRUE(second && third);
  EXPECT_NE(second->offset, third->offset);
  EXPECT_FALSE(pool.take());
  pool.give_back(*first);
  EXPECT_EQ(pool.take()->bytes, uint64_t{8 << 20});
}

TEST(Native, SaysYesOnlyForWhatKernelsDo) {
  Agreed agreed;
  agreed.dtype = Dtype::f32;
  EXPECT_TRUE(native(agreed, 2));
  EXPECT_TRUE(native(agreed, 8));
  EXPECT_FALSE(native(agreed, 1));
  EXPECT_FALSE(native(agreed, 9));
  agreed.op = Op::band;
  EXPECT_FALSE(native(agreed, 2));
  agreed.op = Op::sum;
  agreed.dtype = Dtype::c32;
  EXPECT_FALSE(native(agreed, 2));
  agreed.coll = Coll::allgather;
  EXPECT_TRUE(native(agreed, 2));
  agreed.coll = Coll::scan;
  EXPECT_FALSE(native(agreed, 2));
}

TEST(Reduction, SignednessMattersOnlyToComparisons) {
  EXPECT_EQ(reduction_code(Op::sum, Dtype::u32), reduction_code(Op::sum, Dtype::i32));
  EXPECT_NE(reduction_code(Op::max, Dtype::u32), reduction_code(Op::max, Dtype::i32));
  EXPECT_FALSE(reduction_code(Op::sum, Dtype::i8));
}

}  // namespace
}  // namespace tutti::gpu
