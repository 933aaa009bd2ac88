"""bench/run: wrong arguments are refused with a sentence, and a job runs from end to end."""

import csv
import os
import re
import stat
import subprocess
import tempfile
import unittest

from velobench import cli
from velobench.openmpi import PLUGIN, ROOT

BENCH = os.path.join(ROOT, "bench", "run")


def run(*arguments, seconds_max=60):
    return subprocess.run([BENCH, *arguments], capture_output=True, text=True, check=False, timeout=seconds_max)


class Refusals(unittest.TestCase):
    CASES = ((("nothing",), "there is no command 'nothing'"), ((), "a command is missing"),
             (("compare", "--nothing"), "unrecognized arguments: --nothing"),
             (("compare", "--only", "speed"), "there is no 'speed'; there are: latency,bandwidth"),
             (("compare", "--columns", "velo,"), "there is no ''; there are: velo"),
             (("compare", "--sizes", "8,x"), "'8,x' is not a list of bytes such as 2,8"),
             (("compare", "--rounds", "0"), "'0' is not a number from 1 to 999"),
             (("compare", "--wait", "1h"), "'1h' is not a number from 1 to 999999"),
             (("compare", "--append", "/nowhere"), "there is no file /nowhere"),
             (("hosts", "--only", "npb"), "'' is no folder of benchmarks"),
             (("imb",), "arguments are required: --bin"), (("npb", "--bin", "/nowhere"), "there is no folder /nowhere"),
             (("imb", "--bin", "/", "--np", "0"), "'0' is not a list of numbers of ranks"),
             (("npb", "--bin", "/", "--configurations", "tcp", "--save-baseline", "x"), "vader, which must be among"),
             (("real", "--only", "npb"), "npb needs --npb DIR"), (("real", "--modes", "best"), "there is no 'best'"),
             (("outstanding", "--count", "many"), "'many' is not a number from 1"),
             (("instructions", "--plugin", "/", "--plugin", "/", "--plugin", "/"), "at most twice"),
             (("figures", "--only", "8"), "there is no '8'"), (("robust", "--only", "calm"), "calm names no pattern"),
             (("demo", "--rounds", "100"), "'100' is not a number from 1 to 99"))

    def test_each_with_a_sentence(self):
        for arguments, sentence in self.CASES:
            with self.subTest(arguments):
                result = run(*arguments)
                self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
                self.assertIn(sentence, result.stderr)
                self.assertNotIn("Traceback", result.stderr)

    def test_what_is_missing_is_named(self):
        with tempfile.TemporaryDirectory() as empty:
            for arguments, sentence in ((("compare", "--plugin", empty), f"there is no mca_btl_velo.so in {empty}"),
                                        (("compare", "--report", "--out", empty), "there is no "),
                                        (("npb", "--bin", empty, "--out", empty), "none of is ft cg"),
                                        (("real", "--report", "--out", empty, "--only", "cost", "--results", empty),
                                         "there are no runs yet"),
                                        (("robust", "--build", empty), "velo_sim builds it")):
                with self.subTest(arguments):
                    result = run(*arguments)
                    self.assertEqual(result.returncode, 1, result.stderr)
                    self.assertRegex(result.stderr, f"bench/run {arguments[0]}: .*{re.escape(sentence)}")

    def test_every_command_has_help(self):
        for command in cli.COMMANDS:
            with self.subTest(command):
                result = run(command, "--help")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn(f"usage: bench/run {command}", result.stdout)
                self.assertIn(command, run("--help").stdout)


class Jobs(unittest.TestCase):
    """Over velo as it was built, beside Open MPI's own."""

    def test_compare(self):
        with tempfile.TemporaryDirectory(prefix="job-bench.") as out:
            result = run("compare", "--only", "latency", "--columns", "velo,vader", "--sizes", "8,2048", "--rounds",
                         "1", "--plugin", PLUGIN, "--out", out, seconds_max=300)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(os.path.join(out, "compare.csv"), encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
            # A report says of which source the rounds are, and not of which it is made.
            kept = "0123abc"
            with open(os.path.join(out, "source"), "w", encoding="ascii") as file:
                file.write(kept + "\n")
            result = run("compare", "--report", "--out", out)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(os.path.join(out, "compare.md"), encoding="utf-8") as file:
                page = file.read()
        figures = [(row["column"], row["where"], row["size"]) for row in rows if row["measure"] == "latency"]
        self.assertEqual(figures, [(column, "0-1", size) for column in ("velo", "vader") for size in ("8", "2048")])
        self.assertEqual(sum(row["measure"] == "line" for row in rows), 6)
        self.assertTrue(all(float(row["value"]) > 0 for row in rows), rows)
        self.assertRegex(page, r"`mpirun -np 2 --oversubscribe [^`]*`, and behind it:\n\n\| column \| options \|")
        self.assertRegex(page, r"\| velo, on node \| `--mca pml ob1 --mca btl velo,self")
        self.assertEqual(kept, re.search(r"\(source (\w+)\)", page).group(1))

    def test_hosts_over_lo(self):
        """Each column's job, at each offset; far from the speed of a network."""
        columns = ("velo_net", "velo_mtl_net", "mtl_net", "fabric_net", "socket")
        with tempfile.TemporaryDirectory(prefix="job-bench.") as out:
            result = run("hosts", "--loopback", "--only", "latency,bandwidth", "--columns", ",".join(columns), "--sizes",
                         "8,65536", "--offsets", "0,16", "--rounds", "1", "--plugin", PLUGIN, "--out", out,
                         seconds_max=300)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(os.path.join(out, "hosts.csv"), encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
        for column in columns:
            measures = ["latency", "bandwidth"] + ["both"] * (column not in ("fabric_net", "socket"))
            figures = {(row["measure"], row["size"]): float(row["value"]) for row in rows if row["column"] == column}
            for name in (f"{measure}@{offset}" for measure in measures for offset in (0, 16)):
                for size in ("8", "65536"):
                    self.assertGreater(figures.get((name, size), 0), 0, (column, name, size))
            self.assertGreater(figures["line", "0"], 0, column)

    def test_npb_counts_what_is_not_verified(self):
        """Programs that only print: one is right, one is not over velo, one not over vader, which is no defect."""
        right = "#!/bin/sh\necho ' Mop/s total = 5'\necho ' Verification = SUCCESSFUL'\n"
        programs = {"is.S.x": right, "ft.S.x": right + "case $OMPI_MCA_btl in velo*) echo UNSUCCESSFUL ;; esac\n",
                    "mg.S.x": right + "case $OMPI_MCA_btl in velo*) ;; *) echo UNSUCCESSFUL ;; esac\n"}
        with tempfile.TemporaryDirectory(prefix="job-bench.") as out:
            for name, text in programs.items():
                path = os.path.join(out, name)
                with open(path, "w", encoding="ascii") as file:
                    file.write(text)
                os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
            result = run("npb", "--bin", out, "--np", "2", "--configurations", "one_node,vader", "--out",
                         os.path.join(out, "npb"))
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("6 runs, 1 defects", result.stderr)
        self.assertIn("wrong    ft.S one_node 2\n", result.stderr)
        self.assertIn("| is.S | 2 | 1.00 |\n", result.stdout)


if __name__ == "__main__":
    unittest.main()
