"""MEM's figure 12 from simulated runs: what shortage of memory for unexpected messages costs the killer benchmark, with
16 to 128 processes, and beyond the paper with more messages. Whole engines match there (velo_sim matching).

Fixed before the runs: the cases, seeds 1 to 3, whose jitter is 10 % of the CPUs' times, and medians. A run ends when all
messages are received. The CSVs hold ratios to memory for all messages that can be unexpected at once; a run with that
memory that refuses one fails. Needs gnuplot (Debian: gnuplot-nox)."""

import csv
import os
import statistics
import subprocess

from . import pictures
from .openmpi import BUILD, Failed
from .options import parser
from .simulator import find_simulator

RECORD_BYTES, CELL_BYTES, CELL_DATA_BYTES = 64, 256, 248
BIN_BYTES = 8   # at most, of a record: four in use, and the table is enlarged to twice the bins
GRANTED = 128   # messages that a sender is granted at first: the default of unexpected_granted
SEEDS = (1, 2, 3)
JITTER_PERMILLE = 100
BUDGETS = {"none": 0.0, "tenth": 0.1, "half": 0.5, "all": 1.0}
# Name of a CSV: cases of processes, messages of a sender, bytes.
FIGURES = {
    **{f"mem-12-{size >> 10}KiB": [(processes, messages, size) for messages in (3, 5) for processes in (16, 32, 64, 128)]
       for size in (1024, 10240, 102400)},
    "mem-12-beyond": [(processes, messages, size) for size in (8, 1024) for messages in (100, 1000)
                      for processes in (16, 128) if messages * processes <= 20000],
}


def arguments(given):
    options = parser("mem", __doc__)
    options.add_argument("--build", default=BUILD, metavar="DIR", help="where velo_sim is")
    options.add_argument("--out", default=pictures.RESULTS, metavar="DIR", help="where the CSVs go (default: docs/results)")
    options.add_argument("--draw-to", default=pictures.PICTURES, metavar="DIR", help="where the pictures go")
    return options.parse_args(given)


def budgets(processes, messages, size, part):
    """Bytes of records and of data for this part of all messages that can be unexpected.

    For all of them there is more: bins of the records' table, and as much again as the messages take, because senders
    that need nothing any more hold room that was granted to them, up to half of the budget, or GRANTED messages each."""
    senders = processes - 1
    count = messages * senders
    cells = -(-size // CELL_DATA_BYTES) if size > 24 else 0
    records, data = count * RECORD_BYTES, count * cells * CELL_BYTES
    if part < 1:
        return int(records * part), int(data * part)
    granted = senders * GRANTED
    return 2 * (records + count * BIN_BYTES) + granted * RECORD_BYTES, 2 * data + granted * cells * CELL_BYTES


def check_reference(row):
    """The memory that ratios are taken against must not be short itself."""
    if int(row["refused"]) != 0:
        raise Failed(f"with memory for all {row['messages']} messages of {row['processes']} processes {row['refused']} were "
                     "refused, so nothing can be compared with it")


def run(program, processes, messages, size, part, seed):
    """A run's row, a dict by column."""
    records, data = budgets(processes, messages, size, part)
    command = [program, "matching", "--processes", processes, "--messages", messages, "--bytes", size, "--seed", seed,
               "--jitter-permille", JITTER_PERMILLE, "--records", records, "--data", data, "--granted", GRANTED]
    result = subprocess.run([str(word) for word in command], check=False, capture_output=True, text=True)
    if result.returncode != 0:
        raise Failed(f"velo_sim matching failed: {result.stderr.strip()}")
    row = next(csv.DictReader(result.stdout.splitlines()))
    if part == 1:
        check_reference(row)
    return row


def case_row(program, name, processes, messages, size):
    """The case's line of the CSV."""
    rows = {budget: [run(program, processes, messages, size, part, seed) for seed in SEEDS]
            for budget, part in BUDGETS.items()}
    times = {budget: statistics.median(float(row["us_a_message"]) for row in each) for budget, each in rows.items()}
    requests = statistics.median(int(row["requests"]) / int(row["messages"]) for row in rows["none"])
    case = f"{processes} x {messages}" + (f" x {size} B" if name.endswith("beyond") else "")
    return [case, *(f"{times[budget] / times['all']:.2f}" for budget in BUDGETS if budget != "all"),
            f"{times['all']:.3f}", f"{requests:.2f}"]


def main(given):
    options = arguments(given)
    pictures.check_gnuplot()
    program = find_simulator(options.build)
    for name, cases in FIGURES.items():
        table = [["case", *(budget for budget in BUDGETS if budget != "all"), "us a message with all", "requests with none"]]
        table += [case_row(program, name, *case) for case in cases]
        with open(os.path.join(options.out, name + ".csv"), "w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(table)
        pictures.draw(name, options.out, options.draw_to)
        print(name + "\n" + "\n".join("  " + ", ".join(row) for row in table))
