"""The probes of bench/ read numbers strictly: each one that is refused names argument, text and remedy."""

import os
import subprocess
import unittest
from multiprocessing.pool import ThreadPool

from velobench.openmpi import BUILD, OpenMpi

NO_NUMBERS = ("58k", "abc", "", "-3", "+3", " 3", "3 ", "0x3", "010", "3.5", "4294967296", "18446744073709551617")
REMEDY = "write decimal digits and nothing else"
# Each argument that is a number or a list of numbers, with the words in front of it and behind it.
BELOW_MPI = (("chunks", ("--chunk", "--against", "--rounds"), ("--sizes",)),
             ("credits", ("--peers", "--slots", "--rounds"), ()),
             ("distance", ("--seconds", "--every"), ()),
             ("matching", ("--rounds",), ("--depths",)),
             ("packets", ("--rounds",), ("--slots", "--sizes")),
             ("ring", ("--rounds", "--ring-bytes"), ("--sizes",)))
OVER_MPI = (("flow", ("--batches", "--batch-us", "--warm-us"), ("--sizes", "--windows", "--active")),
            ("pairs", (), ("--sizes", "--offsets")))
BY_PLACE = (("wires", "--sizes", ("socket", "label", "lo", "--sizes"), ()), ("afar", "SECONDS", ("incast", "label"), ()),
            ("everyone", "BYTES", ("alltoall", "label"), ()), ("instructions", "WINDOWS", (), ()),
            ("flood", "COUNT", ("label",), ("8",)), ("flood", "BYTES", ("label", "8"), ()),
            ("depth", "DEPTH", ("label",), ()),
            ("killer", "MESSAGES", ("label",), ("8", "5")), ("killer", "BYTES", ("label", "8"), ("5",)),
            ("killer", "RUNS", ("label", "8", "8"), ()),
            ("saturation", "SENDERS", ("label",), ("8", "1", "0")), ("saturation", "BYTES", ("label", "1"), ("1", "0")),
            ("saturation", "SECONDS", ("label", "1", "8"), ("0",)), ("saturation", "SINK", ("label", "1", "8", "1"), ()),
            ("fairness", "SLOW", ("label",), ("1", "1", "1", "1")), ("fairness", "BYTES", ("label", "0"), ("1", "1", "1")),
            ("fairness", "SECONDS", ("label", "0", "1"), ("1", "1")),
            ("fairness", "RATE", ("label", "0", "1", "1"), ("1",)),
            ("fairness", "FACTOR", ("label", "0", "1", "1", "1"), ()),
            ("outstanding", "COUNT", ("label",), ("8", "/nowhere")),
            ("outstanding", "BYTES", ("label", "8"), ("/nowhere",)))


def run(command):
    """Its result. mpirun of Open MPI 4.1 sometimes does not end where all ranks fail at once: then another one is run."""
    def once():
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    try:
        return once()
    except subprocess.TimeoutExpired:
        return once()


def run_all(commands):
    """Their results; some at once, because mpirun waits for a second where a rank fails."""
    with ThreadPool(8) as pool:
        return pool.map(run, commands)


class Numbers(unittest.TestCase):
    def refused(self, command, name, text, head=""):
        self.says_that_it_refuses(run(command), name, text, head)

    def says_that_it_refuses(self, result, name, text, head):
        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
        self.assertRegex(result.stderr, rf"{head}.*{name}=")
        self.assertIn(f"{name}={text} is not a number from ", result.stderr)
        self.assertIn(REMEDY, result.stderr)

    def options(self, command, probe, single, lists):
        for name in (*single, *lists):
            for text in NO_NUMBERS:
                with self.subTest(probe=probe, name=name, text=text):
                    self.refused([*command, name, text], name, text, f"{probe}: ")
        for name in lists:
            for text, bad in (("8,58k,16", "58k"), ("8,,16", ""), ("8,", ""), (",8", "")):
                with self.subTest(probe=probe, name=name, text=text):
                    self.refused([*command, name, text], name, bad, f"{probe}: ")

    def test_below_mpi(self):
        built = subprocess.run(["make", "-s", "-C", BUILD, "bench"], capture_output=True, text=True, check=False)
        self.assertEqual(built.returncode, 0, built.stderr)
        program = os.path.join(BUILD, "bench", "velo_bench")
        for probe, single, lists in BELOW_MPI:
            self.options([program, probe], probe, single, lists)

    def test_below_mpi_commands_and_options_are_known(self):
        program = os.path.join(BUILD, "bench", "velo_bench")
        for words, sentence in ((("speed",), "there is no command 'speed'"), ((), "there is no command ''"),
                                (("ring", "--modes", "x"), "ring: there is no option --modes; there are [--sizes …]"),
                                (("ring", "--rounds"), "ring: --rounds lacks its value"),
                                (("ring", "--ring-bytes", "5000"), "--ring-bytes=5000 is not a power of two"),
                                (("distance", "--until", "there"), "--until=there is neither near nor far")):
            with self.subTest(words):
                result = run([program, *words])
                self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
                self.assertIn(sentence, result.stderr)
        for words, text in ((("--help",), "distance"), (("packets", "--help"), "[--modes …] [--slots …]")):
            result = run([program, *words])
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn(text, result.stdout)

    def test_over_mpi(self):
        """One or the other word for each: the reading is one function, for which test_below_mpi has all."""
        mpi = OpenMpi()
        options = [(probe, name, (name,), ()) for probe, single, lists in OVER_MPI for name in (*single, *lists)]
        cases = [(*case, ("58k", "4294967296")[number % 2]) for number, case in enumerate([*options, *BY_PLACE])]
        commands = [[*mpi.command(2, mpi.sm), mpi.compile(probe), *before, text, *behind]
                    for probe, _, before, behind, text in cases]
        for (probe, name, _, _, text), result in zip(cases, run_all(commands)):
            with self.subTest(probe=probe, name=name, text=text):
                self.says_that_it_refuses(result, name, text, f"{probe}: ")

    def test_pairs_are_of_two_ranks(self):
        mpi = OpenMpi()
        texts = ("0-0", "0-2", "1", "0-1-", "0-+1", "-1-0")
        commands = [[*mpi.command(2, mpi.sm), mpi.compile("pairs"), "--pairs", text] for text in texts]
        for text, result in zip(texts, run_all(commands)):
            with self.subTest(text):
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(f"--pairs: '{text}' is not a pair of two of the job's 2 ranks", result.stderr)

    def test_pairs_are_pinned_or_not(self):
        mpi = OpenMpi()
        result = run([*mpi.command(2, mpi.sm), mpi.compile("pairs"), "--pinned", "maybe"])
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("pairs: --pinned takes yes or no", result.stderr)


if __name__ == "__main__":
    unittest.main()
