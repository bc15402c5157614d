// The lingering kernel: one CTA that performs a small call and then waits a while for the next one,
// which costs its host a few stores to the bell instead of a launch (3 us and more).
//
// A call is the LL engine's, with its epochs and lines: to the peers it is the same whether this rank
// launched a kernel for it or rang for it, and whatever the peers do. Commands are performed in the
// order of their rings, one at a time; the host rings only when the last one is done.
//
// The machine is a Team: M with the number of threads that work (the whole CTA, or alone the few that
// read the bell), and beside M's members
//   team, alone_bytes                        threads that read the bell; up to what they need no help
//   alone(bool)                              who works from here on
//   shared<T>() -> T&                        memory of the CTA
//   read_bell(bell, ring, command) -> bool   by the team: whether it shows that ring; then the command
//   team_clock_ns()                          time, equal for the threads of the team
#pragma once

#include "gpu/kernel/ll.hpp"
#include "gpu/linger_args.hpp"

namespace tutti::gpu {

struct LingerShared {
  KernelArgs args[linger_slots];
  LingerCommand command;
  bool go;
};

TUTTI_KERNEL_FN void fill_args(const LingerSlot& slot, KernelArgs& args) {
  for (uint32_t r = 0; r < max_ranks; ++r) args.lane[r] = slot.lane[r];
  args.layout = slot.layout;
  args.nranks = slot.nranks;
  args.rank = slot.rank;
  args.done = slot.done;
  args.failed = slot.failed;
  args.abort_word = slot.abort_word;
  // Always the release way at the end: in a kernel that stays it costs 0.25 us (gpu-lab section 1), and
  // no end of a kernel comes after it to make up for less.
  args.soft = 0;
  args.in_place = 0;
}

// Waits for the ring; false when the window is over without it.
template <class T>
TUTTI_KERNEL_FN bool await_bell(const T& t, const LingerArgs& a, uint32_t ring,
                                LingerCommand& command) {
  const uint64_t begin = t.team_clock_ns();
  while (!t.read_bell(a.bell, ring, command)) {
    if (t.team_clock_ns() - begin > a.window_ns) return false;
    t.spin();
  }
  return true;
}

// One call by the threads of t; false, for all of them, when it was given up.
template <class T, int N>
TUTTI_KERNEL_FN bool perform(const T& t, LingerShared& shared, const LingerCommand& command) {
  KernelArgs& args = shared.args[slot_of(command)];
  if (t.thread() == 0) apply_command(command, args);
  t.sync();
  const KernelArgs& a = args;
  // Two ranks: so many lines in flight a thread that the largest allreduce is one pass of 384 threads.
  // With 512, which leave 128 registers each, ptxas (13.0, sm_90) spilt up to 1.7 KB; so it does with
  // two units of two lines.
  constexpr int deep = N == 2 ? 4 : 1;
  constexpr int less_deep = N == 2 ? 2 : 1;
  bool alive = true;
  switch (shape_of(command)) {
    case LingerShape::allreduce:
      alive = ll_pass<T, LlShape{Coll::allreduce, 1, N, deep}>(t, a);
      break;
    case LingerShape::allreduce_wide:
      alive = ll_pass<T, LlShape{Coll::allreduce, 2, N, 1}>(t, a);
      break;
    case LingerShape::reduce_scatter:
      alive = ll_pass<T, LlShape{Coll::reduce_scatter_block, 1, N, less_deep}>(t, a);
      break;
    case LingerShape::reduce_scatter_wide:
      alive = ll_pass<T, LlShape{Coll::reduce_scatter_block, 2, N, 1}>(t, a);
      break;
    case LingerShape::allgather:
      alive = ll_pass<T, LlShape{Coll::allgather, 1, N, less_deep}>(t, a);
      break;
    case LingerShape::leave:
      break;
  }
  finish(t, a, alive);
  return t.sync_all(alive);
}

// Goes on to the next ring; false when there is no call to perform: the last one was given up, the
// window is over, or the host said leave. By the team; `ring` is then the first that was not taken.
template <class T>
TUTTI_KERNEL_FN bool next_command(const T& t, const LingerArgs& a, bool alive, uint32_t& ring,
                                  LingerCommand& command) {
  ring = next_ring(ring);
  if (!alive || !await_bell(t, a, ring, command)) return false;
  if (shape_of(command) != LingerShape::leave) return true;
  ring = next_ring(ring);
  return false;
}

template <class T, int N>
TUTTI_KERNEL_FN void linger_kernel(T& t, const LingerArgs& a) {
  LingerShared& shared = t.template shared<LingerShared>();
  for (uint32_t i = t.thread(); i < linger_slots; i += t.threads())
    fill_args(a.slot[i], shared.args[i]);
  t.sync();
  const bool in_team = t.thread() < T::team;
  LingerCommand command = a.first;
  uint32_t ring = a.ring;
  bool go = true;
  while (true) {
    // The others wait here for a call that the team needs help with, or for the end.
    const bool together = !in_team || !go || bytes_of(command) > T::alone_bytes;
    t.alone(!together);
    if (together) {
      if (t.thread() == 0) {
        shared.command = command;
        shared.go = go;
      }
      t.sync();
      if (!shared.go) break;
      command = shared.command;
    }
    const bool alive = perform<T, N>(t, shared, command);
    if (!in_team) continue;  // the team says whether it goes on
    t.alone(true);
    go = next_command(t, a, alive, ring, command);
  }
  // From here on it takes no ring: the host learns which is the first of those.
  if (t.thread() != 0) return;
  t.fence_system();
  t.store_relaxed(a.left, ring);
}

}  // namespace tutti::gpu
