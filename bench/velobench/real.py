"""Runs real ranks, one a node, over velo's software device in every mode of flow control, and makes CSV and SVG of it.

  windows    IBFC figures 2 to 8: latency, and bandwidth over the window, with 100 and with 10 buffers
  npb        IBFC figures 9, 10, tables 1, 2, of the NAS Parallel Benchmarks in --npb DIR
  patterns   2 KiB alltoall and multi-pingpong of many ranks, of which all, half, a quarter, an eighth are active
  cost       dynamic (also in a mailbox of exactly that number of slots), static, hardware with 16 and 58 slots against none,
             where every rank is active
  matrix     IMB in --imb DIR and NPB class S in every mode: exit code, contents, verification, counters"""

import glob
import os
import shlex
import sys
import time

from . import imb, npb, pictures, rows
from .matrix import Runner
from .openmpi import BUILD, PLUGIN, Failed, counters, cpus, read
from .options import folder, number, numbers, parser, words
from .real_figures import BUFFER_SLOTS, Figures, largest_share

PARTS = ("windows", "npb", "patterns", "cost", "matrix")
MODES = ("none", "hardware", "static", "growing", "dynamic")
NPB_BENCHMARKS = ("is.A", "ft.A", "cg.A", "mg.A", "lu.W", "sp.S", "bt.S")
WINDOWS = "1,2,5,10,20,30,40,60,80,100"
# Between two pinned ranks: batches far shorter than a time slice, so that what else runs spoils few of them.
SHORT = ("--batches", "41", "--batch-us", "400", "--warm-us", "5000")
# Counters that a healthy job leaves at 0; the last too where senders hold credits, so that no mailbox is full.
ZERO_COUNTERS = ("on_node_garbage", "on_node_contacts_refused", "velo_rx_malformed", "velo_overflows", "rma_failed",
                 "atu_faults", "engine_malformed")
ZERO_COUNTERS_CREDITED = (*ZERO_COUNTERS, "velo_backpressure")


def arguments(given):
    options = parser("real", __doc__)
    add = options.add_argument
    add("--only", type=words(*PARTS), metavar="LIST",
        help="of these (default: windows,patterns,cost; npb where --npb, matrix where --matrix is given)")
    add("--matrix", action="store_true", help="matrix as well")
    add("--npb", type=folder, metavar="DIR", help="the user's NPB programs, built for this Open MPI")
    add("--imb", type=folder, metavar="DIR", help="the user's IMB programs")
    add("--np", type=numbers(1, "numbers of ranks"), metavar="LIST",
        help="ranks (default: patterns 16,32,64; cost 2,4 and as many as cores; matrix 2,4,8)")
    add("--modes", type=words(*MODES), metavar="LIST",
        help=f"matrix, npb: of {','.join(MODES)} (default: all that apply)")
    add("--slots", type=numbers(1, "slots"), metavar="LIST",
        help="matrix, patterns: slots a process (default: 8,16,64; patterns 8,16,32,64)")
    add("--benchmarks", type=words(), metavar="LIST",
        help=f"npb: NAME.CLASS… (default: {','.join(NPB_BENCHMARKS)}); matrix: programs (default: all)")
    add("--rounds", type=number(1, 99), default=3, metavar="N",
        help="each round runs every mode once, in turn (default: 3)")
    add("--add", action="store_true", help="keep the rounds that are there")
    add("--report", action="store_true", help="run nothing; figures of the rounds that are there")
    add("--foreign", type=float, default=100, metavar="PERCENT",
        help="times of runs do not count in which others took more of one CPU (default: 100)")
    add("--under", type=shlex.split, default=[], metavar="COMMAND",
        help="in front of each run's command, such as a lock")
    add("--timeout", type=number(1, 1000000, "seconds"), default=120, metavar="S", help="of one run (default: 120)")
    add("--plugin", default=PLUGIN, metavar="DIR", help="where mca_btl_velo.so is (default: build/.libs)")
    add("--out", default=os.path.join(BUILD, "real"), metavar="DIR",
        help="for raw figures and logs (default: build/real)")
    add("--results", default=pictures.RESULTS, metavar="DIR", help="for CSV (default: docs/results)")
    add("--pictures", default=pictures.PICTURES, metavar="DIR", help="for SVG (default: build/pictures)")
    options.epilog = "Exit status: 0 when all runs were right, 1 if not, 2 on wrong usage. Needs gnuplot."
    chosen = options.parse_args(given)
    chosen.parts = chosen.only or ["windows", "patterns", "cost", *["npb"] * bool(chosen.npb),
                                   *["matrix"] * chosen.matrix]
    if "npb" in chosen.parts and not (chosen.report or chosen.npb):
        options.error("npb needs --npb DIR")
    if "matrix" in chosen.parts and not (chosen.report or chosen.imb or chosen.npb):
        options.error("matrix needs --imb DIR or --npb DIR")
    return chosen


def mode(name, slots, **more):
    """velo's parameters of a run, by their names without btl_velo_. No slots: as many as velo takes by itself."""
    return {"stats": 1, "flow_control": name, "slots": slots, **more}


def buffers_mode(name, buffers):
    """A mailbox of IBFC's buffers; "least" is the smallest that velo accepts: one packet and one credit slot a peer."""
    least = buffers == "least"
    slots = 1 if least else BUFFER_SLOTS * int(buffers)
    if name == "hardware":
        return mode(name, slots)
    if name == "growing":
        return mode(name, 100 * BUFFER_SLOTS + 2, growing_start=slots, growing_step=4 if least else BUFFER_SLOTS)
    return mode(name, 2, credit_slots=1) if least else mode(name, slots + 2)


def judge(verdict, of, flow_control, ranks):
    """The verdict, and the reason where it is not ok. `of`: counters by rank."""
    names = ZERO_COUNTERS if flow_control in ("none", "again", "hardware") else ZERO_COUNTERS_CREDITED
    reasons = ["exit code"] * (verdict != "ok") + [f"counters of {len(of)} ranks"] * (len(of) != ranks)
    totals = {name: sum(values.get(name, 0) for values in of.values()) for name in names}
    reasons += [f"{name}={total}" for name, total in totals.items() if total]
    return "wrong" if reasons and verdict == "ok" else verdict, " ".join(reasons)


def busy_seconds():
    """Of all CPUs, by all processes, and of what this one has started and has ended."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:]]
    own = os.times()
    return (sum(ticks[:3] + ticks[5:8]) / os.sysconf("SC_CLK_TCK"), own.children_user + own.children_system)


class Real:
    def __init__(self, options):
        self.options = options
        self.runner = Runner(options)
        self.flow = self.runner.mpi.compile("flow")
        self.runs = self.defects = 0

    def log(self, *parts):
        return os.path.join(self.runner.logs, "-".join(map(str, parts)) + ".log")

    def kept(self, part, *columns):
        """A part's raw file, and the rounds to run."""
        kept = rows.Kept(os.path.join(self.runner.out, part + ".csv"), *columns)
        first = kept.begin(self.options.add)
        return kept, range(first, first + self.options.rounds)

    def run(self, flow_control, velo, ranks, log, command, pins_itself=False):
        """One run: verdict, reason, and the CPU time that others took, per cent of one CPU."""
        started, (busy, own) = time.monotonic(), busy_seconds()
        verdict = self.runner.run("one_rank_a_node", ranks, log, command, pins_itself=pins_itself,
                                  mca={"btl_velo_" + name: value for name, value in velo.items()},
                                  under=self.options.under)
        took, (busy_after, own_after) = time.monotonic() - started, busy_seconds()
        foreign = max(0, 100 * ((busy_after - busy) - (own_after - own)) / took)
        verdict, reason = judge(verdict, counters(read(log)), flow_control, ranks)
        self.runs += 1
        if verdict != "ok":
            settings = " ".join(f"{name}={value}" for name, value in velo.items())
            self.defect(f"{verdict} {settings}, {ranks} ranks: {reason}", log)
        return verdict, reason, f"{foreign:.1f}"

    def defect(self, what, log):
        self.defects += 1
        print(f"{what}\n    log: {log}", file=sys.stderr)

    def flow_part(self, part):
        return self.kept(part, "round", "mode", "slots", "foreign", *rows.Row._fields)

    def measure(self, kept, round_, name, slots, ranks, velo, *command, pins_itself=False):
        """One run of bench/flow."""
        log = self.log(os.path.basename(kept.path).removesuffix(".csv"), name, slots, ranks, round_)
        _, _, foreign = self.run(name, velo, ranks, log, [self.flow, "--label", name, *command], pins_itself)
        kept.add([round_, name, slots, foreign, *row] for row in rows.parse(read(log)) if row.label == name)

    def windows(self):
        """A buffer holds one short message, and so does a slot. Credit slots come on top. growing may grow to 256."""
        kept, rounds = self.flow_part("windows")
        for round_, buffers in ((round_, buffers) for round_ in rounds for buffers in (100, 10)):
            first = (["latency", "4,16,64,256,1024,2048"] if buffers == 100 else ["blocking,nonblocking", "32768"])
            schemes = {"hardware": mode("hardware", buffers), "static": mode("static", buffers + 2),
                       "growing": mode("growing", 258, growing_start=buffers), "dynamic": mode("dynamic", buffers + 2),
                       "dynamic8": mode("dynamic", buffers + 2)}
            for scheme, velo in schemes.items():
                for tasks, sizes in (first, ["blocking,nonblocking", "4"]):
                    self.measure(kept, round_, scheme, buffers, 8 if scheme == "dynamic8" else 2, velo, "--tasks",
                                 tasks, "--sizes", sizes, "--windows", WINDOWS, *SHORT, pins_itself=True)

    def patterns(self):
        """The reference comes first and last in a round."""
        kept, rounds = self.flow_part("patterns")
        for ranks, round_ in ((ranks, round_) for ranks in self.options.np or (16, 32, 64) for round_ in rounds):
            runs = [("none", 0, mode("none", 0)),
                    *((name, slots, mode(name, slots)) for slots in self.options.slots or (8, 16, 32, 64)
                      for name in ("static", "dynamic")),
                    ("again", 0, mode("none", 0))]
            for name, slots, velo in runs:
                self.measure(kept, round_, name, slots, ranks, velo, "--tasks", "alltoall,pingpong", "--sizes", "2048",
                             "--active", ",".join(str(ranks // part) for part in (1, 2, 4, 8)), "--batches", "21",
                             "--batch-us", "10000", "--warm-us", "100000")

    def cost(self):
        kept, rounds = self.flow_part("cost")
        for ranks, round_ in ((ranks, round_) for ranks in self.options.np or dict.fromkeys((2, 4, cpus()))
                              for round_ in rounds):
            pins = ranks <= cpus()
            batches = ("--batches", "301", "--batch-us", "500") if pins else ("--batches", "61", "--batch-us", "5000")
            for reference, slots in (("none", 16), ("again", 58)):
                runs = {reference: mode("none", 0), "dynamic": mode("dynamic", 0),
                        "exact": mode("dynamic", slots), "static": mode("static", slots),
                        "hardware": mode("hardware", slots)}
                for name, velo in runs.items():
                    self.measure(kept, round_, name, 0 if name == reference else slots, ranks, velo, "--tasks",
                                 "alltoall,pingpong", "--sizes", "2048", *batches, pins_itself=pins)

    def npb(self):
        kept, rounds = self.kept("npb", "round", "mode", "buffers", "foreign", "benchmark", "ranks", "seconds",
                                 "explicit", "messages", "share_slots", "verdict")
        for program in self.options.benchmarks or NPB_BENCHMARKS:
            path = os.path.join(self.options.npb, program + ".x")
            if not os.access(path, os.X_OK):
                raise Failed(f"--npb: there is no {program}.x")
            # A square number of ranks, as many as there are of the others' or the next.
            ranks = 9 if program.partition(".")[0] in ("sp", "bt") else 8
            for round_, buffers, name in ((round_, buffers, name) for round_ in rounds for buffers in (100, 1, "least")
                                          for name in self.options.modes or MODES[1:]):
                kept.add([[round_, name, buffers, *self.npb_run(path, program, ranks, name, buffers, round_)]])

    def npb_run(self, path, program, ranks, name, buffers, round_):
        log, trace = self.log("npb", program, name, buffers, round_), os.path.join(self.runner.work, "trace")
        velo, traced = buffers_mode(name, buffers), name == "growing" and buffers != 100
        if traced:
            for old in glob.glob(glob.escape(trace) + ".*"):
                os.unlink(old)
            velo |= {"trace": trace, "trace_period": 1000}
        verdict, _, foreign = self.run(name, velo, ranks, log, [path])
        text = read(log)
        if verdict == "ok" and not npb.verified(text):
            verdict = "wrong"
            self.defect("not verified", log)
        totals = [sum(values.get(counter, 0) for values in counters(text).values())
                  for counter in ("credits_tx_packets", "velo_tx_messages")]
        share = largest_share(map(read, glob.glob(glob.escape(trace) + ".*"))) if traced else ""
        return foreign, program, ranks, f"{npb.figure(text, 'Time in seconds'):g}", *totals, share, verdict

    def matrix(self):
        kept, _ = self.kept("matrix", "program", "mode", "slots", "ranks", "verdict", "reason")
        options = self.options
        paths = [os.path.join(options.imb or "", "IMB-" + suite) for suite in ("MPI1", "EXT", "RMA")]
        paths += [os.path.join(options.npb or "", benchmark + ".S.x") for benchmark in npb.BENCHMARKS]
        programs = options.benchmarks or [os.path.basename(path).removesuffix(".x") for path in paths
                                          if os.access(path, os.X_OK)]
        for ranks, name, slots, program in ((ranks, name, slots, program) for ranks in options.np or (2, 4, 8)
                                            for name in options.modes or MODES for slots in options.slots or (8, 16, 64)
                                            for program in programs):
            if program.startswith("IMB-") or npb.allows(program.partition(".")[0], ranks):
                kept.add([[program, name, slots, ranks, *self.matrix_run(program, name, slots, ranks)]])

    def matrix_run(self, program, name, slots, ranks):
        log, is_imb = self.log("matrix", program, name, slots, ranks), program.startswith("IMB-")
        command = ([os.path.join(self.options.imb or "", program), "-npmin", str(ranks), "-iter", "10", "-time", "0.02",
                    "-msglog", "0:16"] if is_imb else [os.path.join(self.options.npb or "", program + ".x")])
        verdict, reason, _ = self.run(name, mode(name, slots), ranks, log, command)
        measured = imb.table_rows(read(log)) if is_imb else []
        wrong = []
        if is_imb:
            wrong += ["no figures"] * (not measured)
            wrong += ["contents"] * any(row[3] not in ("-", "cut", "0.00") for row in measured)
        elif not npb.verified(read(log)):
            wrong = ["verification"]
        if wrong and verdict == "ok":
            verdict = "wrong"
            self.defect(f"wrong {program}: {wrong[0]}", log)
        return verdict, " ".join([*[reason] * bool(reason), *wrong])


def main(given):
    options = arguments(given)
    pictures.check_gnuplot()
    os.makedirs(options.results, exist_ok=True)
    runs = defects = 0
    if not options.report:
        real = Real(options)
        for part in options.parts:
            getattr(real, part)()
        runs, defects = real.runs, real.defects
    for part in options.parts:
        getattr(Figures(options), part)()
    print(f"{runs} runs, {defects} defects", file=sys.stderr)
    return int(defects > 0)
