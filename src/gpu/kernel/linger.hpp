// The lingering kernel: a few CTAs that perform a small call and then wait a while for the next one,
// which costs its host a few stores to the bell instead of a launch (3 us and more).
//
// A call is the LL engine's, with its epochs and lines: to the peers it is the same whether this rank
// launched a kernel for it or rang for it, and whatever the peers do. Commands are performed in the
// order of their rings, one at a time; the host rings only when the last one is done.
//
// Roles. A CTA has workers, and a team of a few threads that only looks for the next command: in the
// first CTA at the bell, across PCIe, in the others at a relay in the device's memory. The team of the
// first CTA performs a small call alone; for others it wakes the workers of its CTA, and for a larger
// one it writes the command into the relay. It alone decides, for every ring, whether it is performed or
// the kernel leaves; the other CTAs do what the relay shows.
//
// One team a CTA, and it does not look during a call. On two H200s (2026-11-30) four teams, each with a
// look on its way, found a ring no sooner and took 1 us more a call, 2.3 where workers were woken: a
// fence waits for every read of its SM that is on its way across PCIe. Two teams that pause during a
// call: 0.2 us more than one to 128 B, equal above.
//
// The machine is a Team: M, whose thread(), threads(), cta(), ctas(), sync() and sync_all() are those of
// the role that it was given, and beside that
//   alone_bytes                              up to what the team needs no workers
//   in_team() -> bool, team_first() -> bool  whether this thread is of the team, one of it
//   grid_cta(), grid_ctas()                  where this CTA is, whatever the role
//   work(ctas), work_alone()                 takes the role of a worker of so many CTAs, of the team
//   shared<T>() -> T&                        memory of the CTA
//   sync_cta()                               barrier of all threads of the CTA
//   wake(), await_wake()                     by the team, by the workers: a barrier that holds up only
//                                            the workers
//   set(word, v)                             a word of shared memory, release
// and, by the team as one,
//   look(word) -> uint32_t                   a word of shared memory, acquire
//   read_bell(bell, ring, command) -> bool   whether it shows that ring; then the command
//   read_relay(relay, last, ring, command) -> bool    whether it shows a ring after `last`; then both
//   write_relay(relay, ring, command)
//   team_clock_ns()                          time, equal for the threads of the team
#pragma once

#include "gpu/kernel/ll.hpp"
#include "gpu/linger_args.hpp"

namespace tutti::gpu {

// What the workers of a CTA do; failed: their last call was given up.
inline constexpr uint32_t linger_idle = 0;
inline constexpr uint32_t linger_busy = 1;
inline constexpr uint32_t linger_failed = 2;

struct LingerShared {
  KernelArgs args[linger_slots];
  uint32_t workers;  // one of the above
  // What they are woken for: a command, or the end.
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
  // Only calls whose result lies in this GPU's memory linger: see finish().
  args.soft = 1;
  args.in_place = 0;
}

// One call by the threads of t; false, for all of them, when it was given up.
template <class T, int N>
TUTTI_KERNEL_FN bool perform(const T& t, LingerShared& shared, const LingerCommand& command) {
  KernelArgs& args = shared.args[slot_of(command)];
  if (t.thread() == 0) apply_command(command, args);
  t.sync();
  const KernelArgs& a = args;
  // Units of one line in flight a thread: linger_depth in gpu/linger.hpp counts with them.
  constexpr int deep = N == 2 ? 2 : 1;
  bool alive = true;
  switch (shape_of(command)) {
    case LingerShape::allreduce:
      alive = ll_pass<T, LlShape{Coll::allreduce, 1, N, deep}>(t, a);
      break;
    case LingerShape::allreduce_wide:
      alive = ll_pass<T, LlShape{Coll::allreduce, 2, N, 1}>(t, a);
      break;
    case LingerShape::reduce_scatter:
      alive = ll_pass<T, LlShape{Coll::reduce_scatter_block, 1, N, deep}>(t, a);
      break;
    case LingerShape::reduce_scatter_wide:
      alive = ll_pass<T, LlShape{Coll::reduce_scatter_block, 2, N, 1}>(t, a);
      break;
    case LingerShape::allgather:
      alive = ll_pass<T, LlShape{Coll::allgather, 1, N, deep}>(t, a);
      break;
    case LingerShape::leave:
      break;
  }
  finish(t, a, alive);
  return t.sync_all(alive);
}

// Whether the workers of this CTA have a part in it.
template <class T>
TUTTI_KERNEL_FN bool has_work(const T& t, const LingerCommand& command) {
  return bytes_of(command) > T::alone_bytes && t.grid_cta() < ctas_of(command);
}

template <class T, int N>
TUTTI_KERNEL_FN void worker(T& t, const LingerArgs& a, LingerShared& shared) {
  LingerCommand command = a.first;
  bool go = has_work(t, command);
  while (true) {
    if (go) {
      t.work(ctas_of(command));
      const bool alive = perform<T, N>(t, shared, command);
      if (t.thread() == 0) t.set(&shared.workers, alive ? linger_idle : linger_failed);
    }
    t.await_wake();
    if (!shared.go) return;
    command = shared.command;
    go = true;
  }
}

template <class T>
TUTTI_KERNEL_FN bool await_workers(const T& t, LingerShared& shared) {
  uint32_t state;
  while ((state = t.look(&shared.workers)) == linger_busy) t.spin();
  return state != linger_failed;
}

// Only when the workers are not busy.
template <class T>
TUTTI_KERNEL_FN void wake_for(T& t, LingerShared& shared, const LingerCommand& command, bool go) {
  if (t.team_first()) {
    if (go) t.set(&shared.workers, linger_busy);
    shared.command = command;
    shared.go = go;
  }
  t.wake();
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

// Goes on to the next ring; false when there is no call to perform: the last one was given up, the
// window is over, or the host said leave. `ring` is then the first that was not taken.
template <class T>
TUTTI_KERNEL_FN bool next_command(const T& t, const LingerArgs& a, bool alive, uint32_t& ring,
                                  LingerCommand& command) {
  ring = next_ring(ring);
  if (!alive || !await_bell(t, a, ring, command)) return false;
  if (shape_of(command) != LingerShape::leave) return true;
  ring = next_ring(ring);
  return false;
}

// The team of the first CTA.
template <class T, int N>
TUTTI_KERNEL_FN void leader(T& t, const LingerArgs& a, LingerShared& shared) {
  LingerCommand command = a.first;
  uint32_t ring = a.ring;
  t.work_alone();
  while (true) {
    const bool alone = bytes_of(command) <= T::alone_bytes;
    if (!alone && ring != a.ring) {
      if (ctas_of(command) > 1) t.write_relay(a.relay, ring, command);
      wake_for(t, shared, command, true);
    }
    const bool alive = alone ? perform<T, N>(t, shared, command) : await_workers(t, shared);
    if (!next_command(t, a, alive, ring, command)) break;
  }
  // From here on it takes no ring: its workers, the other CTAs and the host learn of it.
  wake_for(t, shared, command, false);
  if (t.grid_ctas() > 1) t.write_relay(a.relay, ring, leave_command());
  if (!t.team_first()) return;
  t.fence_system();
  t.store_relaxed(a.left, ring);
}

// The team of another CTA. It may have become resident late: rings that it did not see had no work for
// it, or they would not be over.
template <class T>
TUTTI_KERNEL_FN void follower(T& t, const LingerArgs& a, LingerShared& shared) {
  LingerCommand command = a.first;
  uint32_t last = a.ring;
  bool go = true;
  while (go) {
    // The leader may be through with its part of a call, and leave, while the workers here are not.
    await_workers(t, shared);
    while (!t.read_relay(a.relay, last, last, command)) t.spin();
    go = shape_of(command) != LingerShape::leave;
    if (!go || has_work(t, command)) wake_for(t, shared, command, go);
  }
}

template <class T, int N>
TUTTI_KERNEL_FN void linger_kernel(T& t, const LingerArgs& a) {
  LingerShared& shared = t.template shared<LingerShared>();
  if (!t.in_team()) {
    for (uint32_t i = t.thread(); i < linger_slots; i += t.threads())
      fill_args(a.slot[i], shared.args[i]);
    if (t.thread() == 0) shared.workers = has_work(t, a.first) ? linger_busy : linger_idle;
  }
  t.sync_cta();
  if (!t.in_team())
    worker<T, N>(t, a, shared);
  else if (t.grid_cta() == 0)
    leader<T, N>(t, a, shared);
  else
    follower(t, a, shared);
}

}  // namespace tutti::gpu
