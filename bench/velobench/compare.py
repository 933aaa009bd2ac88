"""Measures velo beside the other shared-memory transports of this machine in one run, and says which targets
it meets: near and far cores apart, medians over rounds, as CSV and as tables.

  bench/run compare                      everything, 5 rounds
  bench/run compare --only latency --columns velo,vader --sizes 8,2048 --rounds 3      a quick look
  bench/run compare --wait 7200          waits two hours at most until each figure was near and far as often, too

In a round each column runs once, one job after the other. A figure is near when one cache line takes less than 110 ns
from CPU to CPU right before and after it, far when it takes more than 160 both times, and mixed otherwise: virtual
CPUs move about, and figures of different distances do not compare."""

import hashlib
import os
import shutil
import subprocess
import sys
import time

from . import compare_tables, rows, tables
from .openmpi import (BUILD, PLUGIN, PLUGIN_FILE, ROOT, Failed, OpenMpi, check_plugin, compile_probe, copy_plugin, cpus,
                      found, machine, output_of, read, run_job, tail, timed_out)
from .options import file, number, numbers, parser, words

GROUPS = ("latency", "bandwidth", "rate", "unpinned", "memory", "flow")
COLUMNS = ("velo", "mtl", "vader", "vader_copied", "ucx", "mpich", "device", "mtl_device")
# velo with one way for all long messages on the node: measured only if asked for.
WAYS = compare_tables.WAYS
# Those that need not be there.
PEERS = ("ucx", "mpich", "vader_copied")
LATENCY_SIZES = [0, 8, *(2 ** power for power in (6, *range(8, 17), 18, 20, 22, 24))]
UNPINNED_SIZES = [8, 2048, 16384, 65536, 1048576]
BANDWIDTH_SIZES = [2 ** power for power in (12, 14, 16, 18, 20, 22)]
MEMORY_RANKS = (2, 8, 32)
FLOW_RANKS = (2, 4)
VELO_BENCH = os.path.join(BUILD, "bench", "velo_bench")
JOB_SECONDS_MAX = 120


def arguments(given):
    options = parser("compare", __doc__)
    add = options.add_argument
    add("--only", type=words(*GROUPS), default=list(GROUPS), metavar="LIST",
        help=f"of {','.join(GROUPS)} (default: all)")
    add("--columns", type=words(*COLUMNS, *WAYS), default=list(COLUMNS), metavar="LIST",
        help=f"of {','.join(COLUMNS)} (default: all of these) and {','.join(WAYS)}: velo with one way for long messages")
    add("--sizes", type=numbers(0, "bytes"), metavar="LIST", help="bytes, for latency and bandwidth")
    add("--rounds", type=number(1, 999), default=5, metavar="N", help="default: 5")
    add("--wait", type=number(1, 999999), default=0, metavar="SECONDS",
        help="after the rounds, goes on until each figure was measured as often near and far, but not longer than this; "
             "watches how near the CPUs are meanwhile (velo_bench distance)")
    add("--plugin", default=PLUGIN, metavar="DIR", help="uses the mca_btl_velo.so in DIR instead of build/.libs")
    add("--before", metavar="DIR", help="also measures the mca_btl_velo.so in DIR, in columns of its own")
    add("--out", default=os.path.join(BUILD, "compare"), metavar="DIR",
        help="where compare.csv and compare.md go (default: build/compare)")
    add("--add", action="store_true", help="adds rounds to those in the output directory, of the same plugin")
    add("--report", action="store_true",
        help="measures nothing; makes the tables from what is in the output directory")
    add("--write-docs", action="store_true",
        help="also writes the tables to docs/results.md, whose last section stays")
    add("--append", type=file, action="append", default=[], metavar="FILE",
        help="with --write-docs: a table.md of imb or npb that follows them; may be repeated")
    return options.parse_args(given)


def revision():
    return found(r"^([0-9a-f]+)$", output_of("git", "-C", ROOT, "rev-parse", "--short", "HEAD")) or "unknown"


class Comparison:
    def __init__(self, options):
        self.options = options
        self.columns = list(options.columns)
        self.missing = {}
        self.csv = rows.Kept(os.path.join(options.out, "compare.csv"), "group", "round", "column", "where", "measure",
                             "size", "value")
        self.mpi = OpenMpi()

    def drop(self, column, why):
        self.columns.remove(column)
        self.missing[column] = why
        print(f"bench/run compare: {compare_tables.TITLES[column]}: {why}", file=sys.stderr)

    def command(self, column, ranks, plugin, before=None):
        """The command for a column, up to the program."""
        if column == "mpich":
            return ["mpirun.mpich", "-np", str(ranks), "-bind-to", "none"]
        # Two ranks have a core each and poll; more must yield to each other.
        yields = ranks > 2
        if column == "ucx":
            return self.mpi.ucx_command(ranks, yields)
        if column in ("vader", "vader_copied"):
            copied = {"btl_vader_single_copy_mechanism": "none"} if self.mpi.is_4() else {"smsc": "^cma,knem,xpmem"}
            return self.mpi.command(ranks, self.mpi.sm, yields=yields, mca=copied if column == "vader_copied" else None)
        if column == "tcp":
            return self.mpi.command(ranks, "tcp", yields=yields, mca={"btl_tcp_if_include": "lo"})
        if column == "alone":
            return self.mpi.command(ranks, "self", yields=yields)
        column, old = column.removesuffix("_before"), column.endswith("_before")
        if column in WAYS:
            return self.mpi.command(ranks, "velo", plugin, yields=yields, mca={"btl_velo_block_way": column})
        mca = {} if column in ("velo", "mtl") else {"btl_velo_ranks_per_node": 1}
        if column in ("static", "none"):
            mca |= {"btl_velo_flow_control": column}
        return self.mpi.command(ranks, "velo", before if old else plugin, yields=yields, mca=mca,
                                pml="cm" if column.startswith("mtl") else "ob1")

    def job(self, group, round_, column, ranks, probe, *arguments_):
        """Appends the job's rows to the CSV. A peer that cannot run is left out from then on; without velo there is
        nothing to compare."""
        if column in self.missing:
            return
        out = self.options.out
        log = os.path.join(out, "logs", f"{group}-{round_}-{column}-{ranks}.log")
        program = compile_probe("pairs", "mpicxx.mpich", "-mpich") if column == "mpich" else self.mpi.compile(probe)
        command = self.command(column, ranks, os.path.join(out, "plugin"), os.path.join(out, "plugin-before"))
        status = run_job([*command, program, *map(str, arguments_)], log, JOB_SECONDS_MAX, log + ".csv")
        measured = rows.parse(read(log + ".csv")) if status == 0 else []
        if measured:
            self.csv.add([group, round_, *row] for row in measured)
            return
        print(tail(log, 20), file=sys.stderr)
        if column in PEERS:
            self.drop(column, "failed")
            return
        what = (f"did not end within {JOB_SECONDS_MAX} s" if timed_out(status)
                else f"ended with {status}" if status else "printed nothing")
        raise Failed(f"the job of '{column}' in {group} {what}; its output is in {log}")

    def pairs(self, group, round_, measures, sizes, *more):
        """One pair of ranks."""
        for column in list(self.columns):
            self.job(group, round_, column, 2, "pairs", "--label", column, "--pairs", "0-1", "--measures", measures,
                     "--sizes", ",".join(map(str, sizes)), *more)

    def group_latency(self, round_):
        self.pairs("latency", round_, "latency", self.options.sizes or LATENCY_SIZES)

    def group_bandwidth(self, round_):
        self.pairs("bandwidth", round_, "bandwidth,both", self.options.sizes or BANDWIDTH_SIZES)

    def group_rate(self, round_):
        self.pairs("rate", round_, "rate", [8])

    def group_unpinned(self, round_):
        self.pairs("unpinned", round_, "latency,bandwidth", UNPINNED_SIZES, "--pinned", "no")

    def group_memory(self, round_):
        self.job("memory", round_, "alone", 1, "everyone", "baseline", "alone")
        for ranks in (1, *MEMORY_RANKS):
            self.job("memory", round_, "tcp", ranks, "everyone", "baseline", "tcp")
            for column in ("velo", "vader", "device"):
                if ranks > 1 and column in self.columns:
                    self.job("memory", round_, column, ranks, "everyone", "memory", column)

    def group_flow(self, round_):
        for ranks in FLOW_RANKS if "device" in self.columns else ():
            for mode in ("static", "none"):
                self.job("flow", round_, mode, ranks, "everyone", "alltoall", mode, 2048)

    def prepare(self):
        """Returns the number of the first round."""
        options = self.options
        if options.wait and not os.access(VELO_BENCH, os.X_OK):
            raise Failed(f"--wait needs {VELO_BENCH}, which is not there; make -C {BUILD} bench builds it")
        builds = [check_plugin(directory) for directory in (options.plugin, options.before) if directory]
        if cpus() < 2:
            print("bench/run compare: only one CPU: the figures mean little", file=sys.stderr)
        if "ucx" in self.columns and not self.mpi.has_ucx():
            self.drop("ucx", "not installed")
        if "mpich" in self.columns and not (shutil.which("mpicxx.mpich") and shutil.which("mpirun.mpich")):
            self.drop("mpich", "not installed")
        digest = hashlib.sha256()
        for directory in builds:
            with open(os.path.join(directory, PLUGIN_FILE), "rb") as plugin:
                digest.update(plugin.read())
        sum_file = os.path.join(options.out, "plugin.sum")
        adds = options.add and os.path.exists(self.csv.path)
        if adds and (not os.path.exists(sum_file) or read(sum_file).strip() != digest.hexdigest()[:16]):
            raise Failed(f"--add: the rounds in {options.out} are of another plugin; measure without --add")
        shutil.rmtree(os.path.join(options.out, "logs"), ignore_errors=True)
        os.makedirs(os.path.join(options.out, "logs"))
        if not adds:
            for directory, name in zip(builds, ("plugin", "plugin-before")):
                copy_plugin(directory, os.path.join(options.out, name))
            with open(sum_file, "w", encoding="ascii") as file_:
                file_.write(digest.hexdigest()[:16] + "\n")
            with open(os.path.join(options.out, "source"), "w", encoding="ascii") as file_:
                file_.write(revision() + "\n")
        if options.before:
            self.columns += [column + "_before" for column in ("velo", "mtl", "device", "mtl_device")
                             if column in self.columns]
        return self.csv.begin(adds)

    def measure(self):
        first = self.prepare()
        for round_ in range(first, first + self.options.rounds):
            self.round(round_, f"{round_ - first + 1} of {self.options.rounds}", self.options.only)
        if self.options.wait:
            self.wait(first + self.options.rounds)

    def round(self, round_, name, groups):
        print(f"round {name}:", end="", file=sys.stderr, flush=True)
        for group in groups:
            started = time.monotonic()
            getattr(self, "group_" + group)(round_)
            print(f" {group} {time.monotonic() - started:.0f} s", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)

    def wait(self, round_):
        """Further rounds, at distances of the CPUs that have too few. Memory does not depend on them."""
        groups = [group for group in self.options.only if group != "memory"]
        end = time.monotonic() + self.options.wait
        while groups:
            measured = [row for row in self.csv.rows() if row["column"] not in self.missing]
            places = compare_tables.lacking(measured, groups, self.options.rounds)
            left = int(end - time.monotonic())
            if not places or left <= 0:
                return
            print(f"waiting for {' and '.join(places)} CPUs, {left} s at most", file=sys.stderr)
            # Any distance will do where both are short.
            until = ("--until", places[0]) if len(places) == 1 else ()
            if until and subprocess.run([VELO_BENCH, "distance", *until, "--seconds", str(left)], check=False,
                                        stdout=subprocess.DEVNULL).returncode != 0:
                return
            self.round(round_, f"{round_}, {' and '.join(places)} wanted", groups)
            round_ += 1

    def head(self):
        """The machine, and each column's command as a reader would type it in the repository."""
        version = found(r"^AC_INIT\(\[velo\], \[(.*)\]\)$", read(os.path.join(ROOT, "configure.ac")))
        # Of the rounds that are there: a report may be made much later.
        source = os.path.join(self.options.out, "source")
        measured = read(source).strip() if os.path.exists(source) else "unknown"
        values = [*machine(self.mpi), found(r"[Vv]ersion:* *([0-9][0-9.]*)", output_of("ucx_info", "-v")),
                  found(r"^ *Version: *(.*)", output_of("mpirun.mpich", "--version"))]
        facts = "".join(f"| {name} | {value} |\n"
                        for name, value in zip(("CPU", "kernel", "Open MPI", "UCX", "MPICH"), values))
        titles = {**compare_tables.TITLES, "velo": "velo, on node", "mtl": "velo's MTL, on node"}
        lines = {column: [word for word in self.command(column, 2, "$PWD/build/.libs") if word != "--allow-run-as-root"]
                 for column in ("velo", "device", "mtl", "vader", "vader_copied", "ucx")}
        one_rank = lines.pop("device")[len(lines["velo"]):]
        common = tables.common_words(list(lines.values()))
        commands = f"`{' '.join(common).replace(self.mpi.mpirun, 'mpirun')}`, and behind it:\n\n"
        commands += tables.table(["column", "options"], "ll", [
            *([titles[column], f"`{' '.join(line[len(common):])}`"] for column, line in lines.items()),
            ["one rank a node", f"`{' '.join(one_rank)}` behind velo's"],
            ["MPICH", f"`{' '.join(self.command('mpich', 2, ''))}` alone"]])
        return f"""<!-- Written by bench/run compare from one run. Only the last section is written by hand. -->

# Results

velo {version} (source {measured}) beside the other shared-memory transports of one machine. Each round runs one job of
each, one after the other; figures are medians over rounds. [benchmarks.md](benchmarks.md) says what is measured, how,
and what near and far are. In a row the best other is bold, and *met* has the bound that is met or missed; columns
without a range or a bound are left out. Between hosts: [results/hosts.md](results/hosts.md); rails and slow receivers: [results/rails-real.md](results/rails-real.md).

| | |
|---|---|
{facts}
{commands}"""


def main(given):
    options = arguments(given)
    options.out = os.path.realpath(options.out)
    comparison = Comparison(options)
    if not options.report:
        comparison.measure()
    elif not os.path.exists(comparison.csv.path):
        raise Failed(f"--report: there is no {comparison.csv.path}")
    text, summaries = compare_tables.report(comparison.csv.rows(), comparison.missing)
    page = comparison.head() + text
    path = os.path.join(options.out, "compare.md")
    with open(path, "w", encoding="utf-8") as file_:
        file_.write(page)
    print(text + "\n" + "\n".join(summaries))
    print(f"wrote {comparison.csv.path} and {path}", file=sys.stderr)
    if options.write_docs:
        tables.write_page(os.path.join(ROOT, "docs", "results.md"), [page, *map(read, options.append)])
        print("wrote docs/results.md", file=sys.stderr)
