"""Figures in docs/results are what their commands make today: a row of each is made again, and compared.

The whole of it takes less than a minute of CPU. A CSV without an entry in fresh_table.py fails."""

import glob
import os
import tempfile
import unittest

import fresh_table
from velobench import fc_results, mem, pictures, rdrp_figures
from velobench.openmpi import BUILD, Failed
from velobench.simulator import Simulator, find_simulator, options_of

RESULTS = pictures.RESULTS
COMMON = {"fc": {"nic_queue": 0}, "rails": {"command": "rails"}, "rdrp": {"command": "saturation"}}


class Unknown(float):
    """In place of what was not run. Nothing that is compared may come of it: it is equal to nothing."""

    def __new__(cls):
        return super().__new__(cls, "nan")

    def __int__(self):
        return 1

    def split(self):
        return [self] * 40


class Later:
    """A run that is made when its result is asked for, and only if some row needs it."""

    def __init__(self, make):
        self._make = make

    def result(self):
        return self._make()


class Part:
    """A Simulator that makes only runs that are wanted."""

    class Nothing(dict):
        def __missing__(self, _):
            return Unknown()

    def __init__(self, simulator, wants):
        self._simulator, self._wants = simulator, wants
        self.made = 0

    def run(self, **options):
        if not self._wants(options):
            return Later(self.Nothing)
        self.made += 1
        return self._simulator.run(**options)

    def rows(self, command, **options):
        self.made += 1
        return self._simulator.rows(command, **options)


class Tables:
    """Results that are kept in memory, as they would stand in CSVs."""

    def __init__(self):
        self.of = {}

    def table(self, name, title, columns, rows, picture=""):
        self.of[name] = [[fc_results.text(cell) for cell in row] for row in [columns, *rows]]

    @staticmethod
    def wanted(series):
        return series

    def lines(self, name, title, ylabel, columns, rows):
        self.table(name, title, columns, rows)

    bars = lines


def row_of(table, first):
    row, = [row for row in table[1:] if row[0] == first]
    return dict(zip(table[0], row))


def committed(name):
    return pictures.read_csv(os.path.join(RESULTS, name + ".csv"))


def made_again(entry, simulators, name):
    """The tables of the entry's maker, of which its row is whole."""
    part, tables = Part(simulators[entry.paper], entry.wants), Tables()
    if entry.paper == "rdrp":
        figure = entry.maker(rdrp_figures.Setting(part, tables, entry.router, False, rdrp_figures.SEEDS))
    else:
        figure = entry.maker(part, tables, False)
    for _ in figure:
        pass
    if part.made == 0:
        raise Failed(f"{name}: no run of its maker is wanted")
    return tables.of[name]


def differences(table, again, row, columns):
    """Cells that are not what was made again."""
    old, new = row_of(table, row), row_of(again, row)
    if columns is None and list(old) != list(new):
        return [f"columns {list(old)}, and now {list(new)}"]
    return [f"{column}: {old.get(column)}, and now {new[column]}" for column in columns or new
            if old.get(column) != new[column]]


class Fresh(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = find_simulator(BUILD)
        cls.folder = tempfile.TemporaryDirectory()
        cls.simulators = {paper: Simulator(cls.program, len(os.sched_getaffinity(0)), cls.folder.name, **common)
                          for paper, common in COMMON.items()}

    @classmethod
    def tearDownClass(cls):
        for simulator in cls.simulators.values():
            simulator.stop()
        cls.folder.cleanup()

    def test_each_figure_is_made_again_or_says_why_not(self):
        names = {os.path.basename(path).removesuffix(".csv") for path in glob.glob(os.path.join(RESULTS, "*.csv"))}
        known = {*fresh_table.FRESH, *fresh_table.LONG, *fresh_table.OLDER, *fresh_table.RUNS}
        real = {name for name in names if name.startswith(tuple(fresh_table.REAL))}
        self.assertEqual(sorted(names - known - real), [], "CSVs without an entry in tests/bench/fresh_table.py")
        self.assertEqual(sorted(known - names), [], "entries of fresh_table.py without a CSV")

    def test_rows_are_what_their_commands_make(self):
        for name, entry in fresh_table.FRESH.items():
            with self.subTest(name):
                if isinstance(entry, fresh_table.Case):
                    again = mem.case_row(self.program, name, *entry.case)
                    table = committed(name)
                    self.assertEqual(list(row_of(table, again[0]).values()), again, "the CSV is stale: bench/run mem")
                    continue
                again = made_again(entry, self.simulators, name)
                self.assertEqual(differences(committed(name), again, entry.row, entry.columns), [],
                                 f"{name}.csv is stale at '{entry.row}': bench/run figures makes it again")

    def test_long_runs_begin_as_they_did(self):
        """The first entries of a series follow from the first of its packet times."""
        for router in rdrp_figures.ROUTERS:
            table = committed(f"rdrp-5-5256-{router}-series")
            options = {**rdrp_figures.LENGTH, **rdrp_figures.ROUTERS[router]}
            options["packets"] = 3 * options["iteration"]
            row = self.simulators["rdrp"].run(topology="dragonfly:6,12,6", routing="par", method="big", seed=1,
                                              slow="1%", slowdown=8, **options).result()
            again = [f"{100 * float(cell):.2f}" for cell in row["series"].split()]
            self.assertEqual([row_of(table, at)["big, 8x"] for at in ("250", "500", "750")], again, router)

    def test_tables_of_long_runs_agree_with_their_series(self):
        for router in rdrp_figures.ROUTERS:
            series = committed(f"rdrp-5-5256-{router}-series")
            for figure, row, column, other in (("1", "1", "2x", "big, 2x"), ("1", "1", "8x", "big, 8x"),
                                               ("4", "1", "big, 8x", "big, 8x"), ("4", "1", "fecn, 8x", "fecn, 8x"),
                                               ("5", "30", "2x", "RDRP, 2x"), ("5", "30", "8x", "RDRP, 8x")):
                values = [float(line[series[0].index(other)]) for line in series[1:]]
                last = values[len(values) - len(values) // 3:]
                name = f"rdrp-{figure}-5256-{router}"
                self.assertAlmostEqual(float(row_of(committed(name), row)[column]), sum(last) / len(last), delta=0.06,
                                       msg=name)
                self.assertAlmostEqual(float(row_of(committed(name + "-trough"), row)[column]), min(values[1:]),
                                       delta=0.06, msg=name)

    def test_older_tables_say_when_and_of_what_they_were_made(self):
        noted = {row[0]: row for runs in fresh_table.RUNS for row in committed(runs)[1:]}
        for name, (date, commit) in fresh_table.OLDER.items():
            self.assertEqual(noted[name][3:5], [date, commit], f"{name} was made again: give it an entry in FRESH")

    def test_a_changed_cell_is_found(self):
        table = [["load", "a", "b"], ["0.05", "1", "2"], ["0.10", "3", "4"]]
        again = [["load", "a", "b"], ["0.05", "1", "2.5"], ["0.10", "", "nan"]]
        self.assertEqual(differences(table, again, "0.05", ["a"]), [])
        self.assertEqual(differences(table, again, "0.05", None), ["b: 2, and now 2.5"])
        self.assertEqual(len(differences(table, again, "0.10", None)), 2)

    def test_memory_for_all_that_refuses_is_no_reference(self):
        row = {"refused": "0", "messages": "15000", "processes": "16"}
        mem.check_reference(row)
        with self.assertRaisesRegex(Failed, "6523 were refused"):
            mem.check_reference({**row, "refused": "6523"})


if __name__ == "__main__":
    unittest.main()
