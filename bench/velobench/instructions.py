"""Counts the instructions that an 8-byte message costs on either side, by library.

Runs windows of 16 messages of 8 bytes under callgrind and counts the instructions of the functions that send, post
receives and complete them; neither side waits in them. Counts do not depend on the machine's speed or load, and
differ between runs by some in a thousand. A row of its own takes off the sum what velo does by a clock: the sides sleep
between windows, so it is due in each of them, instead of once in thousands of messages. A table goes to standard output.
Needs valgrind."""

import glob
import os
import re
import shutil
import sys

from .openmpi import BUILD, PLUGIN, Failed, OpenMpi, check_plugin, read, run_job, tail
from .options import folder, number, parser, two_builds, words

COLUMNS = ("velo", "mtl", "device", "vader")
WINDOW = 16
MEASURED = ("measured_send", "measured_post", "measured_complete")
SECONDS_MAX = 300
CLOCK = "due by a clock"  # row of CLOCK_FUNCTION and what it calls
CLOCK_FUNCTION = re.compile(r"velo::Failures<.*::poll_liveness\(")


def arguments(given):
    options = parser("instructions", __doc__)
    add = options.add_argument
    add("--columns", type=words(*COLUMNS), default=list(COLUMNS), metavar="LIST",
        help="of velo, mtl (velo matches), device (velo, one rank a node), vader (default: all)")
    add("--windows", type=number(1, 100000), default=60, metavar="N", help="default: 60")
    add("--plugin", type=folder, action="append", metavar="DIR",
        help="where mca_btl_velo.so is (default: build/.libs); twice: two builds of velo, as velo and before")
    add("--out", default=os.path.join(BUILD, "instructions"), metavar="DIR",
        help="for callgrind's files and logs (default: build/instructions)")
    chosen = options.parse_args(given)
    chosen.default_plugin = PLUGIN
    two_builds(chosen, options)
    return chosen


def count(profile):
    """The side of a rank, and its instructions by library, out of what callgrind wrote. The line behind `calls=` is the
    callee's cost again, and does not count, but for what a clock asks for, which it takes off."""
    names, costs, library, side, skip = {}, {}, None, None, False
    callees, callee = {}, ""
    for line in profile.splitlines():
        function = re.match(r"c?fn=(\(\d+\))(?: (.*))?", line)
        if function:
            callees.setdefault(function[1], function[2] or "")
            if line.startswith("cfn="):
                callee = callees[function[1]]
        object_ = re.match(r"c?ob=(\(\d+\))(?: (.*))?", line)
        if object_:
            if object_[2]:
                names[object_[1]] = re.sub(r"\.so.*", "", object_[2].rpartition("/")[2])
            if line.startswith("ob="):
                library = object_[1]
        elif "measured_send" in line:
            side = "sends"
        elif "measured_complete" in line:
            side = "receives"
        elif line.startswith("calls="):
            skip = True
        elif re.match(r"[-+*0-9]", line):
            cost = int(line.split()[1])
            if not skip:
                costs[library] = costs.get(library, 0) + cost
            elif CLOCK_FUNCTION.match(callee):
                names[CLOCK] = CLOCK
                costs[CLOCK] = costs.get(CLOCK, 0) - cost
            skip = False
    return side, {names[key]: cost for key, cost in costs.items()}


def table(columns, counts):
    """`counts`: instructions a message by side, library and column. A library below half an instruction
    everywhere has no row. The row of the clock comes last, and is below 0."""
    lines = [f"{'side':9} {'instructions a message':24}" + "".join(f" {column:>9}" for column in columns)]
    for side in ("sends", "receives"):
        libraries = sorted(dict.fromkeys(library for side_, library, _ in counts if side_ == side),
                           key=lambda library: library == CLOCK)
        rows = {library: [counts.get((side, library, column), 0) for column in columns] for library in libraries}
        rows["sum"] = [sum(values) for values in zip(*rows.values())]
        lines += [f"{side:9} {name:24}" + "".join(f" {value:9.1f}" for value in values)
                  for name, values in rows.items() if values and max(map(abs, values)) >= 0.5]
    return "\n".join(lines)


def main(given):
    options = arguments(given)
    if shutil.which("valgrind") is None:
        raise Failed("there is no valgrind; install it")
    for plugin in options.plugins:
        check_plugin(plugin)
    mpi = OpenMpi()
    program = mpi.compile("instructions")
    os.makedirs(options.out, exist_ok=True)
    counts = {}
    for column in options.columns:
        profiles = os.path.join(options.out, f"callgrind.{column}.")
        for old in glob.glob(glob.escape(profiles) + "*"):
            os.unlink(old)
        command = mpi.command(2, mpi.sm if column == "vader" else "velo", options.plugins[column == "before"],
                              yields=True, pml="cm" if column == "mtl" else "ob1", mca={"btl_velo_ranks_per_node": 1} if column == "device" else None)
        command += ["-x", "LD_BIND_NOW=1", "valgrind", "--quiet", "--tool=callgrind",
                    *(f"--toggle-collect={name}" for name in MEASURED), f"--callgrind-out-file={profiles}%p", program,
                    str(options.windows)]
        log = os.path.join(options.out, column + ".log")
        if run_job(command, log, SECONDS_MAX) != 0:
            print(tail(log, 20), file=sys.stderr)
            raise Failed(f"the {column} job failed; its output is in {log}")
        for path in sorted(glob.glob(glob.escape(profiles) + "*")):
            side, costs = count(read(path))
            for library, cost in costs.items():
                key = side, library, column
                counts[key] = counts.get(key, 0) + cost / (options.windows * WINDOW)
    print(table(options.columns, counts))
