"""Runs of velo_sim, several at a time and none twice, and the tables and plots that are made of them."""

import concurrent.futures
import csv
import datetime
import hashlib
import os
import resource
import statistics
import subprocess
import sys
import threading


class Simulator:
    """Runs velo_sim. Arguments of a run are its options as keywords: mode="static", no_piggyback=True.

    What a run prints is a function of the program and its arguments, and is kept in `folder` under a hash of both, so
    that what was interrupted goes on where it was."""

    def __init__(self, program, jobs, folder, **common):
        """`common`: options of all runs."""
        self._program = program
        self._common = common
        self._folder = folder
        os.makedirs(folder, exist_ok=True)
        with open(program, "rb") as file:
            self._identity = hashlib.sha256(file.read()).hexdigest()
        self._executor = concurrent.futures.ThreadPoolExecutor(jobs)
        self._runs = {}
        self._lock = threading.Lock()
        self._done = 0

    def run(self, **options):
        """A future of the run's row, a dict by column; the same run once only."""
        arguments = []
        for name, value in sorted({**self._common, **options}.items()):
            if value is None or value is False:
                continue
            arguments.append("--" + name.replace("_", "-"))
            if value is not True:
                arguments.append(str(value))
        key = tuple(arguments)
        if key not in self._runs:
            self._runs[key] = self._executor.submit(self._execute, arguments)
        return self._runs[key]

    def _execute(self, arguments):
        output = self._output(arguments)
        with self._lock:
            self._done += 1
            if sys.stderr.isatty():
                sys.stderr.write(f"\rfigures: {self._done} of {len(self._runs)} runs")
        header, row = csv.reader(output.splitlines())
        return dict(zip(header, row))

    def _output(self, arguments):
        key = hashlib.sha256("\0".join([self._identity, *arguments]).encode()).hexdigest()
        path = os.path.join(self._folder, key)
        if "--trace" not in arguments and os.path.exists(path):
            with open(path, encoding="ascii") as file:
                return file.read()
        result = subprocess.run([self._program, *arguments], capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise RuntimeError(f"velo_sim {' '.join(arguments)}: {result.stderr.strip()}")
        scratch = f"{path}.{os.getpid()}"
        with open(scratch, "w", encoding="ascii") as file:
            file.write(result.stdout)
        os.replace(scratch, path)
        return result.stdout

    def stop(self):
        self._executor.shutdown(cancel_futures=True)

    def wait(self, seconds):
        """Whether all runs end in time. A run that fails raises here."""
        pending = concurrent.futures.wait(self._runs.values(), seconds, concurrent.futures.FIRST_EXCEPTION)
        for run in pending.done:
            run.result()
        return not pending.not_done

    def done(self):
        return sum(run.done() for run in self._runs.values())

    def runs(self):
        return len(self._runs)

    @staticmethod
    def cpu_seconds():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime


class Overhead:
    """Time over mode `none` in per cent, for each of some seeds. `base`: options of those runs that differ."""

    def __init__(self, simulator, seeds, mode, base=None, **options):
        self.times = [simulator.run(seed=seed, mode=mode, **options) for seed in range(1, seeds + 1)]
        for name in ("slots", "stealing", "contact_slots", "control_no_cpu", "control_no_traffic", "cpu_account_ns"):
            options.pop(name, None)
        options.update(base or {})
        self.bases = [simulator.run(seed=seed, mode="none", **options) for seed in range(1, seeds + 1)]

    def times_us(self):
        return [float(run.result()["time_us"]) for run in self.times]

    def bases_us(self):
        return [float(run.result()["time_us"]) for run in self.bases]

    def values(self):
        return [100 * (time / base - 1) for time, base in zip(self.times_us(), self.bases_us())]

    def of_seed(self, index):
        values = self.values()
        return values[index % len(values)]

    def median(self):
        return statistics.median(self.values())

    def spread(self):
        """Median, least, most: the cells of spread_columns()."""
        values = self.values()
        return [statistics.median(values), min(values), max(values)]


class SteadyOverhead:
    """Overhead of 2 * half iterations after a warm-up, and of either half of them. A shorter run tells the halves
    apart: it goes as the longer one does, until it ends. `base`: warm-up and iterations of mode `none`."""

    def __init__(self, simulator, seeds, mode, warmup, half, base, **options):
        base = dict(zip(("warmup", "iterations"), base))
        self._half, self._whole = (Overhead(simulator, seeds, mode, base, warmup=warmup, iterations=iterations,
                                            **options) for iterations in (half, 2 * half))

    def spread(self):
        return self._whole.spread()

    def halves(self):
        """Medians of the first and of the second half."""
        first = self._half.times_us()
        second = [2 * whole - half for whole, half in zip(self._whole.times_us(), first)]
        return [statistics.median(100 * (time / base - 1) for time, base in zip(times, self._whole.bases_us()))
                for times in (first, second)]


def spread_columns(name):
    return [name, name + " min", name + " max"]


def median_time_us(runs):
    return statistics.median(float(run.result()["time_us"]) for run in runs)


def text(cell):
    if cell is None:
        return ""
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


PAGE_HEAD = """<!-- Written by bench/figures; not to be edited. -->

# FC's figures, simulated

[simulation.md](../simulation.md#the-papers-figures) says what they mean and where they agree with the paper.
Each table has its run (`default` or `--full`), the date, and the last commit that touched what was simulated.
If several seeds were run, cells have the median, and the least and the most in brackets.
"""


def source_commit(root):
    """The last commit that touched what the simulator is made of, and whether it was changed since. A machine that
    builds velo need not have git."""
    def git(*words):
        command = ["git", "-C", root, *words, "--", "flowctl", "sim", "sim_device/cluster", "velo"]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        except FileNotFoundError:
            return ""
    return (git("log", "-1", "--format=%h") or "an unknown commit") + (" and changes" if git("diff", "HEAD") else "")


def _in_order(name):
    """fc-4-14-hops after fc-4-1-hops, and names without a number last."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in name.removeprefix("fc-").split("-")]


def _markdown(rows):
    columns = rows[0]
    shown = [i for i, name in enumerate(columns) if not name.endswith((" min", " max"))]

    def cell(row, i):
        if i + 2 < len(columns) and columns[i + 1] == columns[i] + " min" and row[i + 1] != row[i + 2]:
            return f"{row[i]} ({row[i + 1]} to {row[i + 2]})"
        return row[i]

    yield "| " + " | ".join(columns[i] for i in shown) + " |\n" + "|--:" * len(shown) + "|\n"
    for row in rows[1:]:
        yield "| " + " | ".join(cell(row, i) for i in shown) + " |\n"


def _quoted(title):
    """As gnuplot wants it."""
    return "'" + title.replace("'", "''") + "'"


class Results:
    """The folder that figures go to."""

    def __init__(self, folder):
        self._folder = folder
        self._written = []
        os.makedirs(folder, exist_ok=True)

    def _path(self, name, ending):
        return os.path.join(self._folder, name + ending)

    def table(self, name, title, columns, rows):
        self._written.append((name, title))
        with open(self._path(name, ".csv"), "w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([[text(cell) for cell in row] for row in [columns, *rows]])
        print(f"wrote {self._path(name, '.csv')}", flush=True)

    def record(self, run, commit):
        """Notes how the tables since the last call were made, in fc-runs.csv, and makes the page fc.md of all."""
        path = self._path("fc-runs", ".csv")
        noted = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8", newline="") as file:
                noted = {row[0]: row for row in list(csv.reader(file))[1:]}
        today = datetime.date.today().isoformat()
        noted.update({name: [name, title, run, today, commit] for name, title in self._written})
        self._written = []
        rows = [noted[name] for name in sorted(noted, key=_in_order)]
        with open(path, "w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([["table", "title", "run", "date", "commit"], *rows])
        with open(self._path("fc", ".md"), "w", encoding="utf-8") as file:
            file.write(PAGE_HEAD)
            for name, title, *how in rows:
                plot = f", [plot]({name}.svg)" if os.path.exists(self._path(name, ".svg")) else ""
                file.write(f"\n## {name}\n\n{title} ({', '.join(how)}; [CSV]({name}.csv){plot}).\n\n")
                with open(self._path(name, ".csv"), encoding="utf-8", newline="") as table:
                    file.writelines(_markdown(list(csv.reader(table))))

    def scratch(self, name):
        return self._path(name, ".trace")

    def lines(self, name, title, ylabel, columns, rows, xlabel="slots a process"):
        """A table, and a plot with a line for each column after the first; those called "X min" and "X max" are
        the bars of X."""
        self.table(name, f"{title}: {ylabel}", columns, rows)
        plots = []
        shown = [column for column in columns[1:] if not column.endswith((" min", " max"))]
        for color, column in enumerate(shown, 1):
            index = columns.index(column) + 1
            plots.append(f"using 1:{index} with linespoints lt {color} pt 7 ps 0.4 lw 1.5 title {_quoted(column)}")
            if column + " min" in columns:
                bar = f"using 1:{index + 1}:(0):(${index + 2}-${index + 1})"
                plots.append(f"{bar} with vectors nohead lt {color} notitle")
        self._gnuplot(name, title, ylabel, f'set xlabel "{xlabel}"', plots)

    def bars(self, name, title, ylabel, columns, rows, shown):
        """A table, and bars of the columns `shown`, a group for each row."""
        self.table(name, f"{title}: {ylabel}", columns, rows)
        plots = [f"using {columns.index(column) + 1}:xtic(1) title {_quoted(column)}" for column in shown]
        setting = "set style data histogram; set style fill solid 0.8; set xtics rotate by -40"
        self._gnuplot(name, title, ylabel, setting, plots)

    def _gnuplot(self, name, title, ylabel, setting, plots):
        data = self._path(name, ".csv")
        script = f"""
set terminal svg size 760,440 font "sans-serif,13" background rgb "white"
set output "{self._path(name, '.svg')}"
set datafile separator ","
set title "{title}"
set ylabel "{ylabel}"
set key outside right top
set grid ytics lc rgb "#dddddd"
set yrange [*<0:*]
{setting}
plot {', '.join(f'"{data}" skip 1 {plot}' for plot in plots)}
"""
        subprocess.run(["gnuplot"], input=script, text=True, check=True)
