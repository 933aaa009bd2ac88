"""The Open MPI that jobs run over: its programs, the words that differ between its series, probes compiled for it, and
one job with a time limit."""

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys

from . import rows
from .options import folder, number

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
BUILD = os.path.join(ROOT, "build")
PLUGIN = os.path.join(BUILD, ".libs")
PLUGIN_FILE = "mca_btl_velo.so"
MTL_FILE = "mca_mtl_velo.so"
PROBES = os.path.join(BUILD, "bench")
HEADERS = ("arguments.h", "measuring.h", "ranks.h", "../velo/base/read_number.h")


class Failed(Exception):
    """Ends a measurement; its text is one sentence for the user."""


def configured(name):
    """A program that the build was configured for, by its name in the Makefile; None without a build."""
    try:
        with open(os.path.join(BUILD, "Makefile"), encoding="utf-8") as makefile:
            found = re.search(rf"^{name} = (\S+)$", makefile.read(), re.MULTILINE)
    except OSError:
        return None
    return found and shutil.which(found[1])


def output_of(*command):
    """The output of a command; "" where there is no such command."""
    try:
        return subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, errors="replace").stdout
    except OSError:
        return ""


def found(pattern, text):
    """The first group of the pattern's first match; "" without one."""
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else ""


class OpenMpi:
    def __init__(self):
        self.mpirun = configured("MPIRUN") or "mpirun"
        self.mpicxx = configured("MPICXX") or "mpicxx"
        for program in (self.mpirun, self.mpicxx):
            if shutil.which(program) is None:
                raise Failed(f"there is no {program}; run tools/install-deps")
        self.series = found(r"\(Open MPI\) (\d+\.\d+)", output_of(self.mpirun, "--version"))
        # The transport through shared memory.
        self.sm = "vader" if self.is_4() else "sm"
        if not self.is_4():
            # PMIx searches the directory of velo as well, and complains of each plugin there that is not its own.
            os.environ["PMIX_MCA_mca_base_component_show_load_errors"] = "none"

    def is_4(self):
        return self.series.startswith("4.")

    def path(self, directory):
        """The value of mca_base_component_path that makes jobs find the plugin in `directory`. mpirun of 4.1 searches
        it for its own plugins, and needs SYSTEM_DEFAULT in it; that of 5.0 complains of the word."""
        return directory + ":SYSTEM_DEFAULT" * self.is_4()

    def info(self, *arguments):
        """The output of the ompi_info that belongs to mpirun."""
        return output_of(os.path.join(os.path.dirname(self.mpirun), "ompi_info"), *arguments)

    def command(self, ranks, btl=None, plugin=None, bind="none", yields=False, pml="ob1", mca=None):
        """mpirun and its options. `plugin`: the directory of velo; `mca`: further parameters by name."""
        words = [self.mpirun, "-np", str(ranks), "--oversubscribe", "--bind-to", bind]
        if os.geteuid() == 0:
            words.append("--allow-run-as-root")
        parameters = {"mpi_yield_when_idle": int(yields), "pml": pml}
        if btl:
            parameters["btl"] = btl + ",self" * (btl != "self")
        if pml == "cm":
            parameters["mtl"] = "velo"
        if plugin:
            parameters["mca_base_component_path"] = self.path(plugin)
        for name, value in {**parameters, **(mca or {})}.items():
            words += ["--mca", name, str(value)]
        return words

    def has_ucx(self):
        return "mca:pml:ucx:" in self.info("--parsable")

    def ucx_command(self, ranks, yields=False):
        """The same for pml/ucx over shared memory."""
        mca = {"opal_common_ucx_tls": "any", "opal_common_ucx_devices": "any"}
        return [*self.command(ranks, pml="ucx", yields=yields, mca=mca), "-x", "UCX_TLS=posix,cma,self"]

    def compile(self, probe):
        return compile_probe(probe, self.mpicxx)


def compile_probe(probe, compiler, suffix=""):
    """bench/PROBE.cc, compiled where it is not yet or is older than its source. Returns the program. Each probe is a program
    of its own: all of them together take ten times as long to compile as the one that ./demo needs."""
    program = os.path.join(PROBES, probe + suffix)
    source = os.path.join(ROOT, "bench", probe + ".cc")
    sources = [source, *(os.path.join(ROOT, "bench", header) for header in HEADERS)]
    if not os.path.exists(program) or any(os.path.getmtime(program) < os.path.getmtime(name) for name in sources):
        os.makedirs(PROBES, exist_ok=True)
        command = [compiler, "-std=c++20", "-O2", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", "-pthread",
                   "-I", ROOT, "-o", program, source, *(["-lfabric"] if probe == "wires" else [])]
        if subprocess.run(command, check=False).returncode != 0:
            raise Failed(f"bench/{probe}.cc does not compile with {compiler}")
    return program


def of_jobs(add, name, rounds, timeout=None):
    """The options that all commands have which repeat jobs of a probe; `add` is a parser's add_argument."""
    add("--rounds", type=number(1, 999), default=rounds, metavar="N", help=f"default: {rounds}")
    add("--plugin", type=folder, default=PLUGIN, metavar="DIR", help="where velo's plugins are (default: build/.libs)")
    if timeout:
        add("--timeout", type=number(1, 1000000, "seconds"), default=timeout, metavar="S",
            help=f"of one job (default: {timeout})")
    add("--out", default=os.path.join(BUILD, name), metavar="DIR", help=f"for rows and logs (default: build/{name})")


def check_plugin(directory):
    if not os.path.isfile(os.path.join(directory, PLUGIN_FILE)):
        raise Failed(f"there is no {PLUGIN_FILE} in {directory}; run tools/build")
    return directory


def copy_plugin(directory, to):
    """A copy, so that a build in the meantime does not change what runs."""
    check_plugin(directory)
    shutil.rmtree(to, ignore_errors=True)
    os.makedirs(to)
    for name in (PLUGIN_FILE, MTL_FILE):
        if os.path.exists(os.path.join(directory, name)):
            shutil.copy2(os.path.join(directory, name), to)
    return os.path.realpath(to)


def run_job(command, log, seconds_max, output=None, under=(), folder=None, environment=None):
    """Runs a job to its end, or for `seconds_max`. Its messages go to the file `log`, behind the command; what it
    prints goes to the file `output`, or to the log as well. `under`: words in front of the time limit, such as a lock.
    Returns the exit status; timed_out() tells one of the limit."""
    words = [*under, "timeout", "--kill-after=10", str(seconds_max), *command]
    with open(log, "wb") as errors, open(output or os.devnull, "wb") as printed:
        errors.write(("+ " + shlex.join(map(str, command)) + "\n").encode())
        errors.flush()
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=printed if output else errors, stderr=errors,
                              cwd=folder, env=environment) as job:
            try:
                return job.wait()
            except BaseException:
                job.terminate()
                raise


class Jobs:
    """Jobs of one probe. Their rows go to rows.csv in the folder of --out, behind the round and the columns `more`; their
    logs beside it."""

    def __init__(self, mpi, probe, out, timeout, *more):
        self.failed = False
        self._probe, self._timeout = probe, timeout
        self._program = mpi.compile(probe)
        self.out = os.path.realpath(out)
        os.makedirs(self.out, exist_ok=True)
        self._kept = rows.Kept(os.path.join(self.out, "rows.csv"), "round", *more, *rows.Row._fields)
        self._kept.begin()

    def run(self, round_, command, arguments, name, *more):
        """Runs `command`, of mpirun, with the probe and its arguments. `name`: of the job among those of a round. Returns the
        rows; says so if the job does not end well."""
        log = os.path.join(self.out, f"{name}-{round_}".replace("/", "-"))
        command = [*command, self._program, *map(str, arguments)]
        if run_job(command, log + ".log", self._timeout, log + ".csv") != 0:
            self.failed = True
            print(f"{self._probe}: the job {name} failed, or took more than {self._timeout} s: {log}.log", file=sys.stderr)
        measured = rows.parse(read(log + ".csv"))
        self._kept.add([round_, *more, *row] for row in measured)
        return measured

    def finish(self, table):
        """Writes the table, and prints it. Returns the exit status."""
        with open(os.path.join(self.out, "table.md"), "w", encoding="utf-8") as file:
            file.write(table + "\n")
        print(table)
        return int(self.failed)


def timed_out(status):
    return status in (124, 137, -9)


def read(path):
    """A log's text. mpirun of 5.0 prints NUL bytes."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().replace("\0", "")


def tail(path, lines):
    return "\n".join(read(path).splitlines()[-lines:])


def counters(log):
    """velo's counters in a log, by rank: with btl_velo_stats each rank prints a line at its end."""
    lines = re.findall(r"velo: rank (\d+) counters:(.*)", log)
    return {int(rank): collect(text) for rank, text in lines}


def collect(text):
    pairs = (word.split("=", 1) for word in text.split() if "=" in word)
    return {name: int(value) for name, value in pairs if value.isdigit()}


def machine(mpi):
    """The CPUs, the kernel and the Open MPI, as a report names them."""
    kernel, cpu = os.uname(), found(r"^model name\s*: (.*)", read("/proc/cpuinfo")) or "unknown"
    return (f"{cpus()} x {cpu}", f"{kernel.sysname} {kernel.release}", found(r"^Open MPI v(.*)", mpi.info("--version")))


@functools.cache
def cpus():
    """Of this process, as nproc counts them."""
    return len(os.sched_getaffinity(0))
