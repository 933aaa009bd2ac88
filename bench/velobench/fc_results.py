"""The tables of a paper's figures, as CSV, and a page of all."""

import csv
import datetime
import os

from . import pictures, tables
from .openmpi import Failed

PAGE_HEAD = """<!-- Written by bench/run figures; not to be edited. -->

# FC's figures, simulated

[simulation.md](../simulation.md#the-papers-figures) says what they mean and where they agree with the paper.
Each table has its run (`default` or `--full`), the date, and the last commit that touched what was simulated.
Cells of several seeds have the median, and the least and the most in brackets.
`make -C build pictures` draws them into `build/pictures/`.
"""


RAILS_HEAD = """<!-- Written by bench/run figures; not to be edited. -->

# RAILS's figures, simulated

[rails.md](rails.md) says where they agree with the paper, and which machine each line is;
[simulation.md](../simulation.md#rails) has the model. Lines called *shipped* run the plugin's machines.
Each table has its run (`default` or `--full`), the date, and the last commit that touched what was simulated.
Lines that were made apart have a date and a commit of their own.
`make -C build pictures` draws them into `build/pictures/`.
"""
RDRP_HEAD = """<!-- Written by bench/run figures; not to be edited. -->

# RDRP's figures, simulated

[rdrp.md](rdrp.md) says where these figures agree with the paper, and on what they depend;
[simulation.md](../simulation.md#a-network-in-which-saturation-can-happen) has the model. Tables are throughputs: data
taken, in percent of what all nodes could take. Each has its run and seeds, the date, and the last commit that touched
what was simulated. Cells of several seeds have the median, and the least and the most in brackets.
`make -C build pictures` draws them into `build/pictures/`.

Fixed before the runs, in `bench/velobench/rdrp_figures.py`:

- Machines: `dragonfly:6,12,6` (5,256 nodes, the paper's) with `--full`, and `dragonfly:3,6,3` (342 nodes).
- Random pairs, each node sends all to its partner, offered load 1. Slow nodes are drawn by the seed; seeds 1 to 3, or
  as many of them as a table's run names.
- 10,000 packet times. *Steady*: mean of the last third. *Trough*: the least of 40 entries but the first. *Stopped*: where the
  paper's rule ends, an entry that differs by less than 5 % from the one before; it does not say how long an entry is.
- Buffers of 256 flits a virtual channel, and of 256 at the node; 2.4 passes a packet time; NIC queues of 4 packets.
- Detours are decided at each router of the source group, until one is taken: the packet stays minimal if and only
  if q_min <= bias * q_detour + threshold, for one random group.
- Router *literal*: bias 2, threshold 30, one channel a class (4 of local links, 2 of global ones). Router *ready*:
  bias 1, threshold 0, four channels a class. The paper gives the former's numbers, and no number of channels.
- FECN: marked by the fill of the channel that the packet goes to, at every output, those to nodes included.
"""
# Of each paper: the page's name and head.
PAGES = {"fc": ("fc", PAGE_HEAD), "rails": ("rails-figures", RAILS_HEAD),
         "rdrp": ("rdrp-figures", RDRP_HEAD)}


def text(cell):
    if cell is None:
        return ""
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


def _in_order(name):
    """fc-4-14-hops after fc-4-1-hops, and names without a number last."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in name.split("-")[1:]]


def _markdown(rows):
    columns = rows[0]
    shown = [i for i, name in enumerate(columns) if not name.endswith((" min", " max"))]

    def cell(row, i):
        if i + 2 < len(columns) and columns[i + 1] == columns[i] + " min" and row[i + 1] != row[i + 2]:
            return f"{row[i]} ({row[i + 1]} to {row[i + 2]})"
        return row[i]

    return tables.table([columns[i] for i in shown], "r" * len(shown),
                        [[cell(row, i) for i in shown] for row in rows[1:]])


def merged(name, old, made):
    """The old table with the columns that were made: in place of those of their names, or behind all."""
    if [row[0] for row in old] != [row[0] for row in made]:
        raise Failed(f"{name}: the CSV has other rows than its maker; make all of its lines again")
    columns = dict.fromkeys([*old[0], *made[0]])
    both = [{**dict(zip(old[0], before)), **dict(zip(made[0], now))} for before, now in zip(old, made)]
    return [[row[column] for column in columns] for row in both]


class Results:
    """The folder that the tables of a paper go to, and the one of their pictures.

    `only`: a word in the names of lines that are made; the other columns of a CSV stay as they are."""

    def __init__(self, folder, to, paper="fc", only=""):
        self._folder, self._to, self._paper, self._only = folder, to, paper, only
        self._written = []
        os.makedirs(folder, exist_ok=True)

    def _path(self, name, ending):
        return os.path.join(self._folder, name + ending)

    def wanted(self, series):
        """Of lines by name, those that are made."""
        return {name: line for name, line in series.items() if self._only in name}

    def table(self, name, title, columns, rows, picture=""):
        self._written.append((name, title, picture))
        made = [[text(cell) for cell in row] for row in [columns, *rows]]
        if self._only:
            made = merged(name, pictures.read_csv(self._path(name, ".csv")), made)
        with open(self._path(name, ".csv"), "w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(made)
        print(f"wrote {self._path(name, '.csv')}", flush=True)

    def lines(self, name, title, ylabel, columns, rows):
        """A table, and a picture with a line for each column after the first."""
        self.table(name, f"{title}: {ylabel}", columns, rows, "lines")

    def bars(self, name, title, ylabel, columns, rows):
        """A table, and a picture with bars of each row's static and dynamic."""
        self.table(name, f"{title}: {ylabel}", columns, rows, "bars")

    def record(self, run, commit):
        """Notes how the tables since the last call were made, in fc-runs.csv or its like, makes the page of
        all, and draws the pictures."""
        path = self._path(f"{self._paper}-runs", ".csv")
        page, head = PAGES[self._paper]
        noted = {row[0]: row for row in pictures.read_csv(path)[1:]} if os.path.exists(path) else {}
        today = datetime.date.today().isoformat()
        for name, title, picture in self._written:
            how = [run, today, commit]
            if self._only:
                how = [*noted[name][2:4], f"{noted[name][4].split(';')[0]}; '{self._only}' lines {today}, {commit}"]
            noted[name] = [name, title, *how, picture]
        rows = [noted[name] for name in sorted(noted, key=_in_order)]
        with open(path, "w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(
                [["table", "title", "run", "date", "commit", "picture"], *rows])
        with open(self._path(page, ".md"), "w", encoding="utf-8") as file:
            file.write(head)
            for name, title, *how, _ in rows:
                file.write(f"\n## {name}\n\n{title} ({', '.join(how)}; [CSV]({name}.csv)).\n\n")
                file.write(_markdown(pictures.read_csv(self._path(name, ".csv"))))
        for name, *_ in self._written:
            pictures.draw(name, self._folder, self._to)
        self._written = []

    def scratch(self, name):
        return self._path(name, ".trace")
