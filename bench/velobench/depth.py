"""The time of a message behind others that wait, in jobs of two ranks.

Over velo's MTL, ob1 with velo's BTL and with vader, and UCX, in turn. A message of 8 bytes goes to and fro while as many others
as the depth are posted or unexpected. It prints half a round trip and its ratio to that of the same column with none."""

import os

from . import rows
from .openmpi import OpenMpi, check_plugin, measured_rows, of_jobs
from .options import numbers, parser, words
from .stats import Samples, ratio

COLUMNS = {"mtl": ("cm", "velo"), "btl": ("ob1", "velo"), "vader": ("ob1", None), "ucx": (None, None)}
MEASURES = ("posted", "posted_any", "unexpected", "unexpected_any")


def arguments(given):
    options = parser("depth", __doc__)
    add = options.add_argument
    add("--columns", type=words(*COLUMNS), default=list(COLUMNS), metavar="LIST",
        help="of mtl, btl (velo), vader and ucx (default: all)")
    add("--depths", type=numbers(0, "messages"), default=[0, 100, 10000], metavar="LIST", help="default: 0,100,10000")
    of_jobs(add, "depth", rounds=3, timeout=120)
    return options.parse_args(given)


def table(samples, options):
    lines = [f"us one way, 8 bytes, medians of {options.rounds} rounds; in brackets the ratio to the first depth", "",
             "| queue | depth | " + " | ".join(options.columns) + " |", "|:--|--:|" + "--:|" * len(options.columns)]
    for measure in MEASURES:
        for depth in options.depths:
            cells = []
            for column in options.columns:
                us, first = (samples.median((column, measure, each)) for each in (depth, options.depths[0]))
                cells.append("-" if us is None else f"{us:.3f}" if depth == options.depths[0] or first is None
                             else f"{us:.3f} ({ratio(us, first):.2f})")
            lines.append(f"| {measure} | {depth} | " + " | ".join(cells) + " |")
    line = [samples.median((column, "line", 0)) for column in options.columns]
    lines.append("| a cache line, ns | | " + " | ".join("-" if ns is None else f"{ns:.0f}" for ns in line) + " |")
    return "\n".join(lines)


def main(given):
    options = arguments(given)
    check_plugin(options.plugin)
    mpi = OpenMpi()
    if "ucx" in options.columns and not mpi.has_ucx():
        print("UCX is left out: Open MPI has no pml/ucx here")
        options.columns.remove("ucx")
    program = mpi.compile("depth")
    os.makedirs(options.out, exist_ok=True)
    kept = rows.Kept(os.path.join(options.out, "rows.csv"), "round", *rows.Row._fields)
    kept.begin()
    samples, failed = Samples(), False
    jobs = [(round_, depth, column) for round_ in range(1, options.rounds + 1) for depth in options.depths
            for column in options.columns]
    for round_, depth, column in jobs:
        pml, btl = COLUMNS[column]
        command = mpi.ucx_command(2) if column == "ucx" else mpi.command(2, btl or mpi.sm, options.plugin, pml=pml)
        command += [program, column, str(depth)]
        log = os.path.join(options.out, f"{column}-{depth}-{round_}")
        measured, good = measured_rows(command, log, options.timeout, f"depth: {column}, {depth} messages")
        failed |= not good
        kept.add([round_, *row] for row in measured)
        for row in measured:
            samples.add((row.label, row.measure, row.size), row.value)
    text = table(samples, options)
    with open(os.path.join(options.out, "table.md"), "w", encoding="utf-8") as file:
        file.write(text + "\n")
    print(text)
    return int(failed)
