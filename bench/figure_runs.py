"""Runs of velo_sim, several at a time and none twice, and the tables and plots that are made of them."""

import concurrent.futures
import csv
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

    def runs(self):
        return len(self._runs)

    @staticmethod
    def cpu_seconds():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime


class Overhead:
    """Time over mode `none` in per cent, for each of some seeds."""

    def __init__(self, simulator, seeds, mode, **options):
        self.times = [simulator.run(seed=seed, mode=mode, **options) for seed in range(1, seeds + 1)]
        for name in ("slots", "stealing", "contact_slots", "control_no_cpu", "control_no_traffic", "cpu_account_ns"):
            options.pop(name, None)
        self.bases = [simulator.run(seed=seed, mode="none", **options) for seed in range(1, seeds + 1)]

    def values(self):
        return [100 * (float(time.result()["time_us"]) / float(base.result()["time_us"]) - 1)
                for time, base in zip(self.times, self.bases)]

    def of_seed(self, index):
        values = self.values()
        return values[index % len(values)]

    def median(self):
        return statistics.median(self.values())

    def spread(self):
        """Median, least, most: the cells of spread_columns()."""
        values = self.values()
        return [statistics.median(values), min(values), max(values)]


def spread_columns(name):
    return [name, name + " min", name + " max"]


def median_time_us(runs):
    return statistics.median(float(run.result()["time_us"]) for run in runs)


def text(cell):
    if cell is None:
        return ""
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


class Results:
    """The folder that figures go to."""

    def __init__(self, folder):
        self._folder = folder
        os.makedirs(folder, exist_ok=True)

    def _path(self, name, ending):
        return os.path.join(self._folder, name + ending)

    def table(self, name, columns, rows):
        with open(self._path(name, ".csv"), "w", encoding="utf-8") as file:
            for row in [columns, *rows]:
                file.write(",".join(text(cell) for cell in row) + "\n")
        print(f"wrote {self._path(name, '.csv')}", flush=True)

    def scratch(self, name):
        return self._path(name, ".trace")

    def lines(self, name, title, ylabel, columns, rows, xlabel="slots a process"):
        """A table, and a plot with a line for each column after the first; those called "X min" and "X max" are
        the bars of X."""
        self.table(name, columns, rows)
        plots = []
        shown = [column for column in columns[1:] if not column.endswith((" min", " max"))]
        for color, column in enumerate(shown, 1):
            index = columns.index(column) + 1
            plots.append(f"using 1:{index} with linespoints lt {color} pt 7 ps 0.4 lw 1.5 title '{column}'")
            if column + " min" in columns:
                bar = f"using 1:{index + 1}:(0):(${index + 2}-${index + 1})"
                plots.append(f"{bar} with vectors nohead lt {color} notitle")
        self._gnuplot(name, title, ylabel, f'set xlabel "{xlabel}"', plots)

    def bars(self, name, title, ylabel, columns, rows, shown):
        """A table, and bars of the columns `shown`, a group for each row."""
        self.table(name, columns, rows)
        plots = [f"using {columns.index(column) + 1}:xtic(1) title '{column}'" for column in shown]
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
