"""Measures velo between hosts beside the other transports that Open MPI has there, in one run.

The hosts are namespaces of this machine (tests/hosts/hosts makes and removes them; root only), joined by veth pairs
and a bridge; with --loopback there is one host, and its lo. A round runs each column once, one job after the other;
figures are medians over rounds, near and far cores apart (bench/velobench/distance.py). Ranks 0 and 1 are pinned to two
cores. `libfabric` is fi_send and fi_recv of the same provider, without any MPI; `socket` is a bare TCP connection."""

import argparse
import os
import subprocess
import sys
import time

from . import hosts_tables, npb, rows, tables
from .openmpi import (BUILD, PLUGIN, ROOT, Failed, OpenMpi, check_plugin, cpus, found, machine, output_of, read,
                      run_job, timed_out)
from .options import number, numbers, parser, words
from .hosts_tables import GROUPS, MTL_OF, TITLES

LATENCY_SIZES = [0, 8, *(2 ** power for power in (6, 8, *range(10, 21), 22, 24))]
BANDWIDTH_SIZES = [2 ** power for power in (12, 14, 16, 18, 20, 22)]
OFFSETS = [0, 16, 64]
IDLE_SIZES = [0, 8, 256, 2048, 16384, 65536, 1048576]
PROVIDERS = {"net": "net", "rxm": "tcp;ofi_rxm"}
BARE = [column for column in TITLES if column.startswith(("fabric", "socket"))]
HOSTS = os.path.join(ROOT, "tests", "hosts", "hosts")
NPB = ("is", "ft", "cg", "mg", "lu", "ep")
JOB_SECONDS_MAX = 240


def arguments(given):
    options = parser("hosts", __doc__)
    add = options.add_argument
    add("--only", type=words(*GROUPS), default=[group for group in GROUPS if group != "npb"], metavar="LIST",
        help=f"groups: {','.join(GROUPS)} (default: all but npb)")
    add("--columns", type=words(*TITLES), default=list(TITLES), metavar="LIST",
        help=f"of {','.join(TITLES)} (default: all)")
    add("--sizes", type=numbers(0, "bytes"), metavar="LIST", help="bytes, for latency and bandwidth")
    add("--offsets", type=numbers(0, "bytes"), default=OFFSETS, metavar="LIST",
        help="of the memory from a page's begin, for latency and bandwidth (default: 0,16,64)")
    add("--rates", type=words("any", "10gbit", "25gbit"), default=["any"], metavar="LIST",
        help="of the hosts' links, for latency and bandwidth: of any, 10gbit, 25gbit (default: any)")
    add("--rounds", type=number(1, 999), default=5, metavar="N", help="default: 5")
    add("--loopback", action="store_true", help="one host, over lo")
    add("--plugin", default=PLUGIN, metavar="DIR", help="where mca_btl_velo.so is (default: build/.libs)")
    add("--before", metavar="DIR", help="another such folder, measured in columns of its own")
    add("--npb", default="", metavar="DIR",
        help="NAS Parallel Benchmarks, NAME.A.x or NAME.A.RANKS, for the group npb")
    add("--mca", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), help="for velo's jobs")
    add("--out", default=os.path.join(BUILD, "hosts"), metavar="DIR",
        help="for CSV, tables and logs (default: build/hosts)")
    add("--add", action="store_true", help="adds rounds to those in --out")
    add("--report", action="store_true", help="measures nothing; makes the tables from what is in --out")
    add("--write-docs", action="store_true",
        help="also writes the tables of two hosts to docs/results/hosts.md, whose last section stays")
    add("--inside", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args(given)
    if "npb" in chosen.only and not os.path.isdir(chosen.npb):
        options.error(f"--npb: '{chosen.npb}' is no folder of benchmarks")
    if chosen.before:
        chosen.columns += [column + "_before" for column in chosen.columns if column.startswith("velo")]
    return chosen


def provider_of(column):
    return PROVIDERS[column.rsplit("_", 1)[1]]


class Jobs:
    """Runs jobs and keeps their rows, each a line where,group,round,column,measure,size,value."""

    def __init__(self, options):
        self.options = options
        self.mpi = OpenMpi()
        self.where = self.place = "loopback" if options.loopback else "veth"
        self.interface = "lo" if options.loopback else "eth0"
        self.csv = rows.Kept(os.path.join(options.out, "hosts.csv"), "where", "group", "round", "column", "measure",
                             "size", "value")
        self.round = 0

    def command(self, column, layout, mca=None):
        """mpirun and its arguments. `layout`: ranks on h1, h2, ...; on one host where it is loopback. [0, N]: on
        mpirun's own host."""
        options, environment, parameters = self.options, {}, {}
        btl, plugin, pml = None, None, "ob1"
        before = column.endswith("_before")
        column = column.removesuffix("_before")
        if column.startswith("velo"):
            btl, plugin = "velo", os.path.abspath(options.before if before else options.plugin)
            pml = "cm" if column.startswith("velo_mtl") else "ob1"
            if column in MTL_OF:
                parameters["btl_velo_if_include"] = self.interface
                environment["OMPI_MCA_btl_velo_provider_include"] = provider_of(column)
                if options.loopback:
                    parameters |= {"btl_velo_ranks_per_node": 1, "btl_velo_device": "ofi"}
            parameters |= dict(options.mca)
        elif column.startswith("mtl"):
            pml, parameters["mtl"] = "cm", "ofi"
            environment["OMPI_MCA_mtl_ofi_provider_include"] = provider_of(column)
            # net is not found with lo. Without a name it takes another interface's address, which goes over lo too.
            if not options.loopback:
                environment["FI_TCP_IFACE"] = environment["FI_NET_IFACE"] = self.interface
        elif column == "ucx":
            pml, parameters = "ucx", {"pml_ucx_tls": "any", "pml_ucx_devices": "any"}
            environment |= {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": self.interface}
        else:
            btl, parameters["btl_tcp_if_include"] = "tcp", self.interface
        ranks = sum(layout)
        command = self.mpi.command(ranks, btl, plugin, yields=ranks > 2, pml=pml, mca=parameters | (mca or {}))
        if not options.loopback and layout[0] != 0:
            agent = os.environ.get("HOSTS_AGENT", "AGENT")
            # Before what columns differ in.
            command[1:1] = [*(["--mca", "plm", "rsh", "--mca", "plm_rsh_agent", agent] if self.mpi.is_4()
                              else ["--prtemca", "plm_ssh_agent", agent]),
                            "--host", ",".join(f"h{i + 1}:{n}" for i, n in enumerate(layout) if n)]
        # A provider's name may have a semicolon, which does not survive the launch agent's shell.
        return command + ["env", *(f"{name}={value}" for name, value in environment.items())]

    def run(self, group, column, layout, program, mca=None):
        """The job's output."""
        name = "-".join([self.where, group, str(self.round), column, "_".join(map(str, layout))])
        log = os.path.join(self.options.out, "logs", name)
        status = run_job(self.command(column, layout, mca) + program, log, JOB_SECONDS_MAX, log + ".out")
        if timed_out(status):
            raise Failed(f"the job did not end within {JOB_SECONDS_MAX} s: {log}")
        if status != 0:
            raise Failed(f"the job ended with {status}: {log}")
        return read(log + ".out")

    def write(self, group, column, measured):
        """`measured`: measure, size, value."""
        self.csv.add([self.where, group, self.round, column, *row] for row in measured)

    def measure(self, group, column, layout, probe, *words_, mca=None, label=None):
        """A job of a probe."""
        measured = rows.parse(self.run(group, column, layout, [self.mpi.compile(probe), *words_], mca))
        if not measured:
            raise Failed(f"the job of {group} over {column} printed nothing")
        self.write(group, label or column, [row[2:] for row in measured])

    def pairs(self, group, measures, sizes, offsets):
        what = ["--sizes", ",".join(map(str, sizes)), "--offsets", ",".join(map(str, offsets)), "--measures"]
        for column in self.options.columns:
            if column not in BARE:
                self.measure(group, column, [1, 1], "pairs", "--label", column, "--pairs", "0-1", *what, measures)
                continue
            # In both directions at once they are not measured.
            what_bare = [*what, measures.removesuffix(",both")]
            if column == "socket":
                self.measure(group, column, [1, 1], "wires", "socket", column, self.interface, *what_bare)
            else:
                self.measure(group, column, [1, 1], "wires", "fabric", column, self.interface, "--provider",
                             provider_of(column), *what_bare)

    def at_rates(self, group, measures, sizes):
        """The pairs, over links of each rate."""
        for rate in self.options.rates if not self.options.loopback else ["any"]:
            self.set_rate(rate)
            self.pairs(group, measures, sizes, self.options.offsets)
        self.set_rate("any")

    def set_rate(self, rate):
        self.where = self.place + ("" if rate == "any" else " " + rate)
        for host in ("h1", "h2") if self.options.rates != ["any"] and not self.options.loopback else ():
            command = [HOSTS, "rate", host, "off" if rate == "any" else rate]
            if subprocess.run(command, check=False).returncode != 0:
                raise Failed(f"the links cannot be held to {rate}")

    def velo_columns(self):
        return [column for column in self.options.columns if column.startswith("velo")]

    def one_round(self):
        for group in self.options.only:
            started = time.monotonic()
            getattr(self, "group_" + group)()
            print(f" {group} {time.monotonic() - started:.0f} s", end="", file=sys.stderr, flush=True)

    def group_latency(self):
        self.at_rates("latency", "latency", self.options.sizes or LATENCY_SIZES)

    def group_bandwidth(self):
        self.at_rates("bandwidth", "bandwidth,both", self.options.sizes or BANDWIDTH_SIZES)

    def group_rate(self):
        self.pairs("rate", "rate", [8], [0])

    def group_fetch(self):
        """Not on one host: a window of its ranks is shared memory, whatever the BTL."""
        for column in self.velo_columns() if not self.options.loopback else ():
            self.measure("fetch", column, [1, 1], "afar", "fetch", column)

    def group_idle(self):
        """On one host, with the network's device open and silent, and without it."""
        opened = {"btl_velo_device": "ofi", "btl_velo_if_include": self.interface, "btl_velo_ranks_per_node": 0}
        for label, mca in (("closed", {"btl_velo_device": "sim"}), ("open", opened)):
            self.measure("idle", "velo", [2], "pairs", "--label", label, "--pairs", "0-1", "--measures", "latency",
                         "--sizes", ",".join(map(str, IDLE_SIZES)), mca=mca, label=label)

    def group_init(self):
        """MPI_Init and MPI_Finalize of two ranks of mpirun's own host, alone."""
        for device in ("sim", "auto", "ofi"):
            self.measure("init", "velo", [0, 2], "afar", "init", device, label=device,
                         mca={"btl_velo_device": device, "btl_velo_if_include": "lo"})

    def group_incast(self):
        for column in self.velo_columns():
            self.measure("incast", column, [31] if self.options.loopback else [1, 10, 10, 10], "afar", "incast", column,
                         "3", mca={"btl_velo_stats": 1})

    def group_peers(self):
        for column in self.velo_columns():
            self.measure("peers", column, [16] if self.options.loopback else [1, 15], "afar", "peers", column)

    def group_npb(self):
        for name, ranks in ((name, ranks) for name in NPB for ranks in (2, 4)):
            # Programs of NPB 3.4 are for any number of ranks, those of 3.3 for one.
            choices = [os.path.join(self.options.npb, f"{name}.A.{end}") for end in ("x", ranks)]
            program = next((path for path in choices if os.path.exists(path)), None)
            layout = [ranks] if self.options.loopback else [ranks // 2, ranks // 2]
            for column in self.options.columns if program else ():
                if column in BARE:
                    continue
                output = self.run("npb", column, layout, [program])
                if not npb.verified(output):
                    raise Failed(f"{name}.A over {column} with {ranks} ranks is not verified")
                self.write("npb", column, [[f"{name}.A", ranks, npb.figure(output, "Mop/s total")]])


def measure(options):
    jobs = Jobs(options)
    first = jobs.csv.begin(add=True)
    for jobs.round in range(first, first + options.rounds):
        print(f"round {jobs.round - first + 1} of {options.rounds}:", end="", file=sys.stderr)
        jobs.one_round()
        print(file=sys.stderr)


HEAD = """<!-- Written by bench/run hosts. Only the last section is written by hand. -->

# Between hosts

velo between two hosts beside what else Open MPI has there: medians over rounds of one job of each in turn, near and far
cores apart ([how](../benchmarks.md#near-and-far)). The hosts are namespaces of one machine with {cpus} cores, so a rank
has a core, the kernel's part included. `libfabric` is fi_send and fi_recv of the same provider without any MPI, `socket`
a bare TCP connection. `mtl` is mtl/ofi over the same provider, `best` the best of the other MPIs. Ratios of latencies
below 1, and of all others above 1, are in velo's favour. Memory begins at three offsets of a page; *worst* is the worst
ratio of the three.

| | |
|---|---|
| CPU | {cpu} |
| kernel | {kernel} |
| Open MPI, libfabric | {mpi}, {fabric} |

"""


def head(options):
    """The machine, and the commands as a reader would type them in the repository."""
    chosen = argparse.Namespace(**{**vars(options), "plugin": PLUGIN, "loopback": False, "mca": []})
    jobs = Jobs(chosen)
    cpu, kernel, mpi = machine(jobs.mpi)
    text = HEAD.format(cpus=cpus(), cpu=cpu, kernel=kernel, mpi=mpi,
                       fabric=found(r"libfabric: (.*)", output_of("fi_info", "--version")) or "unknown")
    lines = {title: [word.replace(ROOT, "$PWD") for word in jobs.command(column, [1, 1])
                     if word != "--allow-run-as-root"] for column, title in TITLES.items() if column not in BARE}
    common = tables.common_words(list(lines.values()))
    text += f"`{' '.join(common).replace(jobs.mpi.mpirun, 'mpirun')}`, and behind it:\n\n"
    return text + tables.table(["column", "options"], "ll", [
        [title, f"`{' '.join(line[len(common):]).removesuffix(' env')}`"] for title, line in lines.items()])


def report(options):
    csv = Jobs(options).csv
    if not os.path.exists(csv.path):
        raise Failed(f"there is no {csv.path}; measure first")
    text = hosts_tables.report(csv.rows())
    print(text, end="")
    if options.write_docs:
        text = hosts_tables.report(csv.rows(), "veth")
        tables.write_page(os.path.join(ROOT, "docs", "results", "hosts.md"), [head(options) + text])


def main(given):
    options = arguments(given)
    if options.report:
        report(options)
        return 0
    os.makedirs(os.path.join(options.out, "logs"), exist_ok=True)
    if options.inside:
        measure(options)
        return 0
    check_plugin(options.plugin)
    jobs = Jobs(options)
    for probe in ("pairs", "afar", "wires"):
        jobs.mpi.compile(probe)
    jobs.csv.begin(options.add)
    if options.loopback:
        measure(options)
    else:
        command = [HOSTS, "4", sys.executable,
                   os.path.join(ROOT, "bench", "run"), "hosts", *given, "--inside"]
        status = subprocess.run(command, check=False).returncode
        if status != 0:
            return status
    report(options)
    return 0
