"""Runs mpi4py's own tests and writes each one's result, a line each, into a file of this rank.

  mpirun -n N python3 results.py TESTS RESULTS [PATTERN]

TESTS: the folder `test` of mpi4py's sources; RESULTS: the files are RESULTS.0, RESULTS.1...; PATTERN: which
modules. With TUTTI_EMU=libtutti_emu.so the tests use arrays in emulated device memory too. Exit status 0
whatever the results: whoever started two runs compares them.
"""
import ctypes
import glob
import os
import re
import sys
import unittest
import weakref

tests, results = sys.argv[1:3]
pattern = re.compile(sys.argv[3] if len(sys.argv) > 3 else "")
sys.path.insert(0, tests)
sys.argv[1:] = []

import numpy  # noqa: E402
from mpi4py import MPI  # noqa: E402
import arrayimpl  # noqa: E402


def add_emulated(path):
    """Has the tests use device memory of the emulated module, through the CUDA array interface."""
    library = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    library.tutti_emu_alloc.restype = ctypes.c_void_p
    library.tutti_emu_alloc.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_size_t]
    library.tutti_emu_free.argtypes = [ctypes.c_void_p]
    library.tutti_emu_copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    device = MPI.COMM_WORLD.Get_rank() % 2

    class Flat:
        """Elements in a row; what is written goes to the device."""

        def __init__(self, array):
            self.on_device = array

        def __getitem__(self, i):
            return self.on_device.array.flat[i]

        def __setitem__(self, i, value):
            host = self.on_device.array
            host.flat[i] = getattr(value, "array", value)
            self.on_device.write(host)

        def __iter__(self):
            return iter(self.on_device.array.flat)

        def __len__(self):
            return self.on_device.array.size

    @arrayimpl.add_backend
    class ArrayEmulated(arrayimpl.BaseArray):
        backend = "emulated"
        TypeMap = arrayimpl.ArrayNumPy.TypeMap

        def __init__(self, arg, typecode, shape=None, readonly=False):
            host = arrayimpl.ArrayNumPy(arg, typecode, shape).array
            self.shape, self.dtype = host.shape, host.dtype
            self.address = library.tutti_emu_alloc(3, device, max(host.nbytes, 1))
            weakref.finalize(self, library.tutti_emu_free, self.address)
            self.write(host)
            self.__cuda_array_interface__ = {
                "version": 0, "data": (self.address, readonly), "shape": self.shape,
                "typestr": arrayimpl.typestr(typecode, self.itemsize)}

        def write(self, host):
            host = numpy.ascontiguousarray(host)
            if host.nbytes:
                library.tutti_emu_copy(self.address, host.ctypes.data, host.nbytes)

        @property
        def array(self):
            host = numpy.empty(self.shape, self.dtype)
            if host.nbytes:
                library.tutti_emu_copy(host.ctypes.data, self.address, host.nbytes)
            return host

        def __setitem__(self, i, value):
            host = self.array
            host[i] = value
            self.write(host)

        def as_raw(self):
            return self

        typecode = property(lambda self: self.dtype.char)
        itemsize = property(lambda self: self.dtype.itemsize)
        flat = property(Flat)
        size = property(lambda self: self.array.size)


class Results(unittest.TestResult):
    """The worst that happened to a test, its parts included; the file ends where a run was ended."""

    def __init__(self, file):
        super().__init__()
        self.file, self.worst = file, None

    def startTest(self, test):
        super().startTest(test)
        self.worst = "ok"

    def stopTest(self, test):
        super().stopTest(test)
        print(test.id(), self.worst, file=self.file, flush=True)

    def addSkip(self, test, reason):
        self.worst = "skipped"

    def addFailure(self, test, error):
        self.fail(test, "failed", error)

    def addError(self, test, error):
        self.fail(test, "error", error)

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.fail(subtest, "failed" if issubclass(error[0], test.failureException) else "error", error)

    def fail(self, test, how, error):
        self.worst = how
        print(f"{test.id()}: {error[0].__name__}: {error[1]}", file=sys.stderr, flush=True)


def main():
    if "TUTTI_EMU" in os.environ:
        add_emulated(os.environ["TUTTI_EMU"])
    suite = unittest.TestSuite()
    for path in sorted(glob.glob(os.path.join(tests, "test_*.py"))):
        module = os.path.splitext(os.path.basename(path))[0]
        if pattern.search(module):
            suite.addTests(unittest.defaultTestLoader.loadTestsFromName(module))
    with open(f"{results}.{MPI.COMM_WORLD.Get_rank()}", "w") as file:
        suite.run(Results(file))


main()
