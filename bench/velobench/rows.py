"""The one CSV schema of the probes, label,where,measure,size,value (bench/measuring.h and docs/benchmarks.md say what
the columns mean), and files that keep such rows round by round."""

import csv
import os
import typing


class Row(typing.NamedTuple):
    label: str
    where: str
    measure: str
    size: int
    value: float


def parse(text):
    """The rows of a probe's output. Other lines, such as mpirun's messages, are left out."""
    rows = []
    for line in text.splitlines():
        words = line.split(",")
        try:
            if len(words) == len(Row._fields):
                rows.append(Row(*words[:3], int(words[3]), float(words[4])))
        except ValueError:
            pass
    return rows


class Kept:
    """A CSV file with a header, to which rounds add rows."""

    def __init__(self, path, *columns):
        self.path = path
        self._columns = columns

    def begin(self, add=False):
        """Empties the file, unless rows are added to it. Returns the number of the first round to run."""
        if add and os.path.exists(self.path):
            return 1 + max((int(float(row["round"])) for row in self.rows()), default=0)
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(",".join(self._columns) + "\n")
        return 1

    def add(self, rows):
        with open(self.path, "a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)

    def rows(self):
        """Each as a dict by column."""
        with open(self.path, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
