"""Runs mpi4py's own suite in this rank, without the tests of a list, and prints the results.

usage: mpi4py_run.py SUITE_DIR LEFT_OUT_FILE [MODULE...]

A line of the file is `NAME: reason`. NAME is a module, a class or a test (module.Class.test), and
leaves out all tests below. With `TRANSPORT/` before NAME, the line counts only if TRANSPORT is the
first transport of UCX_TLS.
"""
import faulthandler
import glob
import os
import sys
import time
import unittest

suite_dir, list_path, *modules = sys.argv[1:]
sys.path.insert(0, suite_dir)
os.chdir(suite_dir)
with open(list_path, encoding="utf-8") as f:
    named = [line.split(":")[0].strip() for line in f if line.strip() and not line.startswith("#")]
transport = os.environ["UCX_TLS"].split(",")[0] + "/"
left_out = [name.removeprefix(transport) for name in named]
from mpi4py import MPI  # noqa: E402  (starts MPI: only after the arguments are taken)

if not modules:
    modules = sorted(os.path.basename(p)[:-3] for p in glob.glob("test_*.py"))


def out(name):
    return any(name == o or name.startswith(o + ".") for o in left_out)


def flat(suite):
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from flat(one)
        else:
            yield one


wanted = unittest.TestSuite()
for module in modules:
    if out(module):
        continue
    try:
        tests = list(flat(unittest.defaultTestLoader.loadTestsFromName(module)))
    except unittest.SkipTest:
        continue
    wanted.addTests(test for test in tests if not out(test.id()))
rank = MPI.COMM_WORLD.Get_rank()


class Result(unittest.TestResult):
    """Measures the time of each test, and prints the stack of a test after two minutes."""

    slow = []

    def startTest(self, test):
        super().startTest(test)
        self.since = time.monotonic()
        faulthandler.dump_traceback_later(120)

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        self.slow.append((time.monotonic() - self.since, test.id()))
        super().stopTest(test)


result = Result()
wanted.run(result)
for word, list_of in (("FAILED", result.failures), ("ERROR", result.errors)):
    for test, trace in list_of:
        print(f"rank {rank} {word} {test.id()}\n{trace}", flush=True)
print(
    f"mpi4py rank {rank}: {result.testsRun} run, {len(result.skipped)} skipped by the suite, "
    f"{len(result.failures)} failed, {len(result.errors)} errors",
    flush=True,
)
slowest = ", ".join(f"{name} {took:.1f} s" for took, name in sorted(result.slow)[:-6:-1])
print(f"mpi4py rank {rank}, the slowest: {slowest}", flush=True)
