"""RDRP's figures 1, 4 and 5, and its text's values beside ours: which runs each is made of. A maker is called as
maker(setting), a Setting; it submits its runs, yields, and writes. All that is fixed before the runs stands here."""

import statistics

from .simulator import spread_columns

SEEDS = (1, 2, 3)
# 10,000 packet times, a series of 40 entries; the steady state is the mean of the last third of them, the trough the least
# but the first. The paper's rule ends at the first entry that differs by less than 5 % from the one before.
LENGTH = {"packets": 10000, "iteration": 250}
# Left open by the paper. Literal: one virtual channel a class (local links have 4, global ones 2), and
# PAR's comparison as printed. Ready: several channels a class, and a detour whenever it is the emptier way.
ROUTERS = {"literal": {"vcs_per_class": 1, "minimal_bias_percent": 200, "threshold_flits": 30},
           "ready": {"vcs_per_class": 4, "minimal_bias_percent": 100, "threshold_flits": 0}}
SLOWDOWNS = (2, 4, 8)
WINDOW = 30
BIG = ("big", "fecn", "fecn-aggressive")
# The paper's text: throughput without slow nodes; FECN's losses; the best window at 8x; the factors at 1 %.
PAPER = {"none": 59, "aggressive": -40, "fecn at 8x": -50, "window": 30, 2: 1.7, 4: 3.3, 8: 4.3}

SOURCES = ("rma/chunk_scheduler.h", "sim/saturation_run.cc", "sim_device/switched")


class Setting:
    """A machine, a router and seeds; their runs and tables."""

    def __init__(self, simulator, results, router, full, seeds):
        self._simulator, self._results = simulator, results
        self._seeds = seeds
        self._router = router
        self._topology = "dragonfly:6,12,6" if full else "dragonfly:3,6,3"
        self.nodes = 5256 if full else 342
        self.shares_1 = (0, 0.02, 0.1, 1) if full else (0, 0.3, 0.6, 1, 2)
        self.shares_4 = (0, 0.1, 1) if full else (0, 0.3, 0.6, 1, 2)
        self.windows = (2, 8, 30, 120) if full else (1, 2, 4, 8, 16, 30, 60, 120, 1000)

    def runs(self, method, share, slowdown, window=WINDOW):
        """One a seed. Without slow nodes their pace is no option, so that such runs are made once."""
        options = {"window": window} if method == "rdrp" else {}
        if share:
            options.update(slow=f"{share}%", slowdown=slowdown)
        return Runs([self._simulator.run(topology=self._topology, routing="par", method=method, seed=seed, **options,
                                         **LENGTH, **ROUTERS[self._router]) for seed in self._seeds])

    def lines(self, figure, title, columns, rows):
        name = f"{figure[:6]}-{self.nodes}-{self._router}{figure[6:]}"
        title = f"{title}, {self.nodes} nodes, router {self._router}"
        self._results.lines(name, title, "throughput, %", columns, rows)

    def table(self, figure, title, columns, rows):
        self._results.table(f"{figure}-{self.nodes}-{self._router}",
                            f"{title}, {self.nodes} nodes, router {self._router}", columns, rows)


class Runs:
    """The same run with each seed."""

    def __init__(self, runs):
        self._runs = runs

    def of(self, column):
        """Throughputs are in percent."""
        return [100 * float(run.result()[column]) for run in self._runs]

    def series(self):
        """Of each iteration, the median of the seeds, in percent."""
        all_series = [[100 * float(cell) for cell in run.result()["series"].split()] for run in self._runs]
        return [statistics.median(values) for values in zip(*all_series)]

    def median(self, column="steady"):
        return statistics.median(self.of(column))

    def spread(self, column="steady"):
        """Median, least, most: the cells of spread_columns()."""
        values = self.of(column)
        return [self.median(column), min(values), max(values)]


def both(setting, figure, title, first, rows_of):
    """A picture of the steady state, and one of the trough. `rows_of`: (name, {column: Runs}) of each row."""
    for column, ending in (("steady", ""), ("trough", "-trough")):
        columns, rows = [first], []
        for name, cells in rows_of:
            columns = [first] + [head for cell in cells for head in spread_columns(cell)]
            rows.append([name] + [value for runs in cells.values() for value in runs.spread(column)])
        setting.lines(figure + ending, f"{title}: {column}", columns, rows)


def figure_1(setting):
    """One big transfer, by the share of slow nodes."""
    runs = [(share, {f"{slowdown}x": setting.runs("big", share, slowdown) for slowdown in (2, 8)})
            for share in setting.shares_1]
    yield
    both(setting, "rdrp-1", "One big transfer", "slow nodes, %", runs)


def figure_4(setting):
    """FECN/BECN by the share of slow nodes."""
    runs = [(share, {f"{method}, {slowdown}x": setting.runs(method, share, slowdown)
                     for slowdown in SLOWDOWNS for method in BIG}) for share in setting.shares_4]
    yield
    both(setting, "rdrp-4", "FECN/BECN", "slow nodes, %", runs)


def figure_5(setting):
    """RDRP by its window, 1 % slow; and the paper's text beside ours."""
    windows = {(slowdown, window): setting.runs("rdrp", 1, slowdown, window)
               for slowdown in SLOWDOWNS for window in setting.windows}
    big = {(slowdown, method): setting.runs(method, 1, slowdown) for slowdown in SLOWDOWNS for method in BIG}
    alone = {method: setting.runs(method, 0, 8) for method in (*BIG, "rdrp")}
    yield
    both(setting, "rdrp-5", "RDRP, 1 % slow", "window",
         [(window, {f"{slowdown}x": windows[slowdown, window] for slowdown in SLOWDOWNS}) for window in setting.windows])
    shown = {f"{method}, {slowdown}x": runs for slowdown in (2, 8)
             for method, runs in (("big", big[slowdown, "big"]), ("fecn", big[slowdown, "fecn"]),
                                  ("RDRP", windows[slowdown, WINDOW]))}
    rows = zip(*(runs.series() for runs in shown.values()))
    setting.lines("rdrp-5-series", "1 % slow, over time", ["packet times", *shown],
                  [[(i + 1) * LENGTH["iteration"], *row] for i, row in enumerate(rows)])
    setting.table("rdrp-text", "The paper's text", ["what", "the paper", "steady", "trough", "stopped"],
                  text_rows(setting, windows, big, alone))


def text_rows(setting, windows, big, alone):
    measures = ("steady", "trough", "stopped")

    def each(of):
        return [of(measure) for measure in measures]

    def change(method, base, measure):
        return 100 * (method.median(measure) / base.median(measure) - 1)

    def best(slowdown, measure):
        return max(big[slowdown, method].median(measure) for method in BIG)

    rows = [["one big transfer, no slow node, %", PAPER["none"], *each(alone["big"].median)],
            ["RDRP, no slow node, %", "", *each(alone["rdrp"].median)],
            ["FECN aggressive, no slow node: change, %", PAPER["aggressive"],
             *each(lambda measure: change(alone["fecn-aggressive"], alone["big"], measure))],
            ["FECN, 1 % at 8x: most loss of the two, %", PAPER["fecn at 8x"],
             *each(lambda measure: min(change(big[8, method], big[8, "big"], measure) for method in BIG[1:]))]]
    for slowdown in SLOWDOWNS:
        rows.append([f"1 % at {slowdown}x: one big transfer, %", "", *each(big[slowdown, "big"].median)])
        rows.append([f"1 % at {slowdown}x: RDRP with {WINDOW}, %", "", *each(windows[slowdown, WINDOW].median)])
        rows.append([f"1 % at {slowdown}x: RDRP / best of the others", PAPER[slowdown],
                     *each(lambda measure, k=slowdown: windows[k, WINDOW].median(measure) / best(k, measure))])
        rows.append([f"1 % at {slowdown}x: RDRP / RDRP without slow nodes", "",
                     *each(lambda measure, k=slowdown: windows[k, WINDOW].median(measure) / alone["rdrp"].median(measure))])
    rows.append(["best window, 1 % at 8x", PAPER["window"],
                 *each(lambda measure: max(setting.windows, key=lambda window: windows[8, window].median(measure)))])
    return rows


FIGURES = {"rdrp-1": figure_1, "rdrp-4": figure_4, "rdrp-5": figure_5}
