"""Programs of others in turn under several configurations: what imb, npb and real share.

The CSV has benchmark,bytes,configuration,ranks,round,value,verdict. A verdict is ok, wrong, failed or timeout, and cut
for a size that the program left out. A speed is relative to that over `vader`, Open MPI's shared memory, in the same
run: the geometric mean over sizes of the ratio of medians over rounds."""

import os
import re
import shutil
import sys

from . import rows, tables
from .openmpi import BUILD, PLUGIN, OpenMpi, copy_plugin, cpus, read, run_job, tail, timed_out
from .options import file, folder, number, numbers, words
from .stats import Samples, geometric_mean

REFERENCE = "vader"
CONFIGURATIONS = ("one_node", "two_ranks_a_node", "one_rank_a_node", REFERENCE, "tcp")
# velo matches, on one node: by default; with each message asked for, as in MEM; and without memory for unexpected ones.
MATCHING = {"mtl": {}, "mtl_asked": {"btl_velo_unexpected_granted": 0},
            "mtl_none": {"btl_velo_unexpected_records": 0, "btl_velo_unexpected_bytes": 0}}
RANKS_A_NODE = {"two_ranks_a_node": 2, "one_rank_a_node": 1}
# Not part of the command that a table names: places on this machine.
PLACES = ("--out", "--plugin", "--baseline", "--save-baseline")


def add_options(options, name, tolerance):
    add = options.add_argument
    add("--bin", type=folder, required=True, metavar="DIR", help="where the programs are")
    add("--np", type=numbers(1, "numbers of ranks"), default=[2, 4, 8], metavar="LIST",
        help="numbers of ranks (default: 2,4,8)")
    add("--configurations", type=words(*CONFIGURATIONS, *MATCHING), default=list(CONFIGURATIONS), metavar="LIST",
        help=f"of {','.join(CONFIGURATIONS)} (default: all of these), and of velo's MTL: {','.join(MATCHING)}")
    add("--rounds", type=number(1, 99), default=1, metavar="N",
        help="each run N times, in turn over the configurations (default: 1)")
    add("--timeout", type=number(1, 1000000, "seconds"), default=300, metavar="S", help="of one run (default: 300)")
    add("--baseline", type=file, metavar="FILE", help="fails where velo's speed relative to vader's is below FILE's")
    add("--tolerance", type=number(0, 100, "percent"), default=tolerance, metavar="PERCENT",
        help=f"by more than this (default: {tolerance})")
    add("--save-baseline", metavar="FILE", help="writes such a file")
    add("--plugin", default=PLUGIN, metavar="DIR", help="where mca_btl_velo.so is (default: build/.libs)")
    add("--out", default=os.path.join(BUILD, name), metavar="DIR",
        help=f"for results.csv, table.md and logs (default: build/{name})")
    options.epilog = ("Exit status: 0 when all is right and nothing is slower than the baseline, 1 if not, 2 on wrong "
                      "usage.")


def parse(parser, given):
    options = parser.parse_args(given)
    if (options.baseline or options.save_baseline) and REFERENCE not in options.configurations:
        parser.error(f"a baseline holds speeds relative to {REFERENCE}, which must be among --configurations")
    return options


def command_line(name, given):
    """The command as a table names it."""
    parts = [part for argument in given for part in re.split("=", argument, maxsplit=argument.startswith("--"))]
    pairs = [(option, "DIR" if option == "--bin" else value) for option, value in zip(parts[::2], parts[1::2])
             if option not in PLACES]
    return " ".join(["bench/run " + name, *(f"{option} {value}" for option, value in pairs)])


def is_velo(configuration):
    return configuration not in (REFERENCE, "tcp")


class Runner:
    """Runs programs over a copy of the plugin, in a folder of their own."""

    def __init__(self, options):
        self.out = os.path.realpath(options.out)
        self.seconds_max = options.timeout
        self.mpi = OpenMpi()
        self.plugin = copy_plugin(options.plugin, os.path.join(self.out, "plugin"))
        self.logs = os.path.join(self.out, "logs")
        self.work = os.path.join(self.out, "work")
        shutil.rmtree(self.logs, ignore_errors=True)
        os.makedirs(self.logs)
        os.makedirs(self.work, exist_ok=True)

    def run(self, configuration, ranks, log, command, threads=1, mca=None, pins_itself=False, under=()):
        """The verdict. Ranks with a core each keep it and poll; more yield to each other. A program that pins its ranks
        itself has others asleep."""
        crowded = ranks * threads > cpus() and not pins_itself
        mca = dict(mca or {})
        if configuration == REFERENCE:
            btl = self.mpi.sm
        elif configuration == "tcp":
            btl, mca["btl_tcp_if_include"] = "tcp", "lo"
        else:
            btl = "velo"
            mca |= MATCHING.get(configuration, {})
            if configuration in RANKS_A_NODE:
                mca["btl_velo_ranks_per_node"] = RANKS_A_NODE[configuration]
        words_ = self.mpi.command(ranks, btl, self.plugin if btl == "velo" else None,
                                  "none" if crowded or pins_itself else "core", crowded,
                                  pml="cm" if configuration in MATCHING else "ob1", mca=mca)
        status = run_job([*words_, *command], log, self.seconds_max, under=under, folder=self.work)
        return "ok" if status == 0 else "timeout" if timed_out(status) else "failed"


class Matrix:
    """The runs of imb or of npb. `unit`: of values, us or mop_s."""

    def __init__(self, name, unit, given, options):
        self.name, self.unit, self.options = name, unit, options
        self._command_line = command_line(name, given)
        self.runner = Runner(options)
        self.csv = rows.Kept(os.path.join(self.runner.out, "results.csv"), "benchmark", "bytes", "configuration",
                             "ranks", "round", "value", "verdict")
        self.csv.begin()
        self.runs = self.defects = 0

    def turns(self, ranks):
        """Each round and configuration that `ranks` can have. Two ranks with two a node are on one node."""
        return [(round_, configuration) for round_ in range(1, self.options.rounds + 1)
                for configuration in self.options.configurations
                if configuration != "two_ranks_a_node" or ranks > 2]

    def log(self, benchmark, configuration, ranks, round_):
        return os.path.join(self.runner.logs, f"{benchmark}-{configuration}-{ranks}-{round_}.log")

    def report(self, benchmark, configuration, ranks, verdict, log):
        """Says how a run ended; only velo's defects count."""
        self.runs += 1
        print(f"{verdict:8} {benchmark} {configuration} {ranks}", file=sys.stderr)
        if verdict != "ok":
            print("    " + tail(log, 8).replace("\n", "\n    ") + f"\n    log: {log}", file=sys.stderr)
            self.defects += is_velo(configuration)

    def finish(self):
        """Writes the table, compares with the baseline. Returns whether all is right, and the speeds."""
        options = self.options
        of = speeds(self.csv.rows(), self.unit)
        text = (f"## {self.name.upper()}\n\nSpeed relative to vader in the same run: above 1 is faster than vader. "
                f"Geometric means over sizes, of medians over {options.rounds} round(s).\n\n"
                f"`{self._command_line}`: {self.runs} runs, {self.defects} defects.\n\n"
                + speed_table(of, options.configurations))
        path = os.path.join(self.runner.out, "table.md")
        with open(path, "w", encoding="utf-8") as table:
            table.write(text)
        print(text, end="")
        if options.save_baseline:
            with open(options.save_baseline, "w", encoding="utf-8") as baseline:
                baseline.writelines(f"{','.join(map(str, key))},{speed:.4f}\n" for key, speed in of.items())
            print(f"wrote {options.save_baseline}", file=sys.stderr)
        slower = []
        if options.baseline:
            compared, slower = regressions(of, read_baseline(read(options.baseline)), options.tolerance)
            slower_text = "".join(line + "\n" for line in slower)
            print(f"{slower_text}compared with the baseline: {compared} figures, tolerance {options.tolerance} %",
                  file=sys.stderr)
        print(f"{self.runs} runs, {self.defects} defects, {len(slower)} slower than the baseline\n"
              f"wrote {self.csv.path} and {path}", file=sys.stderr)
        return self.runs > 0 and self.defects == 0 and not slower, of


def speeds(results, unit):
    """By benchmark, configuration and ranks."""
    values, sizes, keys = Samples(), {}, {}
    for row in results:
        if row["verdict"] != "ok" or float(row["value"]) <= 0:
            continue
        benchmark, ranks = row["benchmark"], int(row["ranks"])
        values.add((benchmark, row["bytes"], row["configuration"], ranks), row["value"])
        sizes.setdefault((benchmark, ranks), {})[row["bytes"]] = True
        keys[benchmark, row["configuration"], ranks] = True
    found = {}
    for benchmark, configuration, ranks in keys:
        pairs = [[values.median((benchmark, size, which, ranks)) for which in (configuration, REFERENCE)]
                 for size in sizes[benchmark, ranks]]
        ratios = [reference / own if unit == "us" else own / reference
                  for own, reference in pairs if own is not None and reference is not None]
        if ratios and configuration != REFERENCE:
            found[benchmark, configuration, ranks] = round(geometric_mean(ratios), 4)
    return found


def class_of(benchmark):
    """An NPB benchmark is named NAME.CLASS, and each class has a mean of its own; other names have no class."""
    match = re.search(r"\.([A-Z])$", benchmark)
    return f"class {match[1]}" if match else "all"


def class_means(of):
    """The geometric mean of the speeds, by class, configuration and ranks."""
    grouped = Samples()
    for (benchmark, configuration, ranks), speed in of.items():
        grouped.add((class_of(benchmark), configuration, ranks), speed)
    return {key: geometric_mean(grouped.values(key)) for key in grouped}


def speed_table(of, configurations):
    columns = [configuration for configuration in configurations if configuration != REFERENCE]

    def lines(figures, name, text):
        return [[name(first), ranks, *(text(figures.get((first, column, ranks))) for column in columns)]
                for first, ranks in dict.fromkeys((first, ranks) for first, _, ranks in figures)]

    body = lines(of, str, tables.fixed)
    body += lines(class_means(of), "**geometric mean, {}**".format,
                  lambda mean: tables.NONE if mean is None else f"**{mean:.3f}**")
    return tables.table(["benchmark", "ranks", *columns], "lr" + "r" * len(columns), body)


def read_baseline(text):
    found = {}
    for line in text.splitlines():
        benchmark, configuration, ranks, speed = line.split(",")
        found[benchmark, configuration, int(ranks)] = float(speed)
    return found


def regressions(of, before, tolerance):
    """How many speeds were compared, and a sentence for each that is too low."""
    compared = {key: speed for key, speed in of.items() if key in before and key[1] != "tcp"}
    return len(compared), [f"slower   {' '.join(map(str, key))}: {speed:.2f} times the speed of vader, "
                           f"{before[key]:.2f} in the baseline" for key, speed in compared.items()
                           if speed < before[key] * (1 - tolerance / 100)]
