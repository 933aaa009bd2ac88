"""Pictures of the CSV files in docs/results, by gnuplot. A picture follows from its CSV, so pictures are built and not
kept."""

import csv
import os
import re
import shutil
import subprocess

from .openmpi import BUILD, ROOT, Failed

RESULTS = os.path.join(ROOT, "docs", "results")
PICTURES = os.path.join(BUILD, "pictures")
COLOURS = ("0072b2", "d55e00", "009e73", "cc79a7", "555555", "56b4e9", "e69f00", "000000", "999933",
           "882255")
# Columns that are the ends of another one's range.
ENDS = (" min", " max", "_low", "_high")
NAMES = {"dynamic8": "dynamic, 8 ranks"}
X_LABELS = {"load": "offered load, of all rails one way", "slots": "slots a process", "repetitions": "repetitions with one root",
            "window": "packets that a node has asked for and not got"}
IBFC = {"2": ("Latency, 100 buffers", "us"), "3": ("4 bytes, 100 buffers, blocking", "MB/s"),
        "4": ("4 bytes, 100 buffers, non-blocking", "MB/s"), "5": ("4 bytes, 10 buffers, blocking", "MB/s"),
        "6": ("4 bytes, 10 buffers, non-blocking", "MB/s"), "7": ("32 KiB, 10 buffers, blocking", "MB/s"),
        "8": ("32 KiB, 10 buffers, non-blocking", "MB/s"), "9": ("NPB, 100 buffers", "seconds"),
        "10-1": ("NPB, 1 buffer of 2 KiB against 100", "more time, %"),
        "10-least": ("NPB, the smallest mailbox against 100 buffers", "more time, %")}
BARS = ("set style data histogram", "set style fill solid 0.8", "set xtics rotate by -40", "set yrange [*<0:*]")


def check_gnuplot():
    if shutil.which("gnuplot") is None:
        raise Failed("there is no gnuplot; apt-get install gnuplot-nox")


def read_csv(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def quoted(text):
    """As gnuplot wants it."""
    return "'" + text.replace("'", "''") + "'"


def shown(columns):
    return [column for column in columns if not column.endswith(ENDS)]


def lines(table):
    """A line for each column after the first; those called "X min" and "X max" are the bars of X."""
    columns = table[0]
    plots = []
    for colour, column in enumerate(shown(columns[1:]), 1):
        index = columns.index(column) + 1
        title = quoted(NAMES.get(column, column))
        plots.append(f"using 1:{index} with linespoints lt {colour} pt 7 ps 0.4 lw 1.5 title {title}")
        if column + " min" in columns:
            bar = f"using 1:{index + 1}:(0):(${index + 2}-${index + 1})"
            plots.append(f"{bar} with vectors nohead lt {colour} notitle")
    settings = [f"set xlabel {quoted(X_LABELS.get(columns[0], columns[0]))}", "set yrange [*<0:*]"]
    return settings + ["set logscale x 2"] * (columns[0] in ("bytes", "nodes", "window")), plots


def bars(table, columns):
    """Bars of some columns, a group for each row."""
    plots = [f"using {table[0].index(column) + 1}:xtic(1) title {quoted(column)}" for column in columns]
    return list(BARS), plots


def patterns(table):
    """Of each number of active ranks, static and dynamic."""
    ticks = ",".join(dict.fromkeys(row[1] for row in table[1:]))
    plots = [f"using 2:($1=={active}?${column}:1/0) with linespoints lc {number} dt {dash} pt 7 ps 0.5 title "
             f'"{mode}, {active} active"'
             for number, active in enumerate(dict.fromkeys(row[0] for row in table[1:]), 1)
             for mode, column, dash in (("static", 4, 2), ("dynamic", 7, 1))]
    return [f"set xtics ({ticks})", 'set xlabel "slots a process"'], plots


def cost(table):
    """Quartiles of each mode, a group for each task, number of ranks, distance and number of slots."""
    plots, group = [], 'xtic(sprintf("%s, %s ranks %s, %s slots", strcol(1), strcol(2), strcol(3), strcol(4)))'
    titles = {"static": "static", "dynamic": "dynamic", "dynamic_exact": "dynamic, exact mailbox",
              "hardware": "hardware", "none_again": "none again"}
    for column, title in titles.items():
        index = table[0].index(column) + 1
        plots.append(f'using {index}:{index + 1}:{index + 2}{":" + group if not plots else ""} title "{title}"')
    return ["set style data histograms", "set style histogram errorbars gap 2 lw 1", "set style fill solid 0.6",
            "set xtics rotate by -30"], plots


def recipe(folder, name, table):
    """Title, label of y, settings and plots; None for a table that has no picture."""
    paper = name.split("-")[0]
    if paper in ("fc", "rails", "rdrp") and name != f"{paper}-runs":
        noted = {row[0]: row for row in read_csv(os.path.join(folder, f"{paper}-runs.csv"))[1:]}
        if noted.get(name, [""])[-1] not in ("lines", "bars"):
            return None
        title, _, label = noted[name][1].rpartition(": ")
        return title, label, *(lines(table) if noted[name][-1] == "lines" else bars(table, ("static", "dynamic")))
    if name.startswith("ibfc-") and name.removeprefix("ibfc-") in IBFC:
        number = name.removeprefix("ibfc-")
        title, label = IBFC[number]
        title += f" (IBFC figure {number.removesuffix('-1')})" * (number != "10-least")
        return title, label, *(bars(table, shown(table[0][2:])) if table[0][0] == "benchmark" else lines(table))
    if name.startswith("mem-12-"):
        what = name.removeprefix("mem-12-")
        title = "Killer benchmark, processes x messages of a sender" + ("" if what == "beyond" else ", " + what)
        return title, "time / with memory for all", *bars(table, ("none", "tenth", "half"))
    if name == "real-cost":
        return "2 KiB, every rank active, one rank a node: quartiles over rounds", "over none, %", *cost(table)
    real = re.fullmatch(r"real-(alltoall|pingpong)-(\d+)", name)
    if real:
        return f"{real[1]} of 2 KiB, {real[2]} ranks, one rank a node", "over none, %", *patterns(table)
    return None


def script(csv_path, svg_path, title, label, settings, plots):
    head = ['set terminal svg size 760,440 font "sans-serif,13" background rgb "white"',
            f"set output {quoted(svg_path)}", 'set datafile separator ","', 'set grid ytics lc rgb "#dddddd"',
            "set key outside right top",
            *(f'set linetype {number} lc rgb "#{colour}"' for number, colour in enumerate(COLOURS, 1)),
            f"set title {quoted(title)} noenhanced", f"set ylabel {quoted(label)}"]
    return "\n".join([*head, *settings, "plot " + ", ".join(f"{quoted(csv_path)} skip 1 {plot}" for plot in plots)])


def draw(name, folder=RESULTS, to=PICTURES):
    """The picture of one CSV. Returns its path; None for a table that has no picture, or has no figure yet."""
    path, picture = os.path.join(folder, name + ".csv"), os.path.join(to, name + ".svg")
    table = read_csv(path)
    how = recipe(folder, name, table)
    if how is None or len(table) < 2:
        return None
    os.makedirs(to, exist_ok=True)
    result = subprocess.run(["gnuplot"], input=script(path, picture, *how), text=True, capture_output=True, check=False)
    if result.returncode != 0:
        os.unlink(picture)
        print(f"{name} has no figures that gnuplot can draw")
        return None
    return picture


def draw_all(folder=RESULTS, to=PICTURES):
    """Of all CSVs in the folder; how many there are."""
    names = sorted(name.removesuffix(".csv") for name in os.listdir(folder) if name.endswith(".csv"))
    return sum(draw(name, folder, to) is not None for name in names)
