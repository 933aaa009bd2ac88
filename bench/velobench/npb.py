"""Runs a user's NAS Parallel Benchmarks over velo's layouts, vader and tcp.

Runs the NPB-MPI programs in --bin, named NAME.CLASS.x, over velo's three layouts, vader and tcp. NPB verifies its
results itself; a run over velo that is not verified, crashes or hangs is a defect."""

import os
import re

from .matrix import Matrix, add_options, class_means, parse
from .openmpi import Failed, read
from .options import parser, words

BENCHMARKS = ("is", "ft", "cg", "mg", "lu", "sp", "bt", "ep")
CLASSES = ("S", "W", "A")
# The geometric mean of class A on node, relative to vader's.
MUST, AIM = 1.00, 1.02


def verified(log):
    """Some say "Verification = SUCCESSFUL", some "VERIFICATION SUCCESSFUL" above it; neither says so when it is not."""
    return bool(re.search(r"Verification *= *SUCCESSFUL", log)) and not re.search("unsuccessful", log, re.IGNORECASE)


def allows(benchmark, ranks):
    """Some want a power of two."""
    return benchmark not in ("is", "ft", "cg", "mg") or ranks & (ranks - 1) == 0


def figure(log, name):
    """The last figure of this name; 0 where there is none."""
    values = re.findall(rf"^ *{re.escape(name)} *= *([0-9.]+)", log, re.MULTILINE)
    return float(values[-1]) if values else 0.0


def verdicts(means):
    lines = []
    for ranks in (2, 4):
        mean = means.get(("class A", "one_node", ranks))
        if mean is not None:
            met = "aim" if round(mean, 3) >= AIM else "must" if round(mean, 3) >= MUST else "not met"
            lines.append(f"class A on node, {ranks} ranks: {mean:.3f}; must >= {MUST:.2f}, aim >= {AIM:.2f}: {met}")
    return lines


def run_program(matrix, program, ranks):
    for round_, configuration in matrix.turns(ranks):
        log = matrix.log(program, configuration, ranks, round_)
        verdict = matrix.runner.run(configuration, ranks, log, [os.path.join(matrix.options.bin, program + ".x")])
        text = read(log)
        if verdict == "ok" and not verified(text):
            verdict = "wrong"
        matrix.csv.add([[program, 0, configuration, ranks, round_, figure(text, "Mop/s total"), verdict]])
        matrix.report(program, configuration, ranks, verdict, log)


def main(given):
    options = parser("npb", __doc__)
    options.add_argument("--only", type=words(), default=BENCHMARKS, metavar="LIST",
                         help=f"benchmarks (default: those in --bin of {','.join(BENCHMARKS)})")
    options.add_argument("--classes", type=words(), default=CLASSES, metavar="LIST", help="default: S,W,A")
    add_options(options, "npb", 10)
    matrix = Matrix("npb", "mop_s", given, parse(options, given))
    options = matrix.options
    for class_ in options.classes:
        for benchmark in options.only:
            program = f"{benchmark}.{class_}"
            for ranks in options.np:
                if os.access(os.path.join(options.bin, program + ".x"), os.X_OK) and allows(benchmark, ranks):
                    run_program(matrix, program, ranks)
    if matrix.runs == 0:
        raise Failed(f"{options.bin} has none of {' '.join(options.only)} in classes {' '.join(options.classes)}, as "
                     "NAME.CLASS.x")
    right, of = matrix.finish()
    print("".join(line + "\n" for line in verdicts(class_means(of))), end="")
    return 0 if right else 1
