"""The tables of `hosts`: medians over rounds."""

from . import tables
from .distance import placed
from .stats import Samples, geometric_mean, ratio
from .tables import NONE, fixed, size

GROUPS = ("latency", "bandwidth", "rate", "fetch", "idle", "init", "incast", "peers", "npb")
TITLES = {"velo_net": "velo net", "velo_rxm": "velo rxm", "velo_mtl_net": "velo's MTL net",
          "velo_mtl_rxm": "velo's MTL rxm", "mtl_net": "mtl/ofi net", "mtl_rxm": "mtl/ofi rxm", "tcp": "btl/tcp",
          "ucx": "UCX tcp", "fabric_net": "libfabric net", "fabric_rxm": "libfabric rxm", "socket": "socket"}
# Of the same provider, for targets that compare with mtl/ofi and with libfabric alone.
MTL_OF = {column: "mtl_" + column.rsplit("_", 1)[1] for column in TITLES if column.startswith("velo")}
FABRIC_OF = {column: "fabric_" + column.rsplit("_", 1)[1] for column in MTL_OF}
OTHERS = ("mtl_net", "mtl_rxm", "tcp", "ucx")
# Figures of a pair of cores, by groups.
BY_DISTANCE = ("latency", "bandwidth", "rate", "idle")


def title_of(column):
    return TITLES[column.removesuffix("_before")] + " before" * column.endswith("_before")


def number(value):
    return tables.figure(value, 2)


def ratio_text(one, other):
    return fixed(ratio(one, other)) if one else NONE


def ratio_cell(value):
    return fixed(value) if value else NONE


class Figures:
    """Of one place; those of BY_DISTANCE at one distance of the cores."""

    def __init__(self, rows, place, distance):
        self.values = Samples()
        for row, found in placed(rows):
            if row["where"] == place and (found == distance or row["group"] not in BY_DISTANCE):
                self.values.add((row["group"], row["column"], row["measure"], int(row["size"])), row["value"])

    def median(self, *key):
        """Of group, column, measure and size."""
        return self.values.median(key)

    def sizes(self, group, what, of=None):
        return sorted({size_ for g, column, w, size_ in self.values if (g, w) == (group, what) and of in (None, column)})

    def columns(self, group, what=None):
        found = {column for g, column, w, _ in self.values if g == group and what in (None, w)}
        return [column for title in TITLES for column in (title, title + "_before") if column in found]

    def rounds(self, group):
        return max((len(self.values.values(key)) for key in self.values if key[0] == group and key[2] != "line"),
                   default=0)

    def offsets(self, group, what):
        """The measure at each offset of the memory that was measured, as rows name it."""
        names = {name for g, _, name, _ in self.values if g == group and name.split("@")[0] == what}
        return sorted(names, key=lambda name: int(name.partition("@")[2] or 0))

    def ratios(self, group, name, column, size_, lower_wins):
        """velo's figure over mtl/ofi's, the best other MPI's, and libfabric's own."""
        def of(other):
            return self.median(group, other, name, size_)
        best = (min if lower_wins else max)(filter(None, map(of, OTHERS)), default=None)
        plain = column.removesuffix("_before")
        return [ratio(of(column), other) for other in (of(MTL_OF[plain]), best, of(FABRIC_OF[plain]))]

    def pairs(self, group, what, heading, lower_wins, scale=1):
        """The worst ratios of the offsets, and then the figures at each of them."""
        names = self.offsets(group, what)
        columns = [column for column in self.columns(group) if any(self.sizes(group, name, column) for name in names)]
        if not columns:
            return ""
        velos = [column for column in columns if column.startswith("velo")]
        sizes = sorted({size_ for name in names for size_ in self.sizes(group, name)})
        text = f"\n### {heading}\n"
        if velos:
            worst = max if lower_wins else min
            rows = []
            for size_ in sizes:
                cells = []
                for velo in velos:
                    at_offsets = zip(*(self.ratios(group, name, velo, size_, lower_wins) for name in names))
                    # The worst of fewer offsets may be a better one.
                    cells += [ratio_cell(worst(found) if all(found) else None) for found in at_offsets]
                rows.append([size(size_), *cells])
            heads = ["worst", *(f"{title_of(velo)} / {other}" for velo in velos for other in ("mtl", "best", "libfabric"))]
            text += "\n" + tables.table(heads, "r" * len(heads), rows)
        for name in names:
            rows = []
            for size_ in self.sizes(group, name):
                cells = [self.median(group, column, name, size_) for column in columns]
                rows.append([size(size_), *(number(None if cell is None else cell / scale) for cell in cells)])
            heads = ["offset " + name.partition("@")[2] if "@" in name else "", *map(title_of, columns)]
            text += "\n" + tables.table(heads, "r" * len(heads), rows)
        lines = [self.median(group, column, "line", 0) for column in columns]
        if any(lines):
            text += ("\nOne cache line, ns: "
                     + ", ".join(f"{title_of(column)} {number(line)}" for column, line in zip(columns, lines) if line) + ".\n")
        return text

    def fetch(self):
        text = ""
        for column in self.columns("fetch", "fetch"):
            name = (self.offsets("latency", "latency") or ["latency"])[0]
            fetch, latency = self.median("fetch", column, "fetch", 8), self.median("latency", column, name, 8)
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

    def of_distance(self):
        return (self.pairs("latency", "latency", "One-way latency, us", True)
                + self.pairs("bandwidth", "bandwidth", "Streaming, one direction, MB/s", False)
                + self.pairs("bandwidth", "both", "Streaming, both directions, MB/s", False)
                + self.pairs("rate", "rate", "Message rate, window 64, million/s", False, 1e6)
                + self.idle())

    def others(self):
        return self.fetch() + self.init() + self.incast() + self.peers() + self.npb()

    def counts(self):
        return ", ".join(f"{group} {self.rounds(group)}" for group in GROUPS if self.rounds(group))


def title_of_place(place):
    name, _, rate = place.partition(" ")
    title = {"veth": "Two hosts in namespaces, joined by veth", "loopback": "One host, over lo"}[name]
    return title + (f", links of {rate.replace('gbit', ' Gb/s')}" if rate else "")


def report(rows, only=""):
    """`only`: places that begin so."""
    text = ""
    for place in sorted({row["where"] for row in rows if row["where"].startswith(only)}, key=natural):
        figures = {distance: Figures(rows, place, distance) for distance in ("near", "far")}
        text += f"\n## {title_of_place(place)}\n\nRounds: {figures['near'].counts()}.\n"
        for distance, found in figures.items():
            tables_ = found.of_distance()
            if tables_:
                text += f"\nCores: {distance}.\n" + tables_
        text += figures["near"].others()
    return text


def natural(place):
    """veth before veth 10gbit before veth 25gbit before loopback."""
    name, _, rate = place.partition(" ")
    return name != "veth", int(rate.removesuffix("gbit") or 0)
