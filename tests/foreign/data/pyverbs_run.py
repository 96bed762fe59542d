"""Runs named tests of a pyverbs suite and reports each test by name at once.

So the report names the test of a hang or a crash.

usage: pyverbs_run.py SUITE_DIR REPORT_FILE [options of the suite: --dev --port --gid]; test names on standard input
Report lines, tab separated: START name / ok name / skip name reason / fail name reason / error name reason
"""
import importlib.machinery
import os
import sys
import unittest

suite_dir, report_path = sys.argv[1:3]
names = [line.strip() for line in sys.stdin if line.strip()]
sys.argv[1:] = sys.argv[3:]
sys.path.insert(0, suite_dir)
# The report is unbuffered and in append mode, because forked children must not repeat pending lines
# of the parent.
report = os.open(report_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def say(word, test, reason=""):
    name = test.id().removeprefix("tests.")
    reason = " ".join(str(reason).split())[:400]
    os.write(report, f"{word}\t{name}\t{reason}\n".encode())


def last_line(err):
    return f"{err[0].__name__}: {err[1]}"


class Reporter(unittest.TestResult):
    """Keeps the worst result of a test, its sub-tests and its tear-down, and reports only this result."""

    RANK = ["ok", "skip", "fail", "error"]

    def startTest(self, test):
        super().startTest(test)
        self.word, self.reason, self.spoken = None, "", False
        say("START", test)

    def note(self, word, reason=""):
        if self.word is None or self.RANK.index(word) > self.RANK.index(self.word):
            self.word, self.reason = word, reason

    def addSuccess(self, test):
        self.note("ok")

    def addSkip(self, test, reason):
        self.note("skip", reason)

    def addFailure(self, test, err):
        self.note("fail", last_line(err))
        super().addFailure(test, err)

    def addError(self, test, err):
        self.note("error", last_line(err))
        super().addError(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.note("fail", last_line(err))

    def addExpectedFailure(self, test, err):
        self.note("ok")

    def addUnexpectedSuccess(self, test):
        self.note("fail", "unexpected success")

    def stopTest(self, test):
        say(self.word or "error", test, self.reason if self.word else "the test ended without a result")
        super().stopTest(test)


from args_parser import parser  # noqa: E402  (lies in the suite's directory)

init = os.path.join(suite_dir, "__init__.py")
# The suite is a package called "tests". The suite's own run_tests.py loads the package in the same
# way.
tests = importlib.machinery.SourceFileLoader("tests", init).load_module()
parser.parse_args()
loader = unittest.defaultTestLoader
suite = loader.loadTestsFromNames(["tests." + name for name in names])
if loader.errors:
    sys.exit("".join(loader.errors))
result = Reporter()
suite.run(result)
for test, trace in result.failures + result.errors:
    print(f"---- {test.id()}\n{trace}")
print("pyverbs_run: done")
