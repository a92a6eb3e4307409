"""Runs rdma-core's test suite as run_tests.py does and writes a line per test: identifier, outcome, reason."""

import multiprocessing
import os
import unittest
from importlib.machinery import SourceFileLoader

from args_parser import parser


class Report(unittest.TestResult):
    def __init__(self, file):
        super().__init__()
        self.file = file

    def line(self, test, outcome, reason=""):
        reason = " ".join(str(reason).split())
        print(test.id(), outcome, reason, sep="\t", file=self.file, flush=True)

    def addSuccess(self, test):
        self.line(test, "passed")

    def addSkip(self, test, reason):
        self.line(test, "skipped", reason)

    def bad(self, test, error):
        print(self._exc_info_to_string(error, test), flush=True)
        self.line(test, "failed", error[1])

    addFailure = bad
    addError = bad

    def addExpectedFailure(self, test, error):
        self.line(test, "passed")

    def addUnexpectedSuccess(self, test):
        self.line(test, "failed", "succeeded against expectation")


init = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__init__.py")
tests = SourceFileLoader("tests", init).load_module()
parser.parse_args()
# The suite's processes take over what their parent has, as they do by default before Python 3.14.
multiprocessing.set_start_method("fork")
with open(os.environ["REPORT"], "w") as file:
    unittest.defaultTestLoader.loadTestsFromModule(tests).run(Report(file))
    print("end", file=file)
