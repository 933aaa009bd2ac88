"""Makes FC's figures from simulated runs: a CSV and a picture of each, and a page of all. docs/simulation.md has the
model and its parameters, which are fixed, and says what agrees with the paper.

  bench/run figures --only 4,17      some figures
  bench/run figures --pictures       runs nothing: draws the pictures of all CSVs in docs/results

Needs gnuplot (Debian: gnuplot-nox)."""

import os

from . import pictures
from .fc_figures import FIGURES
from .fc_results import Results
from .openmpi import BUILD
from .options import number, parser, words
from .simulator import Simulator, find_simulator, source_commit


def arguments(given):
    options = parser("figures", __doc__)
    add = options.add_argument
    add("--only", type=words(*FIGURES), default=list(FIGURES), metavar="LIST",
        help=f"of {', '.join(FIGURES)} (default: all)")
    add("--full", action="store_true",
        help="all sizes of mailboxes, more seeds, and the paper's size where the default is smaller")
    add("--jobs", type=number(1, 1000), default=len(os.sched_getaffinity(0)), metavar="N",
        help="runs at a time (default: %(default)s); the figures are the same")
    add("--build", default=BUILD, metavar="DIR", help="where velo_sim is")
    add("--out", default=pictures.RESULTS, metavar="DIR", help="where the CSVs are (default: docs/results)")
    add("--pictures", action="store_true", help="draws the pictures of all CSVs, and runs nothing")
    add("--draw-to", metavar="DIR", help="where the pictures go (default: pictures in --build)")
    chosen = options.parse_args(given)
    chosen.draw_to = chosen.draw_to or os.path.join(chosen.build, "pictures")
    return chosen


def main(given):
    options = arguments(given)
    pictures.check_gnuplot()
    if options.pictures:
        print(f"wrote {pictures.draw_all(options.out, options.draw_to)} pictures to {options.draw_to}")
        return
    # docs/results was made before a NIC's queue had an end, which changes little there.
    simulator = Simulator(find_simulator(options.build), options.jobs, os.path.join(options.build, "figures"),
                          nic_queue=0)
    results = Results(options.out, options.draw_to)
    run, commit = "--full" if options.full else "default", source_commit()
    makers = dict.fromkeys(FIGURES[name] for name in options.only)
    figures = [maker(simulator, results, options.full) for maker in makers]
    try:
        for figure in figures:
            next(figure)
        for figure in figures:
            next(figure, None)
            results.record(run, commit)
    finally:
        simulator.stop()
    print(f"{simulator.runs()} runs, {simulator.cpu_seconds():.0f} s of CPU")
