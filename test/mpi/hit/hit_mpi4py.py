"""Each allreduce of an mpi4py program reaches tutti exactly once and gives the right result."""
import ctypes
import signal
import sys

import numpy
from mpi4py import MPI

signal.alarm(60)
comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
faults = 0
try:
    calls = ctypes.CDLL(None).tutti_count_calls
    calls.restype = ctypes.c_ulonglong
    calls.argtypes = [ctypes.c_char_p]
except AttributeError:
    calls = None


def hits():
    return calls(b"allreduce") if calls else -1


def expect(what, before, got, want):
    global faults
    if calls and hits() - before != 1:
        print(f"rank {rank}: {what}: {hits() - before} hits of one call")
        faults += 1
    if not numpy.array_equal(got, want):
        print(f"rank {rank}: {what}: wrong result")
        faults += 1


n = 100
mine = numpy.arange(n, dtype="d") + rank
want = numpy.arange(n, dtype="d") * size + size * (size - 1) // 2
for target in (comm, comm.Dup()):
    out = numpy.full(n, -1.0)
    before = hits()
    target.Allreduce(mine, out, op=MPI.SUM)
    expect("Allreduce", before, out, want)
    out = mine.copy()
    before = hits()
    target.Allreduce(MPI.IN_PLACE, out, op=MPI.SUM)
    expect("Allreduce in place", before, out, want)
    out = numpy.full(n, -1.0)
    before = hits()
    target.Iallreduce(mine, out, op=MPI.SUM).Wait()
    expect("Iallreduce", before, out, want)
sys.exit(1 if faults else 0)
