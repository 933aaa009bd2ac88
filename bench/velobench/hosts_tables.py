"""The tables of `hosts`: medians over rounds."""

from . import tables
from .stats import Samples, geometric_mean, ratio
from .tables import NONE, fixed, size

GROUPS = ("latency", "bandwidth", "rate", "fetch", "idle", "init", "incast", "peers", "npb")
TITLES = {"velo_net": "velo net", "velo_rxm": "velo rxm", "mtl_net": "mtl/ofi net", "mtl_rxm": "mtl/ofi rxm",
          "tcp": "btl/tcp", "ucx": "UCX tcp", "floor": "floor"}
# Of the same provider, for targets that compare with mtl/ofi.
MTL_OF = {"velo_net": "mtl_net", "velo_rxm": "mtl_rxm"}
OTHERS = ("mtl_net", "mtl_rxm", "tcp", "ucx")
PLACES = {"veth": "Two hosts in namespaces, joined by veth", "loopback": "One host, over lo"}


def title_of(column):
    return TITLES[column.removesuffix("_before")] + " before" * column.endswith("_before")


def number(value):
    return tables.figure(value, 2)


def ratio_text(one, other):
    return fixed(ratio(one, other)) if one else NONE


class Figures:
    """Of one place."""

    def __init__(self, rows, place):
        self.values = Samples()
        for row in rows:
            if row["where"] == place:
                self.values.add((row["group"], row["column"], row["measure"], int(row["size"])), row["value"])

    def median(self, *key):
        """Of group, column, measure and size."""
        return self.values.median(key)

    def sizes(self, group, what):
        return sorted({size_ for g, _, w, size_ in self.values if (g, w) == (group, what)})

    def columns(self, group, what=None):
        found = {column for g, column, w, _ in self.values if g == group and what in (None, w)}
        return [column for title in TITLES for column in (title, title + "_before") if column in found]

    def rounds(self, group):
        return max((len(self.values.values(key)) for key in self.values if key[0] == group and key[2] != "line"),
                   default=0)

    def pairs(self, group, what, heading, lower_wins, scale=1):
        columns = self.columns(group, what)
        if not columns:
            return ""
        velos = [column for column in columns if column.startswith("velo")]
        rows = []
        for size_ in self.sizes(group, what):
            cells = {column: self.median(group, column, what, size_) for column in columns}
            others = [cells[column] for column in OTHERS if cells.get(column)]
            best = (min if lower_wins else max)(others, default=None)
            ratios = [ratio_text(cells[velo], other) for velo in velos
                      for other in (cells.get(MTL_OF[velo.removesuffix("_before")]), best)]
            rows.append([size(size_), *(number(None if cells[column] is None else cells[column] / scale)
                                        for column in columns), *ratios])
        lines = [self.median(group, column, "line", 0) for column in columns]
        if any(lines):
            rows.append(["one cache line, ns", *map(number, lines), *[""] * 2 * len(velos)])
        heads = ["", *map(title_of, columns),
                 *(f"{title_of(velo)} / {other}" for velo in velos for other in ("mtl", "best"))]
        return f"\n### {heading}\n\n" + tables.table(heads, "r" * len(heads), rows)

    def fetch(self):
        text = ""
        for column in self.columns("fetch", "fetch"):
            fetch, latency = self.median("fetch", column, "fetch", 8), self.median("latency", column, "latency", 8)
            text += (f"\nMPI_Fetch_and_op of 8 bytes, {title_of(column)}: {number(fetch)} us. Open MPI makes three "
                     f"atomics of it: one takes {ratio_text(fetch / 3, latency)} x the 8-byte one-way latency.\n")
        return text

    def idle(self):
        if not self.rounds("idle"):
            return ""
        rows = []
        for size_ in self.sizes("idle", "latency"):
            closed, opened = (self.median("idle", column, "latency", size_) for column in ("closed", "open"))
            rows.append([size(size_), fixed(closed, 3), fixed(opened, 3), ratio_text(opened, closed)])
        return ("\n### On node, the network's device open and silent\n\n"
                + tables.table(["", "closed, us", "open, us", "open / closed"], "rrrr", rows))

    def init(self):
        if not self.rounds("init"):
            return ""
        without, auto, ofi = (self.median("init", device, "init", 0) for device in ("sim", "auto", "ofi"))
        return (f"\nMPI_Init and MPI_Finalize of two ranks on a host, ms: without the device {fixed(without, 1)}, "
                f"`auto` {fixed(auto, 1)} ({ratio_text(auto, without)} x), `ofi` {fixed(ofi, 1)}.\n")

    def incast(self):
        text = ""
        for column in self.columns("incast", "rss"):
            before, computed, received = (self.median("incast", column, "rss", step) for step in (1, 2, 3))
            alone, meanwhile = (self.median("incast", column, "others", step) for step in (0, 1))
            text += (f"\nIncast, {title_of(column)}: the receiver's RSS is {before:.0f} KiB before 2 KiB messages "
                     f"come, {computed:.0f} after it computed while they came, {received:.0f} when all were received. "
                     f"A ping-pong of two others takes {number(alone)} us alone, {number(meanwhile)} meanwhile "
                     f"({ratio_text(meanwhile, alone)} x).\n")
        return text

    def peers(self):
        return "".join(f"\nResident memory for a peer spoken to, {title_of(column)}, {ranks} ranks: "
                       f"{self.median('peers', column, what, ranks):.1f} KiB.\n"
                       for group, column, what, ranks in sorted(self.values) if (group, what) == ("peers", "peer"))

    def npb(self):
        columns = self.columns("npb")
        if not columns:
            return ""
        velos = [column for column in columns if column.startswith("velo")]
        speeds, rows = Samples(), []
        for name, ranks in sorted({(what, ranks) for group, _, what, ranks in self.values if group == "npb"}):
            cells = {column: self.median("npb", column, name, ranks) for column in columns}
            rows.append([name, ranks, *map(number, cells.values()),
                         *(ratio_text(cells[velo], cells.get("tcp")) for velo in velos)])
            for velo in velos:
                if cells[velo] and cells.get("tcp"):
                    speeds.add((velo, ranks), cells[velo] / cells["tcp"])
        heads = ["", "ranks", *map(title_of, columns), *(f"{title_of(velo)} / btl/tcp" for velo in velos)]
        text = "\n### NAS Parallel Benchmarks, Mop/s in total\n\n"
        text += tables.table(heads, "l" + "r" * (len(heads) - 1), rows)
        return text + "".join(f"\nGeometric mean, {title_of(velo)} over btl/tcp, {ranks} ranks: "
                              f"{geometric_mean(speeds.values((velo, ranks))):.3f}.\n" for velo, ranks in speeds)

    def page(self, title):
        counts = ", ".join(f"{group} {self.rounds(group)}" for group in GROUPS if self.rounds(group))
        return (f"\n## {title}\n\nRounds: {counts}.\n"
                + self.pairs("latency", "latency", "One-way latency, us", True)
                + self.pairs("bandwidth", "bandwidth", "Streaming, one direction, MB/s", False)
                + self.pairs("bandwidth", "both", "Streaming, both directions, MB/s", False)
                + self.pairs("rate", "rate", "Message rate, window 64, million/s", False, 1e6)
                + self.fetch() + self.idle() + self.init() + self.incast() + self.peers() + self.npb())


def report(rows, places=tuple(PLACES)):
    measured = {row["where"] for row in rows}
    return "".join(Figures(rows, place).page(PLACES[place]) for place in places if place in measured)
