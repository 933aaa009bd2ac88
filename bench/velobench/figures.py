"""Makes figures of FC (4 to 27), RAILS (rails-2 to rails-20) and RDRP from simulated runs: a CSV and a picture of each,
and a page for each paper. docs/simulation.md has the models and their parameters, which are fixed, and says what agrees
with the papers.

  bench/run figures --only 4,17      some figures
  bench/run figures --only rdrp-1,rdrp-4,rdrp-5 --full     RDRP's, of 5,256 nodes: a minute of CPU a run, 216 runs
  bench/run figures --only rails-16 --lines shipped        some lines of a figure; its other columns stay
  bench/run figures --pictures       runs nothing: draws the pictures of all CSVs in docs/results

Needs gnuplot (Debian: gnuplot-nox)."""

import os

from . import fc_figures, pictures, rails_figures, rdrp_figures
from .fc_results import Results
from .openmpi import BUILD
from .options import number, numbers, parser, words
from .simulator import FC_SOURCES, Simulator, find_simulator, source_commit

FIGURES = {**fc_figures.FIGURES, **rails_figures.FIGURES}


def arguments(given):
    options = parser("figures", __doc__)
    add = options.add_argument
    rdrp = rdrp_figures.FIGURES
    add("--only", type=words(*FIGURES, *rdrp), default=list(FIGURES), metavar="LIST",
        help=f"of {', '.join([*FIGURES, *rdrp])} (default: all but RDRP's)")
    add("--full", action="store_true",
        help="all sizes of mailboxes, more seeds, and the paper's size where the default is smaller")
    add("--jobs", type=number(1, 1000), default=len(os.sched_getaffinity(0)), metavar="N",
        help="runs at a time (default: %(default)s); the figures are the same")
    add("--seeds", type=numbers(1, "seeds"), default=rdrp_figures.SEEDS, metavar="LIST",
        help="of RDRP's figures (default: 1,2,3)")
    add("--routers", type=words(*rdrp_figures.ROUTERS), default=list(rdrp_figures.ROUTERS), metavar="LIST",
        help=f"of RDRP's figures: of {', '.join(rdrp_figures.ROUTERS)} (default: all)")
    add("--build", default=BUILD, metavar="DIR", help="where velo_sim is")
    add("--out", default=pictures.RESULTS, metavar="DIR", help="where the CSVs are (default: docs/results)")
    add("--lines", default="", metavar="WORD",
        help=f"of {', '.join(rails_figures.BY_LINES)}: only lines with this word in their names; others stay as they are")
    add("--pictures", action="store_true", help="draws the pictures of all CSVs, and runs nothing")
    add("--draw-to", metavar="DIR", help="where the pictures go (default: pictures in --build)")
    chosen = options.parse_args(given)
    whole = [name for name in chosen.only if name not in rails_figures.BY_LINES]
    if chosen.lines and whole:
        options.error(f"argument --lines: {', '.join(whole)}: made as a whole only")
    chosen.draw_to = chosen.draw_to or os.path.join(chosen.build, "pictures")
    return chosen


def main(given):
    options = arguments(given)
    pictures.check_gnuplot()
    if options.pictures:
        print(f"wrote {pictures.draw_all(options.out, options.draw_to)} pictures to {options.draw_to}")
        return
    run = "--full" if options.full else "default"

    def made_by(paper, figures, **of_runs):
        """Simulator, results and the names of the figures of one paper; None where none is asked for."""
        chosen = [name for name in options.only if name in figures]
        if not chosen:
            return None
        folder = os.path.join(options.build, "figures")
        simulator = Simulator(find_simulator(options.build), options.jobs, folder, **of_runs)
        return simulator, Results(options.out, options.draw_to, paper, options.lines), chosen

    # docs/results was made before a NIC's queue had an end, which changes little there.
    for paper, figures, sources, of_runs in (("fc", fc_figures.FIGURES, FC_SOURCES, {"nic_queue": 0}),
                                             ("rails", rails_figures.FIGURES, rails_figures.SOURCES,
                                              {"command": "rails"})):
        made = made_by(paper, figures, **of_runs)
        if made:
            simulator, results, chosen = made
            makers = dict.fromkeys(figures[name] for name in chosen)
            make(simulator, results, [maker(simulator, results, options.full) for maker in makers], run,
                 source_commit(sources))
            simulator.stop()
    made = made_by("rdrp", rdrp_figures.FIGURES, command="saturation")
    if made:
        simulator, results, chosen = made
        run += ", seeds " + ", ".join(map(str, options.seeds))
        for router in options.routers:
            setting = rdrp_figures.Setting(simulator, results, router, options.full, options.seeds)
            make(simulator, results, [rdrp_figures.FIGURES[name](setting) for name in chosen], run,
                 source_commit(rdrp_figures.SOURCES))
        simulator.stop()


def make(simulator, results, figures, run, commit):
    """Makes figures whose runs can go side by side."""
    try:
        for figure in figures:
            next(figure)
        for figure in figures:
            next(figure, None)
            results.record(run, commit)
    except BaseException:
        simulator.stop()
        raise
    print(f"{simulator.runs()} runs, {simulator.cpu_seconds():.0f} s of CPU")
