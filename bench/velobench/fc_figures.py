"""FC's figures: which runs each is made of. A maker is called as maker(simulator, results, full); it submits its runs,
yields, and writes."""

import csv
import os
import statistics

from .simulator import Overhead, SteadyOverhead, median_time_us, spread_columns

CREDIT_SLOTS = range(1, 6)
ALL_SLOTS = (8, 12, 16, 20, 24, 28, 32, 36, 38, 39, 40, 42, 44, 46, 48, 49, 50, 52, 54, 56, 57, 58, 60, 64)
TABLE_2_SLOTS = (8, 16, 24, 32, 38, 39, 42, 49, 50, 52, 57, 64)
PATTERN_SLOTS = (8, 16, 24, 32, 48, 64)
FEW_SLOTS = (8, 16, 32, 64)

# Fixed before the runs. Nothing else of these workloads is random.
JITTER = {"cpu_jitter_permille": 50}
# FC 7.4 says that piggybacking is active "again" there; in FC 5.5 to 7.3 it is not.
WITHOUT_PIGGYBACK = {"no_piggyback": True}
ON_64_NODES = {"processes": 1024, "topology": "mesh:4x4x4", "peers": 1023}
# With 16 a node an eighth of 256 would be on two nodes, and send half of its messages through shared memory.
ON_32_NODES = {"processes": 256, "processes_per_node": 8, "topology": "mesh:4x4x2", "peers": 255}
ON_16_NODES = {"processes": 256, "topology": "mesh:4x4", "peers": 255}


def period(slots, credit_slots):
    """Messages after which static's credits stand as at the start: FC equation 1's threshold, because a message has 37
    packets, and 37 is prime. A run that times fewer of them sees only a part of the pattern."""
    return (slots - credit_slots) // (credit_slots + 1) + 1


def static_figure(number, title, simulator, results, slots_list, numbers, repetitions, run):
    """Overhead, and messages that waited, by slots and credit slots: two figures of the same runs. Each run takes
    whole periods, at least `repetitions` iterations; with None, as many iterations as there are in one period."""
    def iterations(slots, credit_slots):
        one = period(slots, credit_slots)
        return one * -(-repetitions // one) if repetitions else one

    base = simulator.run(mode="none", iterations=repetitions or BASE_ITERATIONS, **run)
    runs = {(slots, credit_slots): simulator.run(mode="static", slots=slots, credit_slots=credit_slots,
                                                 iterations=iterations(slots, credit_slots), **run)
            for slots in slots_list for credit_slots in numbers if slots >= 2 * credit_slots}
    yield
    columns = ["slots"] + [f"{n} credit slot{'s' * (n > 1)}" for n in numbers]
    overheads, delays = [], []
    for slots in slots_list:
        rows = [runs[slots, n].result() if (slots, n) in runs else None for n in numbers]
        base_us = float(base.result()["time_us"])
        overheads.append([slots] + [row and 100 * (float(row["time_us"]) / base_us - 1) for row in rows])
        delays.append([slots] + [row and percent_delayed(row) for row in rows])
    first, second, suffix = number
    results.lines(f"fc-{first}-{suffix}", title, "overhead over none, %", columns, overheads)
    results.lines(f"fc-{second}-{suffix}", title + ": messages that waited", "%", columns, delays)


def percent_delayed(row):
    return 100 * int(row["delayed_messages"]) / int(row["messages"])


def distances(simulator, results):
    """FC 5.3 says that more messages wait at a distance. Hops of 2 us are as far as 400 of the paper's."""
    run = {"workload": "multi_pingpong", "processes": 32, "topology": "mesh:8x8", **WITHOUT_PIGGYBACK}
    far = ((1, None), (4, None), (8, None), (14, None), (14, 2000))
    slots_list = (8, 16, 24, 40, 44, 48, 56)
    runs = {(hops, ns, slots): [simulator.run(mode=mode, hops=hops, hop_ns=ns, slots=slots,
                                              iterations=20 * period(slots, 2), **run) for mode in ("none", "static")]
            for hops, ns in far for slots in slots_list}
    yield
    rows = []
    for slots in slots_list:
        cells = [[run.result() for run in runs[hops, ns, slots]] for hops, ns in far]
        rows.append([slots] + [percent_delayed(static) for _, static in cells]
                    + [100 * (float(static["time_us"]) / float(none["time_us"]) - 1) for none, static in cells])
    names = [f"{hops} hop{'s' * (hops > 1)}" + f" of {ns} ns" * bool(ns) for hops, ns in far]
    columns = ["slots", *(f"{name}: {what} %" for what in ("waited", "overhead") for name in names)]
    results.table("fc-5-distance", "Multi-pingpong, static, 2 credit slots, by distance", columns, rows)


def figures_4_5(simulator, results, full):
    parts = [static_figure((4, 5, f"{hops}-hops"), f"Multi-pingpong, static, {hops} hop(s)", simulator, results,
                           ALL_SLOTS, CREDIT_SLOTS, 200, {"workload": "multi_pingpong", "processes": 32, "hops": hops,
                                            "topology": "mesh:8x8", **WITHOUT_PIGGYBACK})
             for hops in (1, 14)]
    yield from together([*parts, distances(simulator, results)])


BASE_ITERATIONS = 4


def figures_6_7(simulator, results, full):
    sizes = ((ON_16_NODES, ALL_SLOTS if full else TABLE_2_SLOTS, CREDIT_SLOTS),
             (ON_64_NODES, ALL_SLOTS if full else (16, 39), CREDIT_SLOTS if full else (2,)))
    parts = [static_figure((6, 7, size["processes"]), f"Alltoall, static, {size['processes']} processes", simulator,
                           results, slots_list, numbers, None, {"workload": "alltoall", **size, **WITHOUT_PIGGYBACK})
             for size, slots_list, numbers in sizes]
    yield from together(parts)


def together(parts):
    for part in parts:
        next(part)
    yield
    for part in parts:
        next(part, None)


def figure_9(simulator, results, full):
    """2,044 bytes with piggybacking and without: explicit credit packets that it saves, and the overhead of both."""
    size = ON_64_NODES if full else ON_16_NODES
    run = {"workload": "alltoall", "bytes": 2044, "iterations": 4, **size}
    slots_list = (8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64) if full else (8, 12, 16, 24, 32, 48, 64)
    credit_slots = (1, 2, 3)
    base = simulator.run(mode="none", **run)
    runs = {(slots, n, alone): simulator.run(mode="static", slots=slots, credit_slots=n, no_piggyback=alone, **run)
            for slots in slots_list for n in credit_slots for alone in (False, True)}
    yield
    packets = {key: int(run.result()["credit_packets"]) for key, run in runs.items()}
    base_us = float(base.result()["time_us"])
    overhead = {key: 100 * (float(run.result()["time_us"]) / base_us - 1) for key, run in runs.items()}
    names = [f"{n} credit slot{'s' * (n > 1)}" for n in credit_slots]
    title = f"piggybacking, alltoall, {size['processes']} processes"
    results.lines("fc-9", f"Credit packets saved by {title}", "%", ["slots", *names],
                  [[slots] + [100 * (1 - packets[slots, n, False] / packets[slots, n, True]) for n in credit_slots]
                   for slots in slots_list])
    results.lines("fc-9-overhead", f"Overhead with and without {title}", "overhead over none, %",
                  ["slots"] + [f"{name}, {way}" for name in names for way in ("without", "with")],
                  [[slots] + [overhead[slots, n, alone] for n in credit_slots for alone in (True, False)]
                   for slots in slots_list])


# Part of the processes, and seeds. Of all the senders, one seed has as many as there are in eight of an eighth.
PATTERNS = (("all active", 1, 1), ("a half", 2, 1), ("a quarter", 4, 3), ("an eighth", 8, 3))
# Warm-up, and iterations of either half of what is timed. Dynamic needs time to adapt.
WARMUP = {"static": 4, "dynamic": 8}
HALF = 4


def patterns_size(full):
    return ON_64_NODES if full else ON_32_NODES


def pattern_overhead(simulator, pattern, mode, slots, full, **flow):
    """A half is a whole period where some messages wait and some do not (FC table 2)."""
    _, part, seeds = pattern
    size = patterns_size(full)
    half = period(slots, 2) if mode == "static" and 39 <= slots < 57 else HALF
    return SteadyOverhead(simulator, 3 if full else seeds, mode, WARMUP[mode], half, (WARMUP["static"], 2 * HALF),
                          slots=slots, workload="alltoall", active=size["processes"] // part, **flow, **size,
                          **WITHOUT_PIGGYBACK, **JITTER)


def patterns_figure(name, title, slots_list, simulator, results, full, mode, **flow):
    """FC 5.5: an alltoall of some processes while the others wait. The two halves of what is timed show whether that
    was a steady state."""
    overheads = {(slots, pattern[0]): pattern_overhead(simulator, pattern, mode, slots, full, **flow)
                 for pattern in PATTERNS for slots in slots_list}
    yield
    columns = ["slots"]
    for pattern in PATTERNS:
        columns += spread_columns(pattern[0])
    rows = [[slots] + [cell for pattern in PATTERNS for cell in overheads[slots, pattern[0]].spread()]
            for slots in slots_list]
    processes = patterns_size(full)["processes"]
    results.lines(name, f"{title}, {processes} processes", "overhead over none, %", columns, rows)
    halves = [f"{pattern[0]}: {half} half" for pattern in PATTERNS for half in ("first", "second")]
    results.table(f"{name}-halves", f"{title}: overhead over none of either half of the timed iterations, %",
                  ["slots", *halves], [[slots] + [cell for pattern in PATTERNS
                                                  for cell in overheads[slots, pattern[0]].halves()]
                                       for slots in slots_list])


def figure_10(simulator, results, full):
    yield from patterns_figure("fc-10", "Four patterns, static", PATTERN_SLOTS, simulator, results, full, "static")


def figure_15(simulator, results, full):
    yield from together([
        patterns_figure("fc-15", "Four patterns, dynamic", PATTERN_SLOTS if full else FEW_SLOTS, simulator, results,
                        full, "dynamic"),
        patterns_figure("fc-15-paper", "Four patterns, dynamic with the paper's stealing",
                        PATTERN_SLOTS if full else (8, 16, 32), simulator, results, full, "dynamic", stealing="paper")])


def components(name, title, slots_list, simulator, results, seeds, run):
    """FC 7.1: what is left when flow control takes no CPU time is stalls and traffic; when its packets take no room in
    the network either, stalls."""
    no_cpu = {"control_no_cpu": True, "cpu_account_ns": 0}
    steps = {"total": {}, "without CPU": no_cpu, "stalls": {**no_cpu, "control_no_traffic": True}}
    overheads = {(slots, mode, step): Overhead(simulator, seeds, mode, slots=slots, **run, **free, **JITTER)
                 for slots in slots_list for mode in ("static", "dynamic") for step, free in steps.items()}
    yield
    rows, columns = [], ["slots"]
    for mode in ("static", "dynamic"):
        columns += [f"{mode}: computation", f"{mode}: stalls and traffic", f"{mode}: of these traffic",
                    *spread_columns(f"{mode}: total")]
    for slots in slots_list:
        row = [slots]
        for mode in ("static", "dynamic"):
            total, rest, stalls = (overheads[slots, mode, step] for step in steps)
            row += [total.median() - rest.median(), rest.median(), rest.median() - stalls.median(), *total.spread()]
        rows.append(row)
    results.lines(name, title, "overhead over none, %", columns, rows)


def figure_16(simulator, results, full):
    size = ON_64_NODES if full else ON_16_NODES
    yield from components("fc-16", f"Components of the overhead, alltoall, {size['processes']} processes", FEW_SLOTS,
                          simulator, results, 3, {"workload": "alltoall", "warmup": 8, "iterations": 2, **size,
                                                    **WITHOUT_PIGGYBACK})


def figure_17(simulator, results, full):
    yield from components("fc-17", "Components of the overhead, multi-pingpong, 1 hop", PATTERN_SLOTS,
                          simulator, results, 5,
                          {"workload": "multi_pingpong", "processes": 32, "peers": 31, "topology": "mesh:8x8",
                           "warmup": 200, "iterations": 200, **WITHOUT_PIGGYBACK})


def figure_18(simulator, results, full):
    """Peers on the node have slots in a mailbox, as in the paper, and use none."""
    sizes = ((32, "mesh:2x1", 40, 10, 5), (64, "mesh:2x2", 30, 10, 5), (128, "mesh:4x2", 16, 6, 3),
             (256, "mesh:4x4", 8, 3, 3 if full else 1))
    overheads = {(processes, mode, slots): Overhead(simulator, seeds, mode, slots=slots, workload="alltoall",
                                                    processes=processes, peers=processes - 1, topology=topology,
                                                    warmup=warmup, iterations=iterations, **WITHOUT_PIGGYBACK, **JITTER)
                 for processes, topology, warmup, iterations, seeds in sizes for mode in ("static", "dynamic")
                 for slots in FEW_SLOTS}
    yield
    shares = ((32, 50), (64, 25), (128, 12.5), (256, 6.25))
    series = {f"{share} %: {mode}": (processes, mode) for processes, share in shares for mode in ("static", "dynamic")}
    columns = ["slots"]
    for name in series:
        columns += spread_columns(name)
    rows = [[slots] + [cell for processes, mode in series.values()
                       for cell in overheads[processes, mode, slots].spread()] for slots in FEW_SLOTS]
    results.lines("fc-18", "Alltoall with peers on the node", "overhead over none, %", columns, rows)


def figure_19(simulator, results, full):
    """Credits that rank 0 owns at the others, by thirds of the job, at the end of each alltoall."""
    size, iterations = (ON_64_NODES, 5) if full else (ON_16_NODES, 12)
    processes = size["processes"]
    path = results.scratch("fc-19")
    run = simulator.run(workload="phases", mode="dynamic", slots=30, iterations=iterations, trace=path, **size,
                        **WITHOUT_PIGGYBACK, **JITTER)
    yield
    run.result()
    groups = ((1, processes // 4), (processes // 4, processes // 2), (processes // 2, processes))
    credits = {}
    with open(path, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            for group, (first, end) in enumerate(groups):
                if first <= int(row["peer"]) < end:
                    credits.setdefault((int(row["phase"]), group), []).append(int(row["credits"]))
    os.unlink(path)
    columns = ["alltoall"]
    for first, end in groups:
        columns += spread_columns(f"ranks {first} to {end - 1}")
    rows = []
    for phase in range(max(phase for phase, _ in credits) + 1):
        row = [phase + 1]
        for group in range(len(groups)):
            values = credits.get((phase, group))
            row += [float(statistics.median(values)), min(values), max(values)] if values else [None] * 3
        rows.append(row)
    results.lines("fc-19", f"Credits of rank 0, {iterations} alltoalls a phase, {processes} processes", "credits",
                  columns, rows)


# FC 7.4: name in IMB, its runs, warm-up, iterations, seeds. PingPong and PingPing are between two nodes.
TWO = {"processes": 2, "processes_per_node": 1, "peers": 1023, "topology": "mesh:4x4x4"}
LOCALIZED = (("PingPong", {"workload": "multi_pingpong", **TWO}, 100, 100, 3),
             ("PingPing", {"workload": "pingping", **TWO}, 100, 100, 3),
             ("Sendrecv", {"workload": "sendrecv", **ON_64_NODES}, 30, 30, 3),
             ("Exchange", {"workload": "exchange", "window": 2, **ON_64_NODES}, 30, 30, 3),
             ("Allreduce", {"workload": "allreduce", **ON_64_NODES}, 20, 20, 3),
             ("Reduce", {"workload": "reduce", **ON_64_NODES}, 64, 64, 3),
             ("Bcast", {"workload": "bcast", **ON_64_NODES}, 64, 64, 3),
             ("Barrier", {"workload": "barrier", **ON_64_NODES}, 20, 20, 3))
# Linear, as Open MPI makes it of 2 KiB: all sends are begun at once. Alltoallv is pairwise.
BALANCED = (("Alltoall", {"workload": "alltoall", "window": 1023, **ON_16_NODES}, 2, 2, 3),
            ("Alltoallv", {"workload": "alltoallv", **ON_16_NODES}, 2, 2, 3))
BALANCED_FULL = tuple((name, {**run, **ON_64_NODES}, *rest) for name, run, *rest in BALANCED)
BY_RMA = (("Allgather", {"workload": "allgather", **ON_64_NODES}, 1, 2, 3),
          ("Allgatherv", {"workload": "allgather", **ON_64_NODES}, 1, 2, 3),
          ("Gather", {"workload": "gather", **ON_64_NODES}, 64, 64, 3),
          ("Scatter", {"workload": "scatter", **ON_64_NODES}, 64, 64, 3))
IMB_MODES = ("static", "dynamic")
# Options of a scheme. FC's software takes one packet at a time; the plugin takes what is there of a message, which
# has 37.
DYNAMIC_OF_PAPER = "dynamic with the paper's stealing"
SCHEMES = {"static": {"mode": "static"}, "dynamic": {"mode": "dynamic"},
           DYNAMIC_OF_PAPER: {"mode": "dynamic", "stealing": "paper"}}
TAKES = (1, 37)


def imb_groups(full):
    return {"localized": LOCALIZED, "balanced": BALANCED_FULL if full else BALANCED, "RMA": BY_RMA}


def imb_overheads(simulator, full, slots_list=FEW_SLOTS, schemes=IMB_MODES, take=1, few_seeds=()):
    """One seed of the schemes `few_seeds`."""
    return {(slots, group, name, scheme): Overhead(simulator, 1 if scheme in few_seeds else seeds, slots=slots,
                                                   warmup=warmup, iterations=iterations,
                                                   packets_per_take=None if take == 1 else take,
                                                   **SCHEMES[scheme], **run, **JITTER)
            for slots in slots_list for group, benchmarks in imb_groups(full).items()
            for name, run, warmup, iterations, seeds in benchmarks for scheme in schemes}


def mean_overhead(overheads, slots, mode, group=None):
    """Mean over the benchmarks; median, least and most of the seeds."""
    chosen = [o for (s, g, _, m), o in overheads.items() if (s, m) == (slots, mode) and group in (None, g)]
    means = [statistics.mean(o.of_seed(seed) for o in chosen) for seed in range(max(len(o.times) for o in chosen))]
    return [statistics.median(means), min(means), max(means)]


def imb_figure(number, slots):
    def make(simulator, results, full):
        overheads = imb_overheads(simulator, full, (slots,))
        yield
        columns = ["benchmark", "group", "none us", "static us", "dynamic us"]
        for mode in IMB_MODES:
            columns += spread_columns(mode)
        rows = []
        for group, benchmarks in imb_groups(full).items():
            for name, *_ in benchmarks:
                both = [overheads[slots, group, name, mode] for mode in IMB_MODES]
                rows.append([name, group, median_time_us(both[0].bases), *(median_time_us(o.times) for o in both),
                             *both[0].spread(), *both[1].spread()])
            cells = [cell for mode in IMB_MODES for cell in mean_overhead(overheads, slots, mode, group)]
            rows.append([f"mean: {group}", group, None, None, None, *cells])
        results.bars(f"fc-{number}", f"IMB, 2 KiB, {slots} slots a process", "overhead over none, %",
                     columns, rows)
    return make


def figure_25(simulator, results, full):
    repetitions = (1, 2, 5, 10, 20, 50)
    run = {"workload": "scatterv", "iterations": 200 if full else 100, **ON_64_NODES, **JITTER}
    bases = {r: [simulator.run(mode="none", repetitions=r, seed=1, **run)] for r in repetitions}
    series = {f"{mode} {slots} slots": (mode, slots) for slots in FEW_SLOTS for mode in ("static", "dynamic")}
    runs = {(r, name): [simulator.run(mode=mode, slots=slots, repetitions=r, seed=1, **run)]
            for r in repetitions for name, (mode, slots) in series.items()}
    yield
    rows = [[r, median_time_us(bases[r])] + [median_time_us(runs[r, name]) for name in series] for r in repetitions]
    results.lines("fc-25", "Scatterv, 1024 processes", "us", ["repetitions", "none", *series], rows)


def figure_24(simulator, results, full):
    """Scatterv and Gatherv, whose root goes round: each rank is root once before what is timed, and once in it. FC's
    Reduce_scatter and figure 26, which is of it, are missing: no workload here, and no limit of one sender's slots."""
    size = ON_64_NODES if full else ON_16_NODES
    once = {"warmup": size["processes"], "iterations": size["processes"], **size, **JITTER}
    workloads = {"Scatterv": "scatterv", "Gatherv": "incast"}
    bases = {name: [simulator.run(workload=workload, mode="none", seed=seed, **once) for seed in (1, 2, 3)]
             for name, workload in workloads.items()}
    runs = {(name, slots, scheme): [simulator.run(workload=workload, slots=slots, seed=seed, **flow, **once)
                                    for seed in (1, 2, 3)]
            for name, workload in workloads.items() for slots in FEW_SLOTS for scheme, flow in SCHEMES.items()}
    yield
    for name in workloads:
        rows = [[slots, median_time_us(bases[name])] + [median_time_us(runs[name, slots, scheme]) for scheme in SCHEMES]
                for slots in FEW_SLOTS]
        results.lines(f"fc-24-{name.lower()}", f"{name}, {size['processes']} processes", "us",
                      ["slots", "none", *SCHEMES], rows)


def figure_27(simulator, results, full):
    overheads = imb_overheads(simulator, full)
    yield
    columns, rows = ["slots"], []
    for mode in IMB_MODES:
        columns += spread_columns(mode)
    means = {(slots, mode): mean_overhead(overheads, slots, mode) for slots in FEW_SLOTS for mode in IMB_MODES}
    for slots in FEW_SLOTS:
        rows.append([slots] + [cell for mode in IMB_MODES for cell in means[slots, mode]])
    results.lines("fc-27", "Mean overhead over the IMB", "overhead over none, %", columns, rows)


def headline(simulator, results, full):
    """The fewest slots from which on figure 27's mean is at or below 3 %, by packets that are taken at once."""
    few_seeds = dict.fromkeys(TAKES, ()) if full else {1: tuple(SCHEMES), 37: IMB_MODES}
    overheads = {take: imb_overheads(simulator, full, schemes=SCHEMES, take=take, few_seeds=few_seeds[take])
                 for take in TAKES}
    yield
    columns = ["scheme", "packets a take"]
    for slots in FEW_SLOTS:
        columns += spread_columns(f"{slots} slots")
    rows = []
    for scheme, paper in zip(SCHEMES, (64, None, 16)):
        for take in TAKES:
            spreads = [mean_overhead(overheads[take], slots, scheme) for slots in FEW_SLOTS]
            above = [slots for slots, spread in zip(FEW_SLOTS, spreads) if spread[0] > 3]
            least = next((slots for slots in FEW_SLOTS if not above or slots > above[-1]), f"more than {FEW_SLOTS[-1]}")
            rows.append([scheme, take, *(cell for spread in spreads for cell in spread), least, paper])
    results.table("fc-headline", "Mean overhead over the IMB, %, and the least slots at 3 %",
                  [*columns, "least slots at 3 %", "the paper's"], rows)


def stealing(simulator, results, full):
    """Not of the papers: static beside dynamic with each way of stealing, without shared memory."""
    flows = {"static": {"mode": "static"}, "paper": {"mode": "dynamic", "stealing": "paper"},
             "turns": {"mode": "dynamic", "stealing": "turns"}}
    overheads = {(active, slots, name): Overhead(simulator, 1, slots=slots, workload="alltoall", processes=256,
                                                 topology="mesh:4x4", active=active, iterations=20 if full else 10,
                                                 no_shared_memory=True, **flow, **JITTER)
                 for active in (256, 128, 64, 32) for slots in (8, 16) for name, flow in flows.items()}
    yield
    rows = [[active, slots] + [overheads[active, slots, name].median() for name in flows]
            for active in (256, 128, 64, 32) for slots in (8, 16)]
    results.table("stealing", "Alltoall of some of 256 processes: overhead over none, %", ["active", "slots", *flows],
                  rows)


ON_8_NODES = {"processes": 128, "topology": "mesh:4x2"}
HALF_ACTIVE = {"workload": "alltoall", "processes": 256, "topology": "mesh:4x4", "active": 128, "iterations": 10}
OTHER_PATTERNS = {
    "random": {"workload": "random", "messages": 1000, **ON_8_NODES},
    "random up to 8 KiB": {"workload": "random", "messages": 300, "bytes": 8192, **ON_8_NODES},
    "phases": {"workload": "phases", "iterations": 3, "processes": 64, "topology": "mesh:2x2"},
    "neighbours": {"workload": "neighbours", "iterations": 20, **ON_8_NODES},
    "half active with late packets and stalls": {"fault_delay_permille": 100, "fault_delay_ns": 300000,
                                                 "fault_stall_permille": 30, "fault_stall_ns": 2000000,
                                                 "fault_until_ns": 100000000, **HALF_ACTIVE},
    "half active without piggybacking": {**WITHOUT_PIGGYBACK, **HALF_ACTIVE},
    "quarter active with 8 KiB": {**HALF_ACTIVE, "active": 64, "bytes": 8192}}


def other_patterns(simulator, results, full):
    """Not of the papers: patterns without shared memory, 16 slots, 2 KiB unless said."""
    flows = {"static": {"mode": "static"}, "turns": {"mode": "dynamic", "stealing": "turns"}}
    overheads = {(pattern, name): Overhead(simulator, 3, slots=16, no_shared_memory=True, **run, **flow, **JITTER)
                 for pattern, run in OTHER_PATTERNS.items() for name, flow in flows.items()}
    yield
    columns = ["pattern"]
    for name in flows:
        columns += spread_columns(name)
    results.table("stealing-patterns", "Other patterns, 16 slots: overhead over none, %", columns,
                  [[pattern] + [cell for name in flows for cell in overheads[pattern, name].spread()]
                   for pattern in OTHER_PATTERNS])


# By the paper's numbers. Those of one maker are made together.
FIGURES = {"4": figures_4_5, "5": figures_4_5, "6": figures_6_7, "7": figures_6_7, "9": figure_9, "10": figure_10,
           "15": figure_15, "16": figure_16, "17": figure_17, "18": figure_18, "19": figure_19,
           "20": imb_figure(20, 64), "21": imb_figure(21, 32), "22": imb_figure(22, 16), "23": imb_figure(23, 8),
           "24": figure_24, "25": figure_25, "27": figure_27, "headline": headline, "stealing": stealing,
           "patterns": other_patterns}
