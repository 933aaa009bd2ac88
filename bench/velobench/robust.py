"""Measures flow control on patterns that change and on patterns that repeat, in simulation, and writes docs/robust.md:
overhead over mode none, where the default misses its bound, control packets of a first contact, and how many alltoalls
adapting takes. Runs that were made already are taken from build/robust."""

import datetime
import os
import statistics
import time

from . import tables
from .openmpi import BUILD, ROOT, Failed
from .options import number, numbers, parser
from .simulator import FC_SOURCES, Overhead, Simulator, find_simulator, source_commit

SLOTS = (8, 32, 64)
# The default mode comes last; the better of the first two is what it is held against.
FLOWS = {"static": {"mode": "static"}, "paper": {"mode": "dynamic", "stealing": "paper"},
         "turns": {"mode": "dynamic", "stealing": "turns"}}
DEFAULT = "turns"
# CPU: the calibrated times of docs/simulation.md. NIC: the sixteen CPUs of a node, of 100 ns a packet, offer its NIC,
# of 80 ns a packet, twelve times what it takes.
BOUNDS = {"CPU": {}, "NIC": {"cpu_send_ns": 100, "cpu_receive_ns": 100, "cpu_credit_ns": 5, "cpu_turn_ns": 0,
                             "cpu_posted_ns": 0}}
SIZES = {"quick": {"processes": 64, "topology": "mesh:2x2"}, "full": {"processes": 256, "topology": "mesh:4x4"}}
# Fixed before the runs. A jitter of 5 % makes seeds differ where nothing else does.
COMMON = {"no_shared_memory": True, "cpu_jitter_permille": 50}


def patterns(processes):
    """Options by the name of a pattern. A pause of `bursts` is seven times as long as a burst, so that an eighth of
    the processes is active; an idle_ns is for each bound."""
    return {
        "new_partner, 1 message": {"workload": "new_partner", "messages": 1, "iterations": 200},
        "new_partner, 5 messages": {"workload": "new_partner", "messages": 5, "iterations": 60},
        "new_partner, 10 messages": {"workload": "new_partner", "messages": 10, "iterations": 40},
        "hot_then_all": {"workload": "hot_then_all", "warmup": 20, "iterations": 20},
        "bursts": {"workload": "bursts", "messages": 10, "iterations": 30,
                   "idle_ns": {"CPU": 4_000_000, "NIC": 400_000}},
        "incast": {"workload": "incast", "iterations": 2 * processes},
        "phases": {"workload": "phases", "iterations": 3},
        "random": {"workload": "random", "messages": 400},
        "alltoall": {"workload": "alltoall", "warmup": 4, "iterations": 6},
        "alltoall, half active": {"workload": "alltoall", "active": processes // 2, "warmup": 10, "iterations": 20},
        "neighbours": {"workload": "neighbours", "warmup": 10, "iterations": 30},
        "scatterv": {"workload": "scatterv", "repetitions": 5, "iterations": 5 * processes}}


# One packet a message, and fewer than two messages a pair: all that is sent is sent to peers that are new.
FIRST_CONTACT = {"workload": "new_partner", "messages": 1, "bytes": 32}


def allowed(static, paper):
    """The most that the default may cost, in per cent."""
    return 1.1 * min(static, paper) + 2


class Cell:
    """The overheads of one pattern, bound and number of slots, for each flow control; medians over the seeds."""

    def __init__(self, simulator, seeds, slots, run):
        self._overheads = {flow: Overhead(simulator, seeds, slots=slots, **run, **options)
                           for flow, options in FLOWS.items()}

    def medians(self):
        return {flow: overhead.median() for flow, overhead in self._overheads.items()}

    def misses(self):
        values = self.medians()
        return values[DEFAULT] > allowed(values["static"], values["paper"])

    def median_of(self, flow, column):
        values = [run.result()[column] for run in self._overheads[flow].times]
        return statistics.median(float(value) for value in values)

    def texts(self):
        values = self.medians()
        texts = [f"{value:.1f}" for value in values.values()]
        if self.misses():
            texts[-1] = f"**{texts[-1]}** > {allowed(values['static'], values['paper']):.1f}"
        return texts


def arguments(given):
    options = parser("robust", __doc__)
    names = list(patterns(64))
    add = options.add_argument
    add("--quick", action="store_true", help="64 processes instead of 256: minutes, not hours")
    add("--only", metavar="NAME", action="append",
        help=f"a pattern, or the beginning of its name, may be repeated: {'; '.join(names)}")
    add("--slots", type=numbers(1, "slots"), metavar="LIST", default=list(SLOTS), help="default: 8,32,64")
    add("--seeds", type=number(1, 1000), default=3, metavar="N", help="default: 3")
    add("--minutes", type=float, default=600, metavar="N",
        help="stop after so long, with a message; the next call goes on there (default: 600)")
    add("--jobs", type=number(1, 1000), default=2, metavar="N", help="runs at a time (default: 2)")
    add("--build", default=BUILD, metavar="DIR", help="where velo_sim is")
    add("--out", default=os.path.join(ROOT, "docs/robust.md"), metavar="FILE", help="default: docs/robust.md")
    chosen = options.parse_args(given)
    chosen.patterns = [name for name in names if not chosen.only or any(map(name.startswith, chosen.only))]
    if not chosen.patterns:
        options.error(f"--only {', '.join(chosen.only)} names no pattern; give one of {'; '.join(names)}")
    chosen.program = find_simulator(chosen.build)
    return chosen


def wait_for_all(simulator, minutes):
    """Runs that are made when the time is over are kept."""
    end = time.monotonic() + 60 * minutes
    if not simulator.wait(max(0, end - time.monotonic())):
        raise Failed(f"{simulator.done()} of {simulator.runs()} runs were made in {minutes:g} minutes; the same "
                     "command goes on there")


def table(columns, rows):
    return tables.table(columns, "l" + "r" * (len(columns) - 1), rows)


def overhead_table(options, cells):
    rows = [[name, slots, *(text for bound in BOUNDS for text in cells[name, bound, slots].texts())]
            for name in options.patterns for slots in options.slots]
    columns = [f"{bound} {flow}" for bound in BOUNDS for flow in FLOWS]
    return "## Overhead over none, in per cent\n\n" + table(["pattern", "slots", *columns], rows)


def contact_table(options, contacts):
    """All explicit packets of flow control, for each pair that has met, and the overhead."""
    rows = []
    for bound in BOUNDS:
        for slots in options.slots:
            cell = contacts[bound, slots]
            packets = {flow: (cell.median_of(flow, "control_packets") + cell.median_of(flow, "credit_packets"))
                       / cell.median_of(flow, "pairs") for flow in FLOWS}
            rows.append([bound, slots, *(f"{value:.2f}" for value in packets.values()), *cell.texts()])
    columns = ["bound", "slots", *(f"{flow}, packets" for flow in FLOWS), *(f"{flow}, %" for flow in FLOWS)]
    return ("## First contact\n\nMessages of one packet, 1.6 for each pair of the job: explicit packets of flow "
            "control for each pair that has met,\nand the overhead.\n\n" + table(columns, rows))


def adaptation_table(options, cells):
    rows = [[bound, slots, *(f"{cells['hot_then_all', bound, slots].median_of(flow, 'adapted_after'):g}"
                             for flow in FLOWS)] for bound in BOUNDS for slots in options.slots]
    return ("## Alltoalls until times have settled\n\n`hot_then_all`: an eighth of the processes exchanges, then all. "
            "The number of alltoalls of all before\ntwo in a row take at most a twentieth more than the median of the "
            "last half.\n\n" + table(["bound", "slots", *FLOWS], rows))


def page(options, size, cells, contacts):
    missed = [cell for cell in cells.values() if cell.misses()]
    chosen = "".join(f' --only "{name}"' for name in options.only or [])
    parts = [
        "# Flow control where partners change, and where they do not\n",
        f"Made by `bench/run robust{' --quick' * options.quick}{chosen}` on {datetime.date.today()} at "
        f"{source_commit(FC_SOURCES)}: {size['processes']} simulated processes on `{size['topology']}`,\n16 a node, messages of "
        f"2 KiB (`random`: up to that) all through the device, a jitter of 5 %, medians of {options.seeds} seed(s).\n"
        "[simulation.md](simulation.md) has the model and the patterns. CPU-bound runs have its calibrated times.\n"
        "NIC-bound ones have CPUs of 100 ns a packet, and no time for a change of the peer.\n",
        "`static`, the paper's stealing and `turns`, which is the default, are compared with `none`. Bold is "
        "where the default costs more than\n1.1 times the better of `static` and the paper's, and 2 points; the bound "
        "stands behind it.\n",
        f"**The default misses its bound in {len(missed)} of {len(cells)} cases.**\n",
        overhead_table(options, cells), contact_table(options, contacts)]
    if "hot_then_all" in options.patterns:
        parts.append(adaptation_table(options, cells))
    return "\n".join(parts)


def main(given):
    options = arguments(given)
    size = SIZES["quick" if options.quick else "full"]
    simulator = Simulator(options.program, options.jobs, os.path.join(options.build, "robust"), **size, **COMMON)
    runs = patterns(size["processes"])

    def cell(run, bound, slots):
        run = {name: value[bound] if isinstance(value, dict) else value for name, value in run.items()}
        return Cell(simulator, options.seeds, slots, {**run, **BOUNDS[bound]})

    cells = {(name, bound, slots): cell(runs[name], bound, slots)
             for name in options.patterns for bound in BOUNDS for slots in options.slots}
    # 0.8 P messages of each of P processes are 1.6 for each of P^2 / 2 pairs.
    contact = {**FIRST_CONTACT, "iterations": round(0.8 * size["processes"])}
    contacts = {(bound, slots): cell(contact, bound, slots) for bound in BOUNDS for slots in options.slots}
    try:
        wait_for_all(simulator, options.minutes)
        text = page(options, size, cells, contacts)
    finally:
        simulator.stop()
    with open(options.out, "w", encoding="utf-8") as file:
        file.write(text)
    missed = sum(cell.misses() for cell in cells.values())
    print(f"wrote {options.out}: the default misses its bound in {missed} of {len(cells)} cases; "
          f"{simulator.runs()} runs, {simulator.cpu_seconds():.0f} s of CPU")
