"""Parts of saturation and fairness: jobs over the software device whose ports have a rate, in turns."""

import os

from . import rows
from .openmpi import BUILD, PLUGIN, OpenMpi, check_plugin, measured_rows
from .options import folder, number

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
    add("--rounds", type=number(1, 999), default=3, metavar="N", help="default: 3")
    add("--plugin", type=folder, default=PLUGIN, metavar="DIR", help="where mca_btl_velo.so is (default: build/.libs)")
    add("--out", default=os.path.join(BUILD, command), metavar="DIR",
        help=f"for rows and logs (default: build/{command})")


def measure(options, command, ranks, jobs, add):
    """Runs `jobs`, pairs of a label and of (MCA parameters, arguments of the probe), in turns, and calls add(row) with
    each row. False: a job has failed."""
    check_plugin(options.plugin)
    mpi = OpenMpi()
    program = mpi.compile(command)
    os.makedirs(options.out, exist_ok=True)
    kept = rows.Kept(os.path.join(options.out, "rows.csv"), "round", *rows.Row._fields)
    kept.begin()
    good = True
    for round_ in range(1, options.rounds + 1):
        for label, (mca, arguments) in jobs:
            line = mpi.command(ranks, "velo", options.plugin, yields=True, mca={"btl_velo_ranks_per_node": 1, **mca})
            line += [program, label, *map(str, arguments)]
            log = os.path.join(options.out, f"{label.replace('/', '-')}-{round_}")
            measured, ended_well = measured_rows(line, log, 10 * options.seconds + 60, f"{command}: the job of {label}")
            good &= ended_well
            kept.add([round_, *row] for row in measured)
            for row in measured:
                add(row)
    return good
