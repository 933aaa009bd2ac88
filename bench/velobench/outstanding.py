"""Measures what messages that wait for a sleeping receiver cost their sender, over velo and over vader.

Posts many MPI_Isends to a receiver that sleeps outside MPI, and prints medians over rounds of what the sender needs:
the time to post and to deliver them, and the resident memory of each, while it waits and after all have been
received."""

import itertools
import os

from .openmpi import BUILD, PLUGIN, Jobs, OpenMpi, check_plugin
from .options import folder, number, numbers, parser, two_builds, words
from .stats import Samples, ratio

COLUMNS = ("velo", "device", "vader")


def arguments(given):
    options = parser("outstanding", __doc__)
    add = options.add_argument
    add("--columns", type=words(*COLUMNS), default=list(COLUMNS), metavar="LIST",
        help="of velo, device (velo, one rank a node), vader (default: all)")
    add("--count", type=number(1, 1000000000), default=1000000, metavar="N", help="messages (default: 1000000)")
    add("--sizes", type=numbers(1, "bytes"), default=[64], metavar="LIST", help="bytes of a message (default: 64)")
    add("--rounds", type=number(1, 999), default=3, metavar="N", help="default: 3")
    add("--plugin", type=folder, action="append", metavar="DIR",
        help="where mca_btl_velo.so is (default: build/.libs); twice: two builds of velo, as velo and before")
    add("--timeout", type=number(1, 1000000, "seconds"), default=120, metavar="S", help="of one job (default: 120)")
    add("--out", default=os.path.join(BUILD, "outstanding"), metavar="DIR",
        help="for rows and logs (default: build/outstanding)")
    chosen = options.parse_args(given)
    chosen.default_plugin = PLUGIN
    two_builds(chosen, options)
    return chosen


def table(samples, options):
    line = samples.median("line")
    lines = [f"{options.count} messages a job, medians of {options.rounds} rounds; line transfer {line or 0:.0f} ns",
             f"{'bytes':>6} {'':8} {'post s':>9} {'deliver s':>9} {'held B':>9} {'kept B':>9} {'post/vader':>14} "
             f"{'held/vader':>14}"]
    for size in options.sizes:
        for column in options.columns:
            post, drain, held, kept = (samples.median((column, what, size))
                                       for what in ("post", "drain", "held", "kept"))
            if post is None:
                continue
            ratios = [ratio(value, samples.median(("vader", what, size)))
                      for what, value in (("post", post), ("held", held))]
            lines.append(f"{size:6} {column:8} {post:9.3f} {drain:9.3f} {held:9.0f} {kept:9.0f}"
                         + "".join(f" {'-' if value is None else format(value, '.2f'):>14}" for value in ratios))
    return "\n".join(lines)


def main(given):
    options = arguments(given)
    for plugin in options.plugins:
        check_plugin(plugin)
    mpi = OpenMpi()
    jobs = Jobs(mpi, "outstanding", options.out, options.timeout)
    samples, posted = Samples(), os.path.join(jobs.out, "posted")
    for round_, size, column in itertools.product(range(1, options.rounds + 1), options.sizes, options.columns):
        if os.path.exists(posted):
            os.unlink(posted)
        command = mpi.command(2, mpi.sm if column == "vader" else "velo", options.plugins[column == "before"],
                              mca={"btl_velo_ranks_per_node": 1} if column == "device" else None)
        for row in jobs.run(round_, command, (column, options.count, size, posted), f"{column}-{size}"):
            samples.add("line" if row.measure == "line" else (row.label, row.measure, row.size), row.value)
    return jobs.finish(table(samples, options))
