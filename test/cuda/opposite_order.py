#!/usr/bin/env python3
"""Nonblocking allreduces of CuPy arrays on several communicators at once, begun in another order on every
rank: legal MPI, and a deadlock for a library whose waiting kernels fill the GPU before the peer's arrive.

    mpirun -np 2 -x LD_PRELOAD=.../libtutti.so test/cuda/opposite_order.py [TURNS]

More communicators than the GPU module has lanes, so kernels and the host path are mixed; sizes up to
64 MiB, so grids are as large as they get. Needs mpi4py, numpy and cupy. Exit status 0 when every sum is
right; an alarm ends a hang.
"""

import random
import signal
import sys

import cupy
from mpi4py import MPI

COMMUNICATORS = 7


def main():
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    signal.alarm(90)
    world = MPI.COMM_WORLD
    cupy.cuda.Device(world.rank % cupy.cuda.runtime.getDeviceCount()).use()
    comms = [world.Dup() for _ in range(COMMUNICATORS)]
    own = random.Random(world.rank + 1)
    same = random.Random(99)
    for turn in range(turns):
        counts = [same.choice((1, 1000, 300_000, 4_000_000, 16_000_000)) for _ in comms]
        buffers = [cupy.full(count, world.rank + k + turn % 7, dtype=cupy.float32)
                   for k, count in enumerate(counts)]
        cupy.cuda.get_current_stream().synchronize()
        order = list(range(COMMUNICATORS))
        own.shuffle(order)
        requests = [None] * COMMUNICATORS
        for k in order:
            requests[k] = comms[k].Iallreduce(MPI.IN_PLACE, buffers[k], op=MPI.SUM)
        own.shuffle(order)
        for k in order:
            requests[k].Wait()
        for k, buffer in enumerate(buffers):
            want = sum(r + k + turn % 7 for r in range(world.size))
            if not bool((buffer == want).all()):
                print(f"rank {world.rank}: communicator {k}, {counts[k]} elements, turn {turn}: wrong")
                world.Abort(1)
    for comm in comms:
        comm.Free()
    if world.rank == 0:
        print(f"{turns} turns on {COMMUNICATORS} communicators of {world.size} ranks: right")


if __name__ == "__main__":
    main()
