"""The time of a message behind others that wait, in jobs of two ranks.

Over velo's MTL, ob1 with velo's BTL and with vader, and UCX, in turn. A message of 8 bytes goes to and fro while as many others
as the depth are posted or unexpected. It prints half a round trip and its ratio to that of the same column with none."""

import itertools

from .openmpi import Jobs, OpenMpi, check_plugin, of_jobs
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
    jobs = Jobs(mpi, "depth", options.out, options.timeout)
    samples = Samples()
    for round_, depth, column in itertools.product(range(1, options.rounds + 1), options.depths, options.columns):
        pml, btl = COLUMNS[column]
        command = mpi.ucx_command(2) if column == "ucx" else mpi.command(2, btl or mpi.sm, options.plugin, pml=pml)
        for row in jobs.run(round_, command, (column, depth), f"{column}-{depth}"):
            samples.add((row.label, row.measure, row.size), row.value)
    return jobs.finish(table(samples, options))
