"""Verdicts and counts of the runners in Python, as tests/job.bash has them for those in bash."""
import time


class Verdicts:
    def __init__(self):
        self.passed = self.failed = 0

    def verdict(self, name, check, *arguments):
        """Runs check(*arguments): PASS if it returns, FAIL if it raises."""
        start, error = time.monotonic(), None
        try:
            check(*arguments)
        except Exception as raised:  # a case that breaks has failed
            error = f": {type(raised).__name__}: {str(raised)[:1500]}"
        print(f"{'FAIL' if error else 'PASS'} {name} {time.monotonic() - start:.1f}{error or ''}", flush=True)
        self.failed += bool(error)
        self.passed += not error

    def finish(self):
        """The counts; returns the exit status."""
        print(f"{self.passed} passed, {self.failed} failed")
        return 0 if self.failed == 0 and self.passed else 1
