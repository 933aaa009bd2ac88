"""Runs a user's Intel MPI Benchmarks over velo's layouts, vader and tcp.

Runs the IMB programs in --bin over velo's three layouts, vader and tcp. IMB that was compiled with -DCHECK checks all
contents; a run over velo with a defect, a crash or a hang is a defect of velo."""

import os
import re
import sys

from .matrix import Matrix, add_options, parse
from .openmpi import Failed, read
from .options import number, parser, words

SUITES = ("MPI1", "NBC", "RMA", "EXT", "MT")
MT_THREADS = 2
TIME_COLUMN = re.compile(r"(t|t_avg|t_ovrl)\[usec\]")


def table_rows(log):
    """Rows of IMB's tables: benchmark, bytes, us, defects. Defects are "-" where IMB did not check, and "cut" where it
    left a size out because its time, or its memory, was over."""
    found, name, columns = [], "", {}
    for line in log.splitlines():
        fields = line.split()
        if line.startswith("# Benchmarking "):
            name, columns = fields[2], {}
        elif re.match(r"# *MODE:", line):
            name += "-" + fields[-1].removeprefix("MODE:").lower()
        elif "#bytes" in line or "#repetitions" in line:
            columns = {}
            for index, field in enumerate(fields):
                if TIME_COLUMN.fullmatch(field):
                    columns["us"] = index
                elif field in ("#bytes", "defects"):
                    columns[field] = index
        elif "us" in columns and fields and fields[0].isdigit():
            if "#bytes" in columns and len(fields) > 1 and not fields[1].isdigit():
                found.append((name, fields[0], "0", "cut"))
            elif len(fields) > columns["us"]:
                found.append((name, fields[columns["#bytes"]] if "#bytes" in columns else "0", fields[columns["us"]],
                              fields[columns["defects"]] if len(fields) > columns.get("defects", len(fields)) else "-"))
    return found


class Suite:
    """One of IMB's programs."""

    def __init__(self, matrix, name):
        self.matrix, self.name, self.options = matrix, name, matrix.options
        self.program = os.path.join(self.options.bin, "IMB-" + name)
        self.unchecked = False
        self.cut = 0

    def command(self, ranks):
        options = self.options
        if self.name == "MT":
            command = ["env", f"OMP_NUM_THREADS={MT_THREADS}", self.program, "-thread_level", "multiple", "-repeat",
                       "10", "-warmup", "2", "-check", "on", "-count", "1,512,16384"]
        else:
            command = [self.program, "-npmin", str(ranks), "-iter", str(options.iter), "-time", options.time, "-msglog",
                       options.msglog]
        # Names alone restrict; -include adds to IMB's own list.
        return command + options.benchmarks

    def run(self, ranks):
        matrix = self.matrix
        for round_, configuration in matrix.turns(ranks):
            log = matrix.log(self.name, configuration, ranks, round_)
            verdict = matrix.runner.run(configuration, ranks, log, self.command(ranks),
                                        threads=MT_THREADS if self.name == "MT" else 1)
            text = read(log)
            if "CHECK FAILURES" in text:
                verdict = "wrong"
            measured = table_rows(text)
            for key, size, us, defects in measured:
                row_verdict = "cut" if defects == "cut" else "ok" if defects in ("-", "0.00") else "wrong"
                self.cut += row_verdict == "cut"
                self.unchecked |= defects == "-" and self.name != "MT"
                if row_verdict == "wrong":
                    verdict = "wrong"
                    with open(log, "a", encoding="utf-8") as file:
                        file.write(f"{defects} defects in {self.name}/{key} of {size} bytes\n")
                matrix.csv.add([[f"{self.name}/{key}", size, configuration, ranks, round_, us, row_verdict]])
            if verdict == "ok" and not measured:
                verdict = "failed"
            if verdict != "ok":
                matrix.csv.add([[self.name, 0, configuration, ranks, round_, 0, verdict]])
            matrix.report(self.name, configuration, ranks, verdict, log)


def main(given):
    options = parser("imb", __doc__)
    add = options.add_argument
    add("--only", type=words(), default=SUITES, metavar="LIST",
        help=f"suites (default: those in --bin of {','.join(SUITES)})")
    add("--benchmarks", type=words(), default=[], metavar="LIST",
        help="benchmarks of the suites, for example PingPong,Alltoall (default: all)")
    add("--iter", type=number(1, 1000000), default=50, metavar="N",
        help="IMB's own limit (default: 50); MT has none and runs few repetitions")
    add("--time", default="0.1", metavar="S", help="IMB's own limit (default: 0.1)")
    add("--msglog", default="0:16", metavar="A:B", help="IMB's own limit (default: 0:16)")
    add_options(options, "imb", 30)
    matrix = Matrix("imb", "us", given, parse(options, given))
    options = matrix.options
    suites = [Suite(matrix, name) for name in options.only]
    for suite in suites:
        for ranks in options.np if os.access(suite.program, os.X_OK) else ():
            suite.run(ranks)
    if matrix.runs == 0:
        raise Failed(f"{options.bin} has no IMB-SUITE of {' '.join(options.only)}")
    right, _ = matrix.finish()
    if any(suite.unchecked for suite in suites):
        print("some tables have no column of defects: what IMB does not check, or IMB compiled without -DCHECK",
              file=sys.stderr)
    cut = sum(suite.cut for suite in suites)
    if cut:
        print(f"{cut} sizes were left out by IMB's own limits; see the rows 'cut' in {matrix.csv.path}",
              file=sys.stderr)
    return 0 if right else 1
