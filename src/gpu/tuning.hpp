// Thresholds and launch shapes of the kernels, as rows with their evidence.
//
// All ranks choose by these rows from agreed facts, so a row may depend on the number of ranks and
// on bytes, never on anything that one rank alone sees.
#pragma once

#include <cstdint>
#include <span>

namespace tutti::gpu {

// Threads a CTA of the LL engine, by lines of 16 bytes a source.
struct LlRow {
  uint64_t up_to_lines;
  uint32_t threads;
};

// Launch shape of the push engine, by bytes that a rank pushes.
struct PushRow {
  uint64_t up_to_bytes;
  uint32_t push_ctas;
  uint32_t reduce_ctas;
  uint32_t drain_ctas;
  uint32_t threads;
  uint32_t chunk_bytes;
};

// Up to how many bytes (of the vector, or of one block) the LL engine is the faster one.
struct LlLimit {
  uint32_t up_to_ranks;
  uint64_t allreduce_bytes;
  uint64_t block_bytes;
};

struct Tuning {
  const char* device;
  const char* date;
  const char* source;
  std::span<const LlLimit> ll_limits;
  std::span<const LlRow> ll_rows;
  std::span<const PushRow> exchange_rows;   // allreduce of two, reduce_scatter_block
  std::span<const PushRow> two_shot_rows;   // allreduce of three and more
  std::span<const PushRow> allgather_rows;  // spreaders are in the push column
};

inline constexpr uint64_t no_limit = ~uint64_t{0};

namespace h200 {
// Two ranks: LL wins to 2 MiB (15.9 us against 17-18; 24.3 against 23.4 at 4 MiB). More ranks: from
// the cost model of bytes a port (one-shot LL sends 2.67 (n-1) N), not measured.
inline constexpr LlLimit ll_limits[] = {
    {2, 2 << 20, 1 << 20}, {4, 256 << 10, 256 << 10}, {8, 96 << 10, 96 << 10}};
// Many CTAs of one line a thread beat few with several lines by 1-1.5 us.
inline constexpr LlRow ll_rows[] = {
    {32, 32}, {2048, 128}, {8192, 256}, {48 << 10, 512}, {no_limit, 1024}};
// 64 + 64 CTAs; chunk by size. 64 KiB chunks cost 10-30 % from 64 MiB up; rings under 3 slots a
// pusher lose 20 % (hence chunks of 256 KiB only where the ring holds 192 of them: plan() halves
// them if not).
inline constexpr PushRow exchange_rows[] = {{2 << 20, 64, 64, 0, 512, 32 << 10},
                                            {16 << 20, 64, 64, 0, 1024, 64 << 10},
                                            {64 << 20, 64, 64, 0, 1024, 128 << 10},
                                            {no_limit, 64, 64, 0, 1024, 256 << 10}};
// Not measured: a third of the CTAs each, chunks as above.
inline constexpr PushRow two_shot_rows[] = {{4 << 20, 32, 48, 48, 512, 32 << 10},
                                            {64 << 20, 32, 48, 48, 512, 64 << 10},
                                            {no_limit, 32, 48, 48, 512, 128 << 10}};
// Through scratch, pushers store the local copy: 17 us at 4 MiB, 36 at 16, 1491 at 1 GiB.
inline constexpr PushRow allgather_rows[] = {{2 << 20, 64, 0, 64, 512, 32 << 10},
                                             {16 << 20, 64, 0, 64, 1024, 64 << 10},
                                             {64 << 20, 64, 0, 64, 1024, 128 << 10},
                                             {no_limit, 64, 0, 64, 1024, 256 << 10}};
}  // namespace h200

inline constexpr Tuning tuning_h200 = {
    "H200, 2 x NV18",    "2026-11",           "laboratory, 12,900 measurements",
    h200::ll_limits,     h200::ll_rows,       h200::exchange_rows,
    h200::two_shot_rows, h200::allgather_rows};

// The emulation: small shapes, so that short messages already take many chunks, slots and credits.
namespace emulated {
inline constexpr LlLimit ll_limits[] = {{8, 3 << 10, 2 << 10}};
inline constexpr LlRow ll_rows[] = {{8, 1}, {no_limit, 2}};
inline constexpr PushRow exchange_rows[] = {{64 << 10, 2, 2, 0, 2, 1 << 10},
                                            {no_limit, 2, 2, 0, 2, 64 << 10}};
inline constexpr PushRow two_shot_rows[] = {{64 << 10, 2, 2, 2, 2, 1 << 10},
                                            {no_limit, 1, 2, 1, 2, 64 << 10}};
inline constexpr PushRow allgather_rows[] = {{64 << 10, 2, 0, 2, 2, 1 << 10},
                                             {no_limit, 2, 0, 2, 2, 64 << 10}};
}  // namespace emulated

inline constexpr Tuning tuning_emulated = {"emulation",
                                           "",
                                           "chosen to exercise the protocol",
                                           emulated::ll_limits,
                                           emulated::ll_rows,
                                           emulated::exchange_rows,
                                           emulated::two_shot_rows,
                                           emulated::allgather_rows};

}  // namespace tutti::gpu
