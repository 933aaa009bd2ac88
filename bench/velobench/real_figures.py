"""The CSVs of `real`. A figure is a median over rounds; columns NAME_low and NAME_high are the lowest and the highest
round, and in real-cost.csv the quartiles. Times of runs in which others took more than --foreign per cent of a CPU do
not count."""

import csv
import os
import re
import sys

from . import pictures
from .distance import distance
from .openmpi import Failed
from .stats import Samples, percent_over
from .tables import rounded

SCHEMES = ("hardware", "static", "growing", "dynamic")
# Packets of a message of 2 KiB, IBFC's buffer.
BUFFER_SLOTS = 37


def ranged(*names):
    return [name + end for name in names for end in ("", "_low", "_high")]


def spread(samples, key):
    return [rounded(value) for value in samples.spread(key)]


class Figures:
    def __init__(self, options):
        self.options = options

    def raw(self, part, calm=True):
        """The rows of a part's raw file; the ranks that take part, and how many are active, are `ranks`, `active`."""
        path = os.path.join(self.options.out, part + ".csv")
        if not os.path.exists(path):
            raise Failed(f"there are no runs yet: {path}")
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            if "where" in row:
                row["ranks"], _, row["active"] = row["where"].removeprefix("np").partition("/")
        counted = [row for row in rows if not calm or self.is_calm(row)]
        if len(counted) < len(rows):
            print(f"{len(rows) - len(counted)} of {len(rows)} rows do not count: others took more than "
                  f"{self.options.foreign:g} % of a CPU", file=sys.stderr)
        return counted

    def is_calm(self, row):
        return float(row["foreign"]) <= self.options.foreign

    def write(self, name, columns, rows):
        rows = list(rows)
        if not rows:
            raise Failed(f"no run counts for {name}")
        path = os.path.join(self.options.results, name + ".csv")
        with open(path, "w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([columns, *rows])
        print(f"wrote {path}", file=sys.stderr)
        picture = pictures.draw(name, self.options.results, self.options.pictures)
        if picture:
            print(f"wrote {picture}", file=sys.stderr)

    def windows(self):
        rows = self.raw("windows")
        self._window("2", rows, "latency", None, "100", "bytes")
        for number, size, buffers in (("3", "4", "100"), ("5", "4", "10"), ("7", "32768", "10")):
            self._window(number, rows, "blocking", size, buffers, "window")
            self._window(str(int(number) + 1), rows, "nonblocking", size, buffers, "window")

    def _window(self, number, rows, task, size, buffers, x_name):
        """A run begins and ends with a line; it counts when the cores were near at both."""
        samples, held, first_ns = Samples(), [], None
        xs = {}
        for row in rows:
            if row["slots"] != buffers:
                continue
            if row["measure"] == "line":
                line_ns = float(row["value"])
                if first_ns is None:
                    first_ns = line_ns
                else:
                    for key, value in held if distance([first_ns, line_ns]) == "near" else ():
                        samples.add(key, value)
                    first_ns = None
                held = []
                continue
            measure, _, window = row["measure"].partition("-")
            if measure == task and size in (None, row["size"]):
                x = row["size"] if x_name == "bytes" else window
                xs[x] = True
                held.append(((row["mode"], x), row["value"]))
        modes = (*SCHEMES, "dynamic8")
        self.write(f"ibfc-{number}", [x_name, *ranged(*modes)],
                   ([x, *(cell for mode in modes for cell in spread(samples, (mode, x)))] for x in xs))

    def patterns(self):
        rows = self.raw("patterns")
        for ranks in dict.fromkeys(row["ranks"] for row in self.raw("patterns", calm=False)):
            for task in ("alltoall", "pingpong"):
                self._pattern(task, ranks, [row for row in rows if (row["measure"], row["ranks"]) == (task, ranks)])

    def _pattern(self, task, ranks, rows):
        """Per cent over the mean of the two runs without flow control of the same round."""
        value = {(row["round"], row["mode"], row["slots"], row["active"]): float(row["value"]) for row in rows}
        rounds = dict.fromkeys(row["round"] for row in rows)
        slots_list = dict.fromkeys(row["slots"] for row in rows if row["slots"] != "0")
        samples, actives = Samples(), dict.fromkeys(row["active"] for row in rows)
        for round_, active in ((round_, active) for active in actives for round_ in rounds):
            none, again = (value.get((round_, mode, "0", active)) for mode in ("none", "again"))
            if none is None or again is None:
                continue
            base = (none + again) / 2
            samples.add(("base", active), base)
            samples.add(("again", active), percent_over(again, none))
            for mode, slots in ((mode, slots) for mode in ("static", "dynamic") for slots in slots_list):
                if (round_, mode, slots, active) in value:
                    samples.add((mode, slots, active), percent_over(value[round_, mode, slots, active], base))
        self.write(f"real-{task}-{ranks}",
                   ["active", "slots", "none_us", *ranged("static", "dynamic", "none_again"), "rounds"],
                   ([active, slots, rounded(samples.median(("base", active))),
                     *spread(samples, ("static", slots, active)), *spread(samples, ("dynamic", slots, active)),
                     *spread(samples, ("again", active)), len(samples.values(("base", active)))]
                    for active in actives for slots in slots_list))

    def cost(self):
        """A run counts as near or as far when it found the cores so before and after. Overhead of each run is over the
        median of those without flow control at the same distance."""
        lines, figures = Samples(), []
        for row in self.raw("cost"):
            run = tuple(row[name] for name in ("ranks", "round", "mode", "slots"))
            if row["measure"] == "line":
                lines.add(run, row["value"])
            else:
                figures.append(((row["measure"], row["ranks"]), run, row["mode"], row["slots"], float(row["value"])))

        def place(run):
            found = distance(lines.values(run))
            return None if found == "mixed" else found

        samples = Samples()
        counted = [(key, place(run), *rest, lines.values(run)) for key, run, *rest in figures if place(run)]
        if len(counted) < len(figures):
            print(f"{len(figures) - len(counted)} of {len(figures)} runs do not count: near and far", file=sys.stderr)
        for key, where, _, slots, value, _ in counted:
            if slots == "0":
                samples.add((where, "base", key), value)
        for key, where, mode, slots, value, line in counted:
            samples.add((where, "line", key), line[-1] if line else 0)
            if (where, "base", key) in samples:
                samples.add((where, mode, key, slots), percent_over(value, samples.median((where, "base", key))))
        slots_list = dict.fromkeys(slots for _, _, _, slots, _ in figures if slots != "0")
        columns = ["task", "ranks", "cores", "slots", "rounds", "line_ns", "none_us",
                   *ranged("static", "dynamic", "dynamic_exact", "hardware", "none_again")]
        table = [[*key, where, slots, len(samples.values((where, "dynamic", key, slots))),
                  rounded(samples.median((where, "line", key))), rounded(samples.median((where, "base", key))),
                  *(rounded(value) for mode in ("static", "dynamic", "exact", "hardware", "again")
                    for value in samples.quartiles((where, mode, key, "0" if mode == "again" else slots)))]
                 for key in dict.fromkeys(key for key, *_ in figures) for where in ("near", "far")
                 for slots in slots_list if (where, "dynamic", key, slots) in samples]
        self.write("real-cost", columns, table)
        widths = [max(len(str(row[i])) for row in [columns, *table]) for i in range(len(columns))]
        for row in [columns, *table]:
            print("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip())

    def npb(self):
        rows = [row for row in self.raw("npb", calm=False) if row["verdict"] == "ok"]
        samples, ranks = Samples(), {}
        for row in rows:
            key = row["benchmark"], row["buffers"], row["mode"]
            ranks[row["benchmark"]] = row["ranks"]
            if self.is_calm(row):
                samples.add(("seconds", *key), row["seconds"])
            samples.add(("explicit", *key), row["explicit"])
            samples.add(("messages", *key), row["messages"])
            if row["share_slots"]:
                samples.add(("share", *key), row["share_slots"])
        self.write("ibfc-9", ["benchmark", "ranks", *ranged(*SCHEMES)],
                   ([name, ranks[name], *(cell for mode in SCHEMES
                                          for cell in spread(samples, ("seconds", name, "100", mode)))]
                    for name in ranks))
        for buffers in ("1", "least"):
            def more_time(name, mode, buffers=buffers):
                few, many = (samples.median(("seconds", name, number, mode)) for number in (buffers, "100"))
                return f"{percent_over(few, many):.1f}" if few is not None and many else ""
            self.write(f"ibfc-10-{buffers}", ["benchmark", "ranks", *SCHEMES],
                       ([name, ranks[name], *(more_time(name, mode) for mode in SCHEMES)] for name in ranks))
        self.write("ibfc-table-1", ["benchmark", "buffers", "mode", "explicit_a_connection", "messages_a_connection",
                                    "explicit_percent"], self._explicit(samples, ranks))

        def share(name, buffers):
            most = max(samples.values(("share", name, buffers, "growing")), default=None)
            return ["", ""] if most is None else [f"{most:g}", -(-int(most) // BUFFER_SLOTS)]
        self.write("ibfc-table-2", ["benchmark", "slots_from_1", "buffers_from_1", "slots_from_1_buffer",
                                    "buffers_from_1_buffer"],
                   ([name, *share(name, "least"), *share(name, "1")] for name in ranks))

    @staticmethod
    def _explicit(samples, ranks):
        """Explicit credit packets beside all messages."""
        for name, buffers, mode in ((name, buffers, mode) for name in ranks for buffers in ("100", "1", "least")
                                    for mode in SCHEMES[1:]):
            explicit, messages = (samples.median((what, name, buffers, mode)) for what in ("explicit", "messages"))
            if explicit is not None:
                links = int(ranks[name]) * (int(ranks[name]) - 1)
                both = explicit + messages
                yield [name, buffers, mode, f"{explicit / links:.1f}", f"{messages / links:.1f}",
                       f"{100 * explicit / both if both else 0:.1f}"]

    def matrix(self):
        with open(os.path.join(self.options.out, "matrix.csv"), encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        cells = {(row["program"], row["ranks"], f"{row['mode']} {row['slots']}"):
                 "pass" if row["verdict"] == "ok" else f"{row['verdict']} ({row['reason']})" for row in rows}
        columns = dict.fromkeys(column for _, _, column in cells)
        self.write("real-matrix", ["program", "ranks", *columns],
                   ([*key, *(cells.get((*key, column), "") for column in columns)]
                    for key in dict.fromkeys(key[:2] for key in cells)))
        print(f"{len(rows)} runs, {sum(row['verdict'] != 'ok' for row in rows)} not right", file=sys.stderr)


def largest_share(traces):
    """The largest share that a sender came to own, of the texts of btl_velo_trace."""
    return max((int(found[1]) for text in traces for found in re.finditer(r"^p \S+ \S+ \S+ (\d+)", text, re.MULTILINE)),
               default=0)
