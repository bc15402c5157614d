#!/usr/bin/env python3
"""Allreduce of a CuPy array: by MPI on the device buffer, or staged by hand through host memory.

    mpirun -np 2 -x LD_PRELOAD=.../libtutti.so bench/staging.py --way device
    mpirun -np 2 bench/staging.py --way host

Rank r uses GPU r modulo the number of GPUs. One JSON line a size on rank 0: the slowest rank's median
in microseconds, raw samples, and whether fresh random data summed up right on every rank. Staging by
hand is what a program does over an MPI that takes no device memory: copy to a host array that is kept,
reduce there, copy back. Needs mpi4py, numpy and cupy.
"""

import argparse
import json
import statistics
import time

import cupy
import numpy
from mpi4py import MPI


def median_over_ranks(comm, samples):
    return comm.allreduce(statistics.median(samples), op=MPI.MAX)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--way", choices=("device", "host"), required=True)
    parser.add_argument("--bytes", type=int, nargs="*", default=[8, 1 << 20, 64 << 20])
    parser.add_argument("--calls", type=int, default=40)
    arguments = parser.parse_args()

    comm = MPI.COMM_WORLD
    cupy.cuda.Device(comm.rank % cupy.cuda.runtime.getDeviceCount()).use()
    random = numpy.random.default_rng(1234 + comm.rank)
    for size in arguments.bytes:
        count = max(1, size // 4)
        # Whole numbers: the sum is exact whatever the order.
        data = random.integers(-1000, 1000, count).astype(numpy.float32)
        send = cupy.asarray(data)
        recv = cupy.full(count, numpy.nan, dtype=numpy.float32)
        host_send = numpy.empty(count, dtype=numpy.float32)
        host_recv = numpy.empty(count, dtype=numpy.float32)
        stream = cupy.cuda.get_current_stream()
        stream.synchronize()
        samples = []
        for call in range(arguments.calls + 5):
            comm.Barrier()
            begin = time.perf_counter()
            if arguments.way == "device":
                comm.Allreduce(send, recv, op=MPI.SUM)
            else:
                send.get(out=host_send)
                comm.Allreduce(host_send, host_recv, op=MPI.SUM)
                recv.set(host_recv)
                stream.synchronize()
            if call >= 5:
                samples.append((time.perf_counter() - begin) * 1e6)
        expected = numpy.empty(count, dtype=numpy.float32)
        comm.Allreduce(data, expected, op=MPI.SUM)
        right = comm.allreduce(bool((cupy.asnumpy(recv) == expected).all()), op=MPI.LAND)
        median = median_over_ranks(comm, samples)
        if comm.rank == 0:
            line = {"way": arguments.way, "ranks": comm.size, "bytes": size, "median_us": median,
                    "right": right, "samples_us": [round(s, 2) for s in samples]}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
