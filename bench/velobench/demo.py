"""Runs jobs over all of velo's paths, matched by ob1 and by velo's MTL, beside jobs over Open MPI's own
shared-memory transport and, where Open MPI has it, UCX's, and compares them: four ranks on two emulated nodes of this
machine, of which two are active at a time. ./demo builds velo before."""

import glob
import os
import re
import shlex
import sys
import time

from . import rows
from .openmpi import (BUILD, PLUGIN, Failed, OpenMpi, check_plugin, counters, cpus, read, run_job, tail, timed_out)
from .options import number, parser
from .stats import Samples, ratio

SIZES = (8, 64, 512, 2048, 8192, 65536, 1048576, 4194304)
PATHS = {"0-1": "on node", "0-2": "between nodes"}
BTL, MTL, UCX = "velo", "velo-mtl", "ucx"
JOB_SECONDS_MAX = 300
# Each means a defect of velo, whatever it counts.
ZERO_COUNTERS = ("on_node_garbage", "velo_rx_malformed", "velo_backpressure", "velo_overflows", "rma_failed",
                 "atu_faults", "engine_malformed")


def title(text):
    print(f"\n== {text}", file=sys.stderr, flush=True)


def check_paths(of, log):
    """Fails unless all three paths carried traffic in a velo job, and nothing happened that must not. `of`: counters by
    rank; one that never moved is not among them."""
    for rank in range(4):
        if rank not in of:
            raise Failed(f"rank {rank} printed no counters, so velo was not used: {log}")
        for name in ZERO_COUNTERS:
            if of[rank].get(name, 0) != 0:
                raise Failed(f"counter {name} of rank {rank} is not 0, which is a defect of velo: {log}")
    if of[1].get("on_node_rx_messages", 0) <= 1000:
        raise Failed(f"rank 1 got no messages through an on-node ring from rank 0: {log}")
    if of[2].get("velo_rx_packets", 0) <= 1000:
        raise Failed(f"rank 2 got no VELO packets from rank 0: {log}")
    # Of the four ranks, 2 fetches large messages through the device only, and 1 on its node only.
    for rank in (1, 2):
        if of[rank].get("rma_get_bytes", 0) + of[rank].get("rma_ring_bytes", 0) <= 1000000:
            copied = of[rank].get("rma_copied_bytes", 0)
            raise Failed(f"rank {rank} fetched no large message directly ({copied} bytes were copied in messages "
                         "instead). velo reads the other process's memory by process_vm_readv; a container must permit "
                         f"that (docker run --cap-add=SYS_PTRACE): {log}")


def counter_lines(of):
    def counter(rank, name):
        return of[rank].get(name, 0)
    return [f"on-node ring   {counter(1, 'on_node_rx_messages')} messages from rank 0 to rank 1; "
            f"{counter(1, 'rma_ring_bytes')} bytes fetched by rank 1 through the ring, {counter(1, 'rma_get_bytes')} "
            "by CMA",
            f"VELO packets   {counter(2, 'velo_rx_packets')} from rank 0 to rank 2; credits returned: "
            f"{counter(2, 'credits_tx_piggybacked')} piggybacked, {counter(2, 'credits_tx_explicit')} in "
            f"{counter(2, 'credits_tx_packets')} credit packets",
            f"RMA            {counter(2, 'rma_get_bytes')} bytes fetched by rank 2 in {counter(2, 'rma_chunks')} "
            "chunks"]


def comparison(measured, other):
    """The table of medians. Lines are in ns, latencies in us."""
    samples = Samples()
    for row in measured:
        samples.add((row.label, row.where, row.measure, row.size), row.value)

    def values(where, measure, size):
        """Of the three, and velo's ratios to the other."""
        three = [samples.median((label, where, measure, size)) for label in (BTL, MTL, other)]
        return [*three, ratio(three[0], three[2]) or 0, ratio(three[1], three[2]) or 0]

    heads = f"{'velo':>7} {'MTL':>7} {other:>7} {'velo/':>6} {'MTL/':>6}"
    lines, any_moved = [], False
    lines.append(f"{'':27}latency, one way, us                  bandwidth, MB/s")
    lines.append(f"{'path':13} {'bytes':>8}  {heads}  {heads}")
    for where, path in PATHS.items():
        lines += [""] * (where != "0-1")
        near = values(where, "line", 0)
        if None not in near:
            # Virtual CPUs move about; apart from each other, the jobs were not in the same place.
            moved = not all(0.77 <= each <= 1.3 for each in near[3:])
            any_moved |= moved
            lines.append(f"{path:13} {'one line':>8}  " + " ".join(f"{ns / 1000:7.3f}" for ns in near[:3])
                         + f" {near[3]:6.2f} {near[4]:6.2f}" + " *" * moved)
        for size in sorted({row.size for row in measured if row.measure == "latency"}):
            latency, bandwidth = values(where, "latency", size), values(where, "bandwidth", size)
            lines.append(f"{path:13} {size:8}  " + " ".join(f"{us:7.2f}" for us in latency[:3])
                         + f" {latency[3]:6.2f} {latency[4]:6.2f}  "
                         + " ".join(f"{rate:7.0f}" for rate in bandwidth[:3])
                         + f" {bandwidth[3]:6.2f} {bandwidth[4]:6.2f}")
    if any_moved:
        lines.append("\n* The CPUs were not equally near in the jobs of the three: their latencies do not compare. Run "
                     "it again.")
    lines.append(f"""
velo: its BTL under ob1; MTL: matched by velo (pml cm). velo/ and MTL/: ratios to {other} (latency: below 1 they are
faster; bandwidth: above 1). "one line" is the time that a cache line takes between the two CPUs during those jobs:
compare rows only where it is the same for all.
{other} knows no emulated nodes and takes its one shared-memory path everywhere.""")
    return "\n".join(lines)


class Demo:
    def __init__(self, options):
        self.out = os.path.join(BUILD, "demo")
        self.rounds = options.rounds
        self.plugin = os.path.realpath(check_plugin(options.plugin))
        self.mpi = OpenMpi()
        self.program = self.mpi.compile("pairs")
        os.makedirs(self.out, exist_ok=True)
        for old in glob.glob(os.path.join(glob.escape(self.out), "*.csv")) + glob.glob(
                os.path.join(glob.escape(self.out), "*.log")):
            os.unlink(old)

    def command(self, transport, sizes=SIZES):
        """Two ranks run at a time and do not yield, so both transports poll as they do with a core each."""
        velo = {"btl_velo_ranks_per_node": 2, "btl_velo_show_paths": 1, "btl_velo_stats": 1}
        if transport in (BTL, MTL):
            command = self.mpi.command(4, "velo", self.plugin, mca=velo, pml="cm" if transport == MTL else "ob1")
        elif transport == UCX:
            command = self.mpi.ucx_command(4)
        else:
            command = self.mpi.command(4, transport)
        return [*command, self.program, "--label", transport, "--pairs", ",".join(PATHS), "--measures",
                "latency,bandwidth", "--sizes", ",".join(map(str, sizes))]

    def log(self, transport, round_):
        return os.path.join(self.out, f"{transport}-{round_}.log")

    def job(self, transport, round_):
        log = self.log(transport, round_)
        csv = log.replace(".log", ".csv")
        status = run_job(self.command(transport), log, JOB_SECONDS_MAX, csv)
        if status != 0:
            print(tail(log, 30), file=sys.stderr)
            what = f"did not end within {JOB_SECONDS_MAX} s" if timed_out(status) else f"ended with {status}"
            raise Failed(f"the {transport} job {what}; its output is in {log}")
        measured = rows.parse(read(csv))
        # Both measures of each size of each pair, or something was lost on the way.
        expected, figures = 2 * len(PATHS) * len(SIZES), sum(row.measure != "line" for row in measured)
        if figures != expected:
            raise Failed(f"the {transport} job printed {figures} figures, not {expected}: {csv}")
        return measured

    def others(self):
        """Those that velo is compared with. UCX is none where it cannot run."""
        if self.mpi.has_ucx() and run_job(self.command(UCX, [8]), self.log(UCX, 0), JOB_SECONDS_MAX) == 0:
            return [self.mpi.sm, UCX]
        print("UCX is left out: Open MPI has no pml/ucx here, or it does not run", file=sys.stderr)
        return [self.mpi.sm]

    def run(self, others):
        measured, transports = [], (BTL, MTL, *others)
        for round_ in range(1, self.rounds + 1):
            print(f"round {round_} of {self.rounds}:", end="", file=sys.stderr, flush=True)
            for transport in transports:
                started = time.monotonic()
                measured += self.job(transport, round_)
                print(f" {transport} {time.monotonic() - started:.0f} s", end="", file=sys.stderr, flush=True)
            for transport in (BTL, MTL):
                log = self.log(transport, round_)
                check_paths(counters(read(log)), log)
            print(", contents and paths checked", file=sys.stderr)
        return measured


def main(given):
    options = parser("demo", __doc__)
    options.add_argument("--rounds", type=number(1, 99), default=5, metavar="N",
                         help="jobs of each transport (default: 5)")
    options.add_argument("--plugin", default=PLUGIN, metavar="DIR",
                         help="where mca_btl_velo.so is (default: build/.libs)")
    demo = Demo(options.parse_args(given))
    title("Jobs: 4 ranks, node 0 = ranks 0 and 1, node 1 = ranks 2 and 3")
    print(shlex.join(demo.command(BTL)), file=sys.stderr)
    if cpus() < 2:
        print("Only one CPU here: the figures below mean little.", file=sys.stderr)
    others = demo.others()
    measured = demo.run(others)
    log = demo.log(BTL, 1)
    text = read(log)
    title("Paths that velo took (rank 0's view, then rank 2's)")
    paths = sorted(re.findall(r"velo: (rank [02] \(node [01]\) -> .*)", text))
    if not paths:
        raise Failed(f"velo named no path: {log}")
    print("\n".join(paths), file=sys.stderr)
    title("Counters of the first velo job")
    print("\n".join(counter_lines(counters(text))), file=sys.stderr)
    for other in others:
        title(f"velo beside {other}: medians of {demo.rounds} jobs each")
        print(comparison(measured, other), flush=True)
    title("All jobs ran, all contents are right, all three paths carried traffic")
