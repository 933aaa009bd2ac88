"""Parts of saturation and fairness: jobs over the software device whose ports have a rate, in turns."""

import itertools

from .openmpi import Jobs, OpenMpi, check_plugin, of_jobs
from .options import number

# The default window is what the emulated network holds.
WINDOWS = {
    "default": {},
    "as-without-link": {"btl_velo_window_bytes": 2 << 20},
}


def add_options(options, command, seconds):
    add = options.add_argument
    add("--bytes", type=number(1, 1 << 30, "bytes"), default=1 << 20, metavar="N",
        help="of a message (default: 1048576)")
    add("--seconds", type=number(1, 3600), default=seconds, metavar="S", help=f"of one run (default: {seconds})")
    of_jobs(add, command, rounds=3)


def measure(options, command, ranks, jobs, add):
    """Runs `jobs`, pairs of a label and of (MCA parameters, arguments of the probe), in turns, and calls add(row) with
    each row. Returns what has run, which writes the table."""
    check_plugin(options.plugin)
    mpi = OpenMpi()
    ran = Jobs(mpi, command, options.out, 10 * options.seconds + 60)
    for round_, (label, (mca, arguments)) in itertools.product(range(1, options.rounds + 1), jobs):
        line = mpi.command(ranks, "velo", options.plugin, yields=True, mca={"btl_velo_ranks_per_node": 1, **mca})
        for row in ran.run(round_, line, (label, *arguments), label):
            add(row)
    return ran
