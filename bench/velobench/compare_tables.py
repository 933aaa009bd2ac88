"""The tables of `compare`: near and far figures apart, with the targets that each row meets."""

import collections

from . import tables
from .distance import placed
from .stats import Samples, ratio

# Columns whose lines differ by more have a row of them.
LINE_RATIO_MAX = 1.25
GROUPS = ("latency", "bandwidth", "rate", "unpinned", "flow")
TITLES = {"velo": "velo", "velo_before": "velo before", "vader": "vader", "vader_copied": "vader, no CMA", "ucx": "UCX",
          "mpich": "MPICH", "device": "velo", "device_before": "velo before", "mtl": "velo's MTL", "mtl_before": "velo's MTL before",
          "mtl_device": "velo's MTL", "mtl_device_before": "velo's MTL before", "static": "static", "none": "none"}
ON_NODE = ("velo", "velo_before", "mtl", "mtl_before", "vader", "vader_copied", "ucx", "mpich")
# Ways of velo's long messages on the node, by the words of btl_velo_block_way.
WAYS = ("ring", "direct", "nontemporal")
FETCHED_BYTES = 65536  # of the shortest message measured that is fetched, and not sent whole
INCUMBENTS = ("vader", "vader_copied", "ucx", "mpich")


def targets(place, column, measure, size):
    """The ratios that a row must and should reach at a place; None where it has no target."""
    if column == "device":
        if measure == "latency":
            return {8: (1.3, 1.0), 2048: (1.5, 1.0)}.get(size)
        return (1.0, 1.3) if measure in ("bandwidth", "both") and size >= 65536 else None
    if column == "mtl":
        if measure == "latency" and size <= 64:
            return (0.95, 0.8) if place == "near" else (1.0, 0.85)
        if measure == "rate":
            return {8: (1.15, 1.5)}.get(size)
    if column == "mtl_device":
        return (0.9, 0.75) if measure == "latency" and size in (8, 2048) else None
    if measure == "latency":
        return (1.0, 0.85) if size <= 2048 else (0.9, 0.6)
    if measure in ("bandwidth", "both"):
        return (1.0, 1.3) if size >= 4096 else None
    return {("rate", 8): (1.0, 1.5), ("alltoall", size): (1.03, 1.01)}.get((measure, size))


class Score:
    """How many rows meet which target."""

    def __init__(self):
        self.aims = self.musts = self.targets = 0

    def met(self, value, goals, lower_wins):
        if goals is None or value is None:
            return tables.NONE
        must, aim = goals
        self.targets += 1
        if value <= aim if lower_wins else value >= aim:
            self.aims += 1
            return "aim"
        if value <= must if lower_wins else value >= must:
            self.musts += 1
            return "must"
        return "**no**"

    def summary(self, name):
        return (f"{name}: of {self.targets} targets, {self.aims} reach the aim, {self.musts} only the must, "
                f"{self.targets - self.aims - self.musts} neither")


def lacking(rows, groups, rounds):
    """The places, near and far, at which some figure of these groups was measured less often than asked for."""
    counts, figures = collections.Counter(), set()
    for row, place in placed(rows):
        if row["group"] in groups and row["measure"] != "line":
            figure = tuple(row[name] for name in ("group", "column", "where", "measure", "size"))
            figures.add(figure)
            counts[figure, place] += 1
    return [place for place in ("near", "far") if any(counts[figure, place] < rounds for figure in figures)]


class Place:
    """The figures that were near, or far. `missing`: why a column has no figures, by column."""

    def __init__(self, name, rows, columns, missing):
        self._name, self._columns, self._missing = name, columns, missing
        self._score = Score()
        self._values = Samples()
        self._single = {}
        self._rounds, self._sizes = {}, {}
        for row, place in placed(rows):
            group, measure, round_ = row["group"], row["measure"], row["round"]
            if group == "memory" or place != name:
                continue
            # Alltoalls differ in the ranks that take part, not in size.
            size = int(row["where"].removeprefix("np") if measure == "alltoall" else row["size"])
            self._values.add((group, row["column"], measure, size), row["value"])
            self._single[group, round_, row["column"], measure, size] = float(row["value"])
            self._rounds.setdefault(group, {})[round_] = True
            self._sizes.setdefault((group, measure), set()).add(size)

    def _median(self, group, column, measure, size):
        return self._values.median((group, column, measure, size))

    def _has(self, group, column):
        return any(key[:2] == (group, column) for key in self._values)

    def counts(self):
        """In how many rounds the figures of each group have this place, the least and the most of a figure."""
        counts = {}
        for group, column, measure, size in self._values:
            if measure != "line":
                counts.setdefault(group, []).append(len(self._values.values((group, column, measure, size))))
        return ", ".join(f"{min(counts[group])} to {max(counts[group])} of {group}" for group in GROUPS if group in counts)

    def _lines(self):
        """The time of a cache line in the jobs, by column and group."""
        lines = [self._values.median(key) for key in self._values if key[2] == "line"]
        return f" A cache line took {min(lines):.0f} to {max(lines):.0f} ns." if lines else ""

    def _range(self, group, measure, size, one, other):
        """The lowest and the highest ratio over the rounds that have both, and how many these are."""
        ratios = [self._single[group, round_, one, measure, size] / self._single[group, round_, other, measure, size]
                  for round_ in self._rounds[group] if (group, round_, one, measure, size) in self._single
                  and (group, round_, other, measure, size) in self._single]
        if len(ratios) < 2:
            return "(1)" if ratios else tables.NONE
        return f"{min(ratios):.2f}–{max(ratios):.2f} ({len(ratios)})"

    def _ratio_cells(self, group, measure, size, column, other, lower_wins, goals=None):
        """The ratio, its range, and the bound that it meets or misses."""
        value = ratio(self._median(group, column, measure, size), self._median(group, other, measure, size))
        goals = goals or targets(self._name, column, measure, size)
        met = self._score.met(value, goals, lower_wins)
        bound = f" {'≤' if lower_wins else '≥'} {goals[met == 'aim']:.2f}" if met != tables.NONE else ""
        return [tables.fixed(value), self._range(group, measure, size, column, other), met + bound]

    def _best(self, group, measure, size, lower_wins):
        medians = {column: self._median(group, column, measure, size)
                   for column in self._columns if column in INCUMBENTS}
        medians = {column: value for column, value in medians.items() if value is not None}
        return (min if lower_wins else max)(medians, key=medians.get, default=None)

    def _line_row(self, group, columns, empty):
        """Stands if columns differ so much in the distance of cores that their figures do not compare."""
        cells = [self._median(group, column, "line", 0) for column in columns]
        known = [cell for cell in cells if cell is not None]
        if not known or max(known) <= LINE_RATIO_MAX * min(known):
            return []
        return [["one cache line, ns", *(tables.fixed(cell, 0) for cell in cells), *[""] * empty]]

    def _cells(self, group, measure, size, columns, best=None):
        """The columns' figures; the one that ratios are taken to is bold."""
        for column in columns:
            text = self._missing.get(column) or tables.figure(self._median(group, column, measure, size))
            yield f"**{text}**" if column == best else text

    def _table(self, heading, heads, rows, line_row):
        """Without the columns of ranges and bounds in which there is none."""
        empty = {column for column, head in enumerate(heads) if head in ("in rounds", "met")
                 and all(row[column] in ("", "(1)", tables.NONE) for row in rows)}
        lines = [[cell for column, cell in enumerate(line) if column not in empty] for line in [heads, *rows, *line_row]]
        align = "".join("l" if head == "met" else "r" for head in lines[0])
        return f"\n### {heading}\n\n" + tables.table(lines[0], align, lines[1:])

    def _on_node(self, group, measure, heading, lower_wins):
        """velo's BTL, and its MTL where jobs are pinned, beside the best of the others."""
        if (group, measure) not in self._sizes or not any(self._has(group, column) for column in self._columns):
            return ""
        ours = ["velo", *["mtl"] * (group != "unpinned" and self._has(group, "mtl"))]
        rows = []
        for size in sorted(self._sizes[group, measure]):
            best = self._best(group, measure, size, lower_wins)
            ratios = [self._ratio_cells(group, measure, size, column, best, lower_wins) for column in ours]
            rows.append([tables.size(size), *self._cells(group, measure, size, self._columns, best), *sum(ratios, [])])
        names = {"velo": "velo / best", "mtl": "MTL / best"}
        heads = ["", *(TITLES[column] for column in self._columns)]
        for column in ours:
            heads += [names[column], "in rounds", "met"]
        return self._table(heading, heads, rows, self._line_row(group, self._columns, 3 * len(ours)))

    def _ways(self, group, measure, heading, lower_wins):
        """velo, which chooses by what it has measured, beside itself with each way fixed."""
        ways = [way for way in WAYS if self._has(group, way)]
        if (group, measure) not in self._sizes or not ways or not self._has(group, "velo"):
            return ""
        rows = []
        for size in sorted(size for size in self._sizes[group, measure] if size >= FETCHED_BYTES):
            medians = {way: self._median(group, way, measure, size) for way in ways}
            medians = {way: value for way, value in medians.items() if value is not None}
            best = (min if lower_wins else max)(medians, key=medians.get, default=None)
            goals = (1.03, 1.01) if lower_wins else (0.97, 0.99)
            rows.append([tables.size(size), *self._cells(group, measure, size, ["velo", *ways], best),
                         *self._ratio_cells(group, measure, size, "velo", best, lower_wins, goals)])
        return self._table(heading, ["", "velo", *ways, "velo / best", "in rounds", "met"], rows,
                           self._line_row(group, ["velo", *ways], 3))

    def _device(self, group, measure, heading, lower_wins):
        """One rank a node: velo's BTL beside vader with CMA, and its MTL beside its BTL."""
        if (group, measure) not in self._sizes or not (self._has(group, "device") or self._has(group, "mtl_device")):
            return ""
        velos = [column for column in ("device", "device_before", "mtl_device", "mtl_device_before")
                 if self._has(group, column)]
        columns = [*velos, "vader"]
        pairs = [("device", "vader", "velo / vader")] * ("device" in velos)
        pairs += [("mtl_device", "device", "MTL / velo")] * ("mtl_device" in velos)
        rows = []
        for size in sorted(self._sizes[group, measure]):
            ratios = [self._ratio_cells(group, measure, size, one, other, lower_wins) for one, other, _ in pairs]
            rows.append([tables.size(size), *self._cells(group, measure, size, columns), *sum(ratios, [])])
        heads = ["", *(TITLES[column] for column in columns)]
        for _, _, name in pairs:
            heads += [name, "in rounds", "met"]
        return self._table(heading, heads, rows, self._line_row(group, columns, 3 * len(pairs)))

    def _flow(self):
        if ("flow", "alltoall") not in self._sizes:
            return ""
        rows = [[ranks, *(tables.figure(self._median("flow", mode, "alltoall", ranks)) for mode in ("static", "none")),
                 *self._ratio_cells("flow", "alltoall", ranks, "static", "none", True)]
                for ranks in sorted(self._sizes["flow", "alltoall"])]
        return self._table("Alltoall of 2 KiB for each process, one rank a node, 58 slots, us",
                           ["ranks", "static", "none", "static / none", "in rounds", "met"], rows, [])

    def page(self):
        text = f"\n## {self._name.capitalize()} cores\n\nRounds of each figure: {self.counts()}.{self._lines()}\n"
        text += self._on_node("latency", "latency", "One-way latency on node, us", True)
        text += self._on_node("bandwidth", "bandwidth", "Streaming on node, one direction, MB/s", False)
        text += self._on_node("bandwidth", "both", "Streaming on node, both directions, MB/s", False)
        text += self._on_node("rate", "rate", "Message rate on node, messages/s", False)
        text += self._on_node("unpinned", "latency", "One-way latency on node, ranks not pinned, us", True)
        text += self._on_node("unpinned", "bandwidth", "Streaming on node, one direction, ranks not pinned, MB/s", False)
        text += self._ways("latency", "latency", "Long messages by each way, one way, us", True)
        text += self._ways("bandwidth", "bandwidth", "Long messages by each way, one direction, MB/s", False)
        text += self._ways("bandwidth", "both", "Long messages by each way, both directions, MB/s", False)
        text += self._device("latency", "latency", "One-way latency, one rank a node, us", True)
        text += self._device("bandwidth", "bandwidth", "Streaming, one rank a node, one direction, MB/s", False)
        text += self._device("bandwidth", "both", "Streaming, one rank a node, both directions, MB/s", False)
        text += self._device("rate", "rate", "Message rate, one rank a node, messages/s", False)
        return text + self._flow(), self._score.summary(f"{self._name} cores")


class Memory:
    """KiB of a rank. Each rank printed its own; a job's figure is their mean, and over rounds the median of that."""

    def __init__(self, rows):
        jobs = Samples()
        for row in rows:
            if row["group"] == "memory":
                jobs.add((row["column"], int(row["where"].removeprefix("np")), row["measure"], int(row["size"]),
                          row["round"]), row["value"])
        self._rounds = Samples()
        for key in jobs:
            values = jobs.values(key)
            self._rounds.add(key[:-1], sum(values) / len(values))
        self._ranks = sorted({key[1] for key in self._rounds if key[1] > 1})

    def added(self, column, ranks, measure, exchanges):
        """KiB that a rank has more than one without a transport. That is one right after MPI_Init over tcp, less what
        tcp adds to a job of one rank."""
        parts = [self._rounds.median(key) for key in ((column, ranks, measure, exchanges), ("tcp", ranks, measure, 0),
                                                      ("tcp", 1, measure, 0), ("alone", 1, measure, 0))]
        if None in parts:
            return None
        value, base, tcp, alone = parts
        return value - base + tcp - alone

    @staticmethod
    def _cells(score, value, vader):
        if value is None or vader is None:
            return [tables.fixed(value, 0), tables.NONE, tables.NONE]
        if vader <= 0:
            return [tables.fixed(value, 0), tables.NONE, "vader's is lost in the noise"]
        return [f"{value:.0f}", f"{value / vader:.2f}", score.met(value / vader, (1, 0.5), True)]

    def page(self):
        if not self._ranks:
            return "", None
        score, rows = Score(), []
        for measure in ("pss", "rss"):
            for ranks in self._ranks:
                for exchanges in (1, 300):
                    vader, velo, device = (self.added(column, ranks, measure, exchanges)
                                           for column in ("vader", "velo", "device"))
                    rows.append([measure.upper(), ranks, exchanges, tables.fixed(vader, 0),
                                 *self._cells(score, velo, vader), *self._cells(score, device, vader)])
        text = ("\n## Memory\n\nKiB that a rank has more than one without any transport, mean of the ranks. must: "
                "≤ 1.00 × vader's, aim: ≤ 0.50.\nPSS counts a page that n processes share as 1/n in each; RSS counts "
                "it whole in each.\n\n")
        heads = ["", "ranks", "after exchanges", "vader", "velo on node", "ratio", "met", "velo, one rank a node",
                 "ratio", "met"]
        return text + tables.table(heads, "lrrrrrlrrl", rows), score.summary("memory")


def report(rows, missing):
    """All tables of the rows of a compare.csv, and a sentence for each part on the targets that it meets."""
    measured = {row["column"] for row in rows}
    columns = [column for column in ON_NODE if column in measured or column in missing]
    text, summaries = "", []
    for name in ("near", "far"):
        place = Place(name, rows, columns, missing)
        if place.counts():
            page, summary = place.page()
            text += page
            summaries.append(summary)
        elif any(row["group"] in GROUPS for row in rows):
            text += (f"\n## {name.capitalize()} cores\n\nNone: the CPUs were never {name}. "
                     f"`bench/run compare --wait SECONDS` waits for that.\n")
    mixed = Place("mixed", rows, columns, missing).counts()
    if mixed:
        text += f"\nFigures during which the cores moved are in the CSV only: {mixed}.\n"
    page, summary = Memory(rows).page()
    return text + page, summaries + [summary] * bool(page)
