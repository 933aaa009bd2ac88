"""The tables of a paper's figures, as CSV, and a page that lists them."""

import csv
import datetime
import os

from . import pictures
from .openmpi import Failed

_HEAD = """<!-- Written by bench/run figures; not to be edited. -->

# {paper}'s figures, simulated

The tables, as CSV, under their run (`default` or `--full`), its date, and the last commit that touched what was simulated.
Cells of several seeds are the median, and behind it the least and the most. `make -C build pictures` draws them into
`build/pictures/`. {more}
"""
FC_HEAD = _HEAD.format(paper="FC", more="[simulation.md](../simulation.md#the-papers-figures) says where they agree with the paper.")
RAILS_HEAD = _HEAD.format(paper="RAILS", more="[rails.md](rails.md) says where they agree with the paper, and which machine "
                          "each line is. Lines\ncalled *shipped* run the plugin's machines; those made apart have a date and a "
                          "commit of their own.")
RDRP_HEAD = _HEAD.format(paper="RDRP", more="[rdrp.md](rdrp.md) says where they agree with the paper,\nand what was fixed before "
                         "the runs. Throughputs are data taken, in percent of what all nodes could take.")
# Of each paper: the page's name and head.
PAGES = {"fc": ("fc", FC_HEAD), "rails": ("rails-figures", RAILS_HEAD),
         "rdrp": ("rdrp-figures", RDRP_HEAD)}


def text(cell):
    if cell is None:
        return ""
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


def _in_order(name):
    """fc-4-14-hops after fc-4-1-hops, and names without a number last."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in name.split("-")[1:]]


def page(head, rows):
    """A page of tables, by how they were made. `rows`: name, title, run, date, commit of each."""
    groups = {}
    for name, title, *how in rows:
        groups.setdefault(", ".join(how), []).append(f'- <a id="{name}"></a>[{name}]({name}.csv): {title}\n')
    return head + "".join(f"\n{how}:\n\n{''.join(lines)}" for how, lines in groups.items())


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
        page_name, head = PAGES[self._paper]
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
        with open(self._path(page_name, ".md"), "w", encoding="utf-8") as file:
            file.write(page(head, [row[:-1] for row in rows]))
        for name, *_ in self._written:
            pictures.draw(name, self._folder, self._to)
        self._written = []

    def scratch(self, name):
        return self._path(name, ".trace")
