"""MEM's figure 12 from simulated runs: what shortage of memory for unexpected messages costs the killer benchmark, with
16 to 128 processes, and beyond the paper with more messages. Whole engines match there (velo_sim matching).

Each case runs with three seeds, whose jitter is 10 % of the CPUs' times; figures are medians. The CSVs hold ratios to
memory for all messages. Needs gnuplot (Debian: gnuplot-nox)."""

import csv
import os
import statistics
import subprocess

from . import pictures
from .openmpi import BUILD, Failed
from .options import parser
from .simulator import find_simulator

RECORD_BYTES, CELL_BYTES, CELL_DATA_BYTES = 64, 256, 248
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


def run(program, processes, messages, size, part, seed):
    """A run's row, a dict by column."""
    count = messages * (processes - 1)
    cells = -(-size // CELL_DATA_BYTES) if size > 24 else 0
    # Beside the records, bins of their table; all means that nothing is ever short.
    spare = 4096 + count * 8 if part == 1.0 else 0
    command = [program, "matching", "--processes", processes, "--messages", messages, "--bytes", size, "--seed", seed,
               "--jitter-permille", JITTER_PERMILLE, "--records", int(count * RECORD_BYTES * part) + spare,
               "--data", int(count * cells * CELL_BYTES * part)]
    result = subprocess.run([str(word) for word in command], check=False, capture_output=True, text=True)
    if result.returncode != 0:
        raise Failed(f"velo_sim matching failed: {result.stderr.strip()}")
    return next(csv.DictReader(result.stdout.splitlines()))


def main(given):
    options = arguments(given)
    pictures.check_gnuplot()
    program = find_simulator(options.build)
    for name, cases in FIGURES.items():
        table = [["case", *(budget for budget in BUDGETS if budget != "all"), "us a message with all", "requests with none"]]
        for processes, messages, size in cases:
            rows = {budget: [run(program, processes, messages, size, part, seed) for seed in SEEDS]
                    for budget, part in BUDGETS.items()}
            times = {budget: statistics.median(float(row["us_a_message"]) for row in each)
                     for budget, each in rows.items()}
            requests = statistics.median(int(row["requests"]) / int(row["messages"]) for row in rows["none"])
            case = f"{processes} x {messages}" + (f" x {size} B" if name.endswith("beyond") else "")
            table.append([case, *(f"{times[budget] / times['all']:.2f}" for budget in BUDGETS if budget != "all"),
                          f"{times['all']:.3f}", f"{requests:.2f}"])
        with open(os.path.join(options.out, name + ".csv"), "w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(table)
        pictures.draw(name, options.out, options.draw_to)
        print(name + "\n" + "\n".join("  " + ", ".join(row) for row in table))
