"""An ordinary mpi4py program; with CuPy and a GPU in the machine it sums device arrays too."""
import sys

import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD


def check(module, place, settle):
    n = 1 << 18
    mine = module.arange(n, dtype="d") + comm.rank
    total = module.empty_like(mine)
    fastest = 1e9
    for _ in range(100):
        settle()
        start = MPI.Wtime()
        comm.Allreduce(mine, total)
        fastest = min(fastest, MPI.Wtime() - start)
    expected = module.arange(n, dtype="d") * comm.size + comm.size * (comm.size - 1) // 2
    right = bool((total == expected).all())
    if comm.rank == 0:
        print(f"Python: allreduce of {n} doubles in {place} memory on {comm.size} ranks, "
              f"fastest {fastest * 1e6:.1f} us, {'right' if right else 'WRONG'}", flush=True)
    return right


right = check(numpy, "host", lambda: None)
try:
    import cupy

    devices = cupy.cuda.runtime.getDeviceCount()
except Exception:  # no CuPy, no driver or no device: host memory alone
    devices = 0
# A plain MPI below need not know device memory: only with tutti is it sure to.
if devices and "--device" in sys.argv:
    cupy.cuda.Device(comm.rank % devices).use()
    right = check(cupy, "device", lambda: cupy.cuda.get_current_stream().synchronize()) and right
sys.exit(0 if right else 1)
