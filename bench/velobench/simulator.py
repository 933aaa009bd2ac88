"""Runs of velo_sim, several at a time and none twice, and what flow control costs in them."""

import concurrent.futures
import csv
import hashlib
import os
import resource
import statistics
import subprocess
import sys
import threading

from .openmpi import ROOT, Failed, output_of

# Those that FC's simulated runs are made of.
FC_SOURCES = ("flowctl", "sim", "sim_device/cluster", "velo")


def options_of(options):
    """As words of a command line, in order of their names."""
    arguments = []
    for name, value in sorted(options.items()):
        if value is None or value is False:
            continue
        arguments.append("--" + name.replace("_", "-"))
        if value is not True:
            arguments.append(str(value))
    return arguments


class Simulator:
    """Runs velo_sim. Arguments of a run are its options as keywords: mode="static", no_piggyback=True.

    What a run prints is a function of the program and its arguments, and is kept in `folder` under a hash of both, so
    that what was interrupted goes on where it was."""

    def __init__(self, program, jobs, folder, command=None, **common):
        """`common`: options of all runs. `command`: of velo_sim, where run() is not of its flow control."""
        self._program = program
        self._command = [command] if command else []
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
        return self._submit(self._only_row, self._command + options_of({**self._common, **options}))

    def rows(self, command, **options):
        """A future of all rows of another command, dicts by column."""
        return self._submit(self._execute, [command, *options_of(options)])

    def _submit(self, execute, arguments):
        key = tuple(arguments)
        if key not in self._runs:
            self._runs[key] = self._executor.submit(execute, arguments)
        return self._runs[key]

    def _only_row(self, arguments):
        row, = self._execute(arguments)
        return row

    def _execute(self, arguments):
        output = self._output(arguments)
        with self._lock:
            self._done += 1
            if sys.stderr.isatty():
                sys.stderr.write(f"\rfigures: {self._done} of {len(self._runs)} runs")
        return list(csv.DictReader(output.splitlines()))

    def _output(self, arguments):
        key = hashlib.sha256("\0".join([self._identity, *arguments]).encode()).hexdigest()
        path = os.path.join(self._folder, key)
        if "--trace" not in arguments and os.path.exists(path):
            with open(path, encoding="ascii") as file:
                return file.read()
        result = subprocess.run([self._program, *arguments], capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise Failed(f"velo_sim {' '.join(arguments)}: {result.stderr.strip()}")
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


def find_simulator(build):
    program = os.path.join(build, "velo_sim")
    if not os.access(program, os.X_OK):
        raise Failed(f"there is no {program}; make -C {build} velo_sim builds it")
    return program


def source_commit(sources):
    """The last commit that touched what a simulator is made of, and whether it was changed since. A machine that
    builds velo need not have git."""
    def git(*words):
        return output_of("git", "-C", ROOT, *words, "--", *sources).strip()
    return (git("log", "-1", "--format=%h") or "an unknown commit") + (" and changes" if git("diff", "HEAD") else "")
