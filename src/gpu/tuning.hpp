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

// Up to how many bytes (of the vector, or of one block) a lingering kernel is the faster way, with so
// many CTAs at most, each of so many threads that work.
struct LingerRow {
  uint32_t up_to_ranks;
  uint64_t bytes;
  uint32_t most_ctas;
  uint32_t workers;
};

struct Tuning {
  const char* device;
  const char* date;
  const char* source;
  std::span<const LlLimit> ll_limits;
  std::span<const LlRow> ll_rows;
  std::span<const LingerRow> linger_rows;
  std::span<const PushRow> exchange_rows;   // allreduce of two, reduce_scatter_block
  std::span<const PushRow> two_shot_rows;   // allreduce of three and more
  std::span<const PushRow> allgather_rows;  // spreaders are in the push column
};

inline constexpr uint64_t no_limit = ~uint64_t{0};

// Of the lingering kernels for two ranks and for more, which were compiled for so many and the team: they
// leave 128 and 255 registers a thread, and the code for all types and operations needs no spills.
inline constexpr uint32_t linger_team = 32;
inline constexpr uint32_t linger_workers_two = 512 - linger_team;
inline constexpr uint32_t linger_workers_more = 256 - linger_team;

// Sources: the laboratory's 12,900 measurements, and bench/results/2026-11-29-gpu-* with these kernels.
namespace h200 {
// Two ranks: LL wins to 2 MiB (17.5 us; the push engine needs 25.5 at 4). More ranks: from the cost
// model of bytes a port (one-shot LL sends 2.67 (n - 1) N), not measured with a GPU for every rank.
inline constexpr LlLimit ll_limits[] = {
    {2, 2 << 20, 1 << 20}, {4, 256 << 10, 256 << 10}, {8, 96 << 10, 96 << 10}};
// Many CTAs of one line a thread beat few with several lines by 1-1.5 us. 128, 512 or 1024 threads
// throughout differ by under 0.2 us to 64 KiB; at 1 MiB 128 need 18.6 us, 512 13.9, 1024 12.6. Kernels
// made for one reduction gained nothing that the noise shows (8.2-8.7 us against 8.5-8.7 at 8 B).
inline constexpr LlRow ll_rows[] = {
    {32, 32}, {2048, 128}, {8192, 256}, {48 << 10, 512}, {no_limit, 1024}};
// Two ranks, lingering against launched, us (2 x H200, bench/results/2026-11-30-gpu-linger-ctas): 8 KiB 5.9 /
// 6.0, 32 KiB 6.6 / 8.4, 128 KiB 6.1 / 8.7, 512 KiB 8.8 / 10.3, 1 MiB 10.6 / 12.4; at 2 MiB it is the slower
// one in some runs. More ranks: from the number of lines a thread, not measured.
inline constexpr LingerRow linger_rows[] = {{2, 1 << 20, 92, linger_workers_two},
                                            {4, 4 << 10, 2, linger_workers_more},
                                            {8, 2 << 10, 2, linger_workers_more}};
// 64 + 64 CTAs: 48 + 64 and 32 + 64 cost 1-10 % to 64 MiB; 48 + 84 is equal at 1 GiB. Chunks: at 64 MiB
// 32 KiB need 259 us, 64 KiB 214, 128 KiB 204; from 256 MiB up 128 and 256 KiB are equal. A lane of 54
// MiB instead of 40 gains nothing at any size.
inline constexpr PushRow exchange_rows[] = {{6 << 20, 64, 64, 0, 512, 64 << 10},
                                            {24 << 20, 64, 64, 0, 1024, 64 << 10},
                                            {no_limit, 64, 64, 0, 1024, 128 << 10}};
// Not measured: a third of the CTAs each, chunks as above.
inline constexpr PushRow two_shot_rows[] = {{4 << 20, 32, 48, 48, 512, 32 << 10},
                                            {64 << 20, 32, 48, 48, 512, 64 << 10},
                                            {no_limit, 32, 48, 48, 512, 128 << 10}};
// Spreaders store the local copy too. 48 or 84 spreaders gain at most 1 %; chunks of 64 KiB win to 64
// MiB in all (108.5 us), then 128 KiB (397 us at 256 MiB against 422).
inline constexpr PushRow allgather_rows[] = {{2 << 20, 64, 0, 64, 1024, 32 << 10},
                                             {48 << 20, 64, 0, 64, 1024, 64 << 10},
                                             {no_limit, 64, 0, 64, 1024, 128 << 10}};
}  // namespace h200

inline constexpr Tuning tuning_h200 = {
    "H200, 2 x NV18",    "2026-11",           "laboratory; bench/results/2026-11-29-gpu-second",
    h200::ll_limits,     h200::ll_rows,       h200::linger_rows,
    h200::exchange_rows, h200::two_shot_rows, h200::allgather_rows};

// The emulation: small shapes, so that short messages already take many chunks, slots and credits.
namespace emulated {
inline constexpr LlLimit ll_limits[] = {{8, 3 << 10, 2 << 10}};
inline constexpr LlRow ll_rows[] = {{8, 1}, {no_limit, 2}};
inline constexpr uint32_t linger_workers = 2;
inline constexpr LingerRow linger_rows[] = {{8, 1 << 10, 3, linger_workers}};
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
                                           emulated::linger_rows,
                                           emulated::exchange_rows,
                                           emulated::two_shot_rows,
                                           emulated::allgather_rows};

}  // namespace tutti::gpu
