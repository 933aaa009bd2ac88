"""RAILS's figures: which runs each is made of. Makers are as in fc_figures.py.

Fixed before the runs: seeds 1 to 3 (one with 128 nodes and hybrid), medians; a warm-up of 100 times of a mean message
and 1,000 that are measured; offered loads in steps of 0.05; saturation is the least offered load of which less than
0.98 is accepted, and of the next one, too. Digits of the paper that are lost in print are chosen here, and named.

Lines called "shipped" run the plugin's machines with its defaults. The others are the paper's algorithms, which the simulator
has of its own; docs/results/rails.md has the table."""

import statistics

SOURCES = ("rma", "sim", "sim_device/cluster", "velo")
SEEDS = (1, 2, 3)
LOADS = [n / 20 for n in range(1, 21)]
FINE_LOADS = [n / 50 for n in range(2, 26)]
KIB = 1024
SIZES = tuple(1 << n for n in range(10, 19))
# The paper's digits behind 0.1 are lost.
LIGHT_LOAD = 0.1
# The paper's are 1, ?, ?, 1?, ?? KB; mean messages of ?? KB.
THRESHOLDS = (1, 4, 8, 16, 32)
HYBRID_BYTES = 64 * KIB
LONG = 64 * KIB
POLICIES = {"basic": {"policy": "basic"}, "local": {"policy": "local"}, "dynamic": {"policy": "dynamic"}}
STRIPED = {**POLICIES, "local, striped": {"policy": "local", "striping": 100},
           "dynamic, striped": {"policy": "dynamic", "striping": 100}}
# The plugin's btl_velo_rails=hybrid, its default, and =dynamic, with rail_short, striping and chunk as they are by default.
SHIPPED = {"hybrid, shipped": {"policy": "shipped-hybrid", "short_bytes": 64 * KIB, "striping": 100, "chunk": 256 * KIB},
           "dynamic, shipped": {"policy": "shipped-dynamic", "striping": 100, "chunk": 256 * KIB}}
WITH_SHIPPED, WITH_SHIPPED_STRIPED = {**POLICIES, **SHIPPED}, {**STRIPED, **SHIPPED}
PRINTED = {**STRIPED, "dynamic, asks again at once": {"policy": "dynamic", "wait": 0}, **SHIPPED}


class Runs:
    """The runs of one point, by seed."""

    def __init__(self, simulator, seeds=SEEDS, **options):
        self._runs = [simulator.run(seed=seed, **options) for seed in seeds]

    def median(self, column):
        return statistics.median(float(run.result()[column]) for run in self._runs)

    def accepts_all(self):
        return statistics.median(float(run.result()["accepted"]) / float(run.result()["offered"])
                                 for run in self._runs) >= 0.98

    def latency(self):
        """Cycles; None in saturation, where it grows with the run."""
        return round(self.median("latency_cycles")) if self.accepts_all() else None

    def accepted(self):
        return round(self.median("accepted"), 4)


def exact(value):
    """A cell that keeps more than two digits behind the point."""
    return None if value is None else f"{value:.4g}"


def allocation_2(simulator, results, full):
    nodes = [1 << n for n in range(2, 13)]
    fewest = {rule: simulator.rows("allocation", rule=rule, nodes=",".join(map(str, nodes)))
              for rule in ("optimal", "logarithmic")}
    yield
    columns = {rule: [int(row["fewest_rails"]) for row in future.result()] for rule, future in fewest.items()}
    results.lines("rails-2", "Fewest rails for static allocation (RAILS figure 2)", "rails",
                  ["nodes", "optimal", "2 log2"],
                  [list(row) for row in zip(nodes, columns["optimal"], columns["logarithmic"])])


def matrix(number, rule, nodes):
    def maker(simulator, results, full):
        rows = simulator.rows("allocation", rule=rule, rails=6, nodes=nodes)
        yield
        table = rows.result()
        results.table(f"rails-{number}", f"{rule} allocation, 6 rails, {nodes} nodes: 1 where a node sends (RAILS figure "
                      f"{number})", list(table[0]), [list(row.values()) for row in table])
    return maker


def load_figures(bandwidth, latency, bytes_mean):
    """Figures 7 to 10."""
    def maker(simulator, results, full):
        runs = {(name, load): Runs(simulator, load=load, bytes=bytes_mean, **series)
                for name, series in PRINTED.items() for load in LOADS}
        yield
        title = f"{bytes_mean // KIB} KB, 32 nodes, 4 rails (RAILS figure"
        results.lines(f"rails-{bandwidth}", f"Accepted by offered load, {title} {bandwidth})", "accepted",
                      ["load", *PRINTED],
                      [[load, *(exact(runs[name, load].accepted()) for name in PRINTED)] for load in LOADS])
        results.lines(f"rails-{latency}", f"Latency by offered load, {title} {latency})", "cycles",
                      ["load", *PRINTED],
                      [[load, *(runs[name, load].latency() for name in PRINTED)] for load in LOADS[:10]])
    return maker


def figure_11(simulator, results, full):
    runs = {(name, size): Runs(simulator, load=LIGHT_LOAD, bytes=size, **series)
            for name, series in WITH_SHIPPED_STRIPED.items() for size in SIZES}
    yield
    results.lines("rails-11", f"Latency by mean message, load {LIGHT_LOAD} (RAILS figure 11)", "cycles",
                  ["bytes", *WITH_SHIPPED_STRIPED],
                  [[size, *(runs[name, size].latency() for name in WITH_SHIPPED_STRIPED)] for size in SIZES])


def figure_12(simulator, results, full):
    runs = {(name, nodes): Runs(simulator, load=1, nodes=nodes, bytes=LONG, **series)
            for name, series in WITH_SHIPPED.items() for nodes in (32, 64, 128)}
    yield
    results.lines("rails-12", "Most accepted by nodes, 64 KB (RAILS figure 12)", "accepted", ["nodes", *WITH_SHIPPED],
                  [[nodes, *(exact(runs[name, nodes].accepted()) for name in WITH_SHIPPED)] for nodes in (32, 64, 128)])


def figure_13(simulator, results, full):
    lines = {"basic": STRIPED["basic"], "dynamic": STRIPED["dynamic, striped"], **SHIPPED}
    series = {f"{name}, {rails} rail{'s' * (rails > 1)}": {**options, "rails": rails}
              for name, options in lines.items() for rails in (1, 2, 4)}
    series = results.wanted(series)
    runs = {(name, size): Runs(simulator, load=1, bytes=size, **options)
            for name, options in series.items() for size in SIZES}
    yield
    results.lines("rails-13", "Most accepted by mean message and rails (RAILS figure 13)", "accepted",
                  ["bytes", *series], [[size, *(exact(runs[name, size].accepted()) for name in series)] for size in SIZES])


def figures_14_15(simulator, results, full):
    rails = range(1, 8)
    most = {(name, count): Runs(simulator, load=1, rails=count, bytes=LONG, **series)
            for name, series in WITH_SHIPPED.items() for count in rails}
    fixed = Runs(simulator, load=1, rails=7, bytes=LONG, policy="static")
    light = {(name, count): Runs(simulator, load=LIGHT_LOAD, rails=count, bytes=LONG, **series)
             for name, series in WITH_SHIPPED_STRIPED.items() for count in rails}
    yield
    results.lines("rails-14", "Most accepted by rails, 64 KB; static needs 7 (RAILS figure 14)", "accepted",
                  ["rails", *WITH_SHIPPED, "static"],
                  [[count, *(exact(most[name, count].accepted()) for name in WITH_SHIPPED),
                    exact(fixed.accepted()) if count == 7 else None] for count in rails])
    results.lines("rails-15", f"Latency by rails, 64 KB, load {LIGHT_LOAD} (RAILS figure 15)", "cycles",
                  ["rails", *WITH_SHIPPED_STRIPED],
                  [[count, *(light[name, count].latency() for name in WITH_SHIPPED_STRIPED)] for count in rails])


def figure_16(simulator, results, full):
    """Loads rise until saturation is found: heavier ones are not run."""
    yield
    series = results.wanted(WITH_SHIPPED)
    saturation, last_full = {}, {}
    for load, before in zip(FINE_LOADS, [None, *FINE_LOADS]):
        runs = {(name, size): Runs(simulator, load=load, bytes=size, **options)
                for name, options in series.items() for size in SIZES if (name, size) not in saturation}
        for line, of_load in runs.items():
            if of_load.accepts_all():
                continue
            if last_full.get(line, 0) == before:
                saturation[line] = before
            last_full[line] = load
    results.lines("rails-16", "Saturation by mean message (RAILS figure 16)", "offered load", ["bytes", *series],
                  [[size, *(exact(saturation.get((name, size))) for name in series)] for size in SIZES])


def figures_17_20(simulator, results, full):
    """Figures 17 and 18 are without striping, 19 and 20 with. So is what ships, whose hybrid has the
    least threshold and its default, 64 KiB."""
    seeds = SEEDS if full else SEEDS[:1]
    series = {"basic": {"policy": "basic"}, "dynamic": {"policy": "dynamic"},
              **{f"hybrid {size} KB": {"policy": "hybrid", "short_bytes": size * KIB} for size in THRESHOLDS},
              "hybrid 1 KB, shipped": {**SHIPPED["hybrid, shipped"], "short_bytes": KIB}, **SHIPPED}
    series = results.wanted(series)
    loads = LOADS[:10]
    runs = {(name, load, striping): Runs(simulator, seeds, **{**options, "striping": striping}, load=load,
                                         bytes=HYBRID_BYTES, nodes=128)
            for name, options in series.items() for load in loads for striping in (0, 100)}
    yield
    for striping, bandwidth, latency in ((0, 17, 18), (100, 19, 20)):
        title = f"{HYBRID_BYTES // KIB} KB, 128 nodes, striping {striping} % (RAILS figure"
        results.lines(f"rails-{bandwidth}", f"Accepted, hybrid, {title} {bandwidth})", "accepted", ["load", *series],
                      [[load, *(exact(runs[name, load, striping].accepted()) for name in series)] for load in loads])
        results.lines(f"rails-{latency}", f"Latency, hybrid, {title} {latency})", "cycles", ["load", *series],
                      [[load, *(runs[name, load, striping].latency() for name in series)] for load in loads])


HEADLINE = {"as figures 9 and 12": {}, "asks again at once": {"wait": 0}, "waits up to 5 round trips": {"wait": 500},
            "asks for one rail only": {"ask_used": True}, "round robin of a node": {"pointer_per_node": True},
            "processes do not block": {"not_blocking": True},
            **{f"a bus both ways: {percent} %": {"both_ways": percent} for percent in (90, 80, 70, 60, 50)},
            **{f"reply of {cycles} cycles": {"reply_cycles": cycles} for cycles in (100, 1000, 3000)},
            "3 virtual channels": {"channels": 3}, "1 virtual channel": {"channels": 1}, "duplex": {"duplex": True}}


def headline(simulator, results, full):
    """The abstract's 37 and 49 per cent, and what they need."""
    runs = {(case, name): Runs(simulator, load=1, bytes=LONG, **series, **options)
            for case, options in HEADLINE.items() for name, series in WITH_SHIPPED.items()}
    yield
    rows = []
    for case in HEADLINE:
        basic, local, dynamic, *shipped = (runs[case, name].accepted() for name in WITH_SHIPPED)
        rows.append([case, exact(basic), exact(local), exact(dynamic), dynamic / basic, dynamic / local,
                     runs[case, "dynamic"].median("tries"), runs[case, "dynamic"].median("controls"),
                     *map(exact, shipped)])
    results.table("rails-headline", "Most accepted, 64 KB, 32 nodes, 4 rails, offered 1.0, by one change each",
                  ["case", *POLICIES, "dynamic / basic", "dynamic / local", "tries a message", "control messages a message",
                   *SHIPPED], rows)


FIGURES = {"rails-2": allocation_2, "rails-3": matrix(3, "logarithmic", 8), "rails-4": matrix(4, "optimal", 20)}
for _numbers, _maker in (((7, 8), load_figures(7, 8, 4 * KIB)), ((9, 10), load_figures(9, 10, LONG)), ((11,), figure_11),
                         ((12,), figure_12), ((13,), figure_13), ((14, 15), figures_14_15), ((16,), figure_16),
                         ((17, 18, 19, 20), figures_17_20)):
    FIGURES.update({f"rails-{number}": _maker for number in _numbers})
FIGURES["rails-headline"] = headline
# Those whose lines can be made apart.
BY_LINES = tuple(f"rails-{number}" for number in (13, 16, 17, 18, 19, 20))
