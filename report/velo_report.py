#!/usr/bin/env python3
"""Turns the files that btl_velo_trace wrote (docs/trace.md) into one HTML page that needs nothing else."""

import argparse
import bisect
import collections
import html
import json
import re
import sys
import time

VERSION = "@VERSION@"
TRACE_VERSION = 1
PAGE = r'''
@PAGE@
'''

# Every file of a job must agree on these.
COMMON = ("job", "size", "mode", "peers", "mailbox_slots", "data_slots", "credit_slots", "quota")
HEADER_NUMBERS = ("job", "rank", "size", "peers", "mailbox_slots", "data_slots", "credit_slots", "quota", "period_ms",
                  "start_ns", "start_unix")
# Numbers behind the letter of each kind of line; a counter's name comes before its value.
FIELDS = {"s": 7, "a": 2, "p": 6, "w": 2, "e": 2}
# Points of a timeline that a page holds, over all pairs of ranks.
POINTS_MAX = 240_000
POINTS_OF_PAIR = (30, 120)
NUMBER = re.compile(r"[0-9]{1,20}\Z", re.ASCII)
RANKS_MAX = 1 << 24  # nodes times ranks of one, as far as velo goes

Credits = collections.namedtuple("Credits", "held granted quota stalls stall_ns")


class BadTrace(Exception):
    """File, line and remedy, for the user."""

    def __init__(self, path, line, text):
        super().__init__(f"{path}:{line}: {text}" if line else f"{path}: {text}")


class Trace:
    """One rank's file. Times are microseconds since its start_ns."""

    def __init__(self, path, partial=False):
        self.path = path
        self.samples = collections.defaultdict(list)  # peer -> [(us, Credits)], in order of time
        self.available = []  # (us, slots)
        self.totals = {}  # peer -> Credits
        self.waits = {}  # power of two of ns -> count
        self.counters = {}
        self.end_us = None
        try:
            with open(path, encoding="ascii") as file:
                lines = file.read().split("\n")
        except OSError as error:
            raise BadTrace(path, 0, f"cannot be read ({error.strerror}); give the files that btl_velo_trace wrote, such "
                           "as FILE.*") from None
        except UnicodeDecodeError:
            raise BadTrace(path, 1, "is not a trace of velo; give the files that btl_velo_trace wrote") from None
        cut = lines.pop()  # behind the last newline
        self.read_header(lines[0] if lines else cut)
        last_us = 0
        for number, line in enumerate(lines[1:], 2):
            if self.end_us is not None:
                raise BadTrace(path, number, "goes on behind its end; two processes wrote it. Run the job again, with %j "
                               "in the name if it spawns others")
            last_us = max(last_us, self.read_line(number, line))
        if self.end_us is None and not partial:
            raise BadTrace(path, len(lines) + bool(cut), "is cut off before its totals: the rank ended without "
                           "MPI_Finalize, still runs, or could not write. Use the file of a whole run, or show what is "
                           "there with --partial")
        self.whole = self.end_us is not None
        if not self.whole:
            self.end_us = last_us
            self.totals = {peer: samples[-1][1] for peer, samples in self.samples.items()}

    def read_header(self, line):
        words = line.split(" ")
        if words[0] != "velo-trace" or len(words) < 2:
            raise BadTrace(self.path, 1, "is not a trace of velo; give the files that btl_velo_trace wrote")
        if words[1] != str(TRACE_VERSION):
            raise BadTrace(self.path, 1, f"is a trace of version {words[1]}, and this velo_report reads version "
                           f"{TRACE_VERSION}; use the velo_report of the velo that ran the job")
        self.header = dict(word.split("=", 1) for word in words[2:] if "=" in word)
        for name in HEADER_NUMBERS:
            if not NUMBER.match(self.header.get(name, "")):
                raise BadTrace(self.path, 1, f"has no number {name} in its first line; the file is damaged, use "
                               "another copy or run the job again")
            self.header[name] = int(self.header[name])
        self.header.setdefault("mode", "?")
        self.rank, self.size = self.header["rank"], self.header["size"]
        if self.rank >= self.size or self.size > RANKS_MAX:
            self.damaged(1, f"has rank {self.rank} of {self.size}")

    def damaged(self, number, what):
        raise BadTrace(self.path, number, f"{what}; the file is damaged, use another copy or run the job again")

    def read_line(self, number, line):
        """Takes one line; returns its time, or 0."""
        kind, _, rest = line.partition(" ")
        words = rest.split(" ")
        if kind == "c" and len(words) == 2 and NUMBER.match(words[1]):
            self.counters[words[0]] = int(words[1])
            return 0
        if kind not in FIELDS or len(words) != FIELDS[kind] or not all(NUMBER.match(word) for word in words):
            self.damaged(number, f"'{line[:60]}' is no line of a trace")
        values = [int(word) for word in words]
        if kind in "sp":
            us, values = (values[0], values[1:]) if kind == "s" else (0, values)
            peer, credits = values[0], Credits(*values[1:])
            if peer >= self.size:
                self.damaged(number, f"names rank {peer} of {self.size}")
            if kind == "p":
                self.totals[peer] = credits
                return 0
            samples = self.samples[peer]
            if samples and us < samples[-1][0]:
                self.damaged(number, f"goes back in time, to {us} us")
            samples.append((us, credits))
            return us
        if kind == "a":
            self.available.append((values[0], values[1]))
            return values[0]
        if kind == "w":
            self.waits[values[0]] = values[1]
            return 0
        if values[1] != number - 1:
            self.damaged(number, f"has {number - 1} lines before its end instead of {values[1]}")
        self.end_us = values[0]
        return values[0]


def read_job(paths, partial):
    """All files of one job, by rank."""
    traces = {}
    first = None
    for path in paths:
        trace = Trace(path, partial)
        first = first or trace
        for name in COMMON:
            if trace.header.get(name) != first.header.get(name):
                raise BadTrace(path, 1, f"{name} is {trace.header.get(name)}, but {first.header.get(name)} in "
                               f"{first.path}: they are of different jobs. Give the files of one job; remove those of "
                               "an earlier run")
        if trace.rank in traces:
            raise BadTrace(path, 1, f"is of rank {trace.rank} again, as is {traces[trace.rank].path}; give each rank "
                           "once")
        traces[trace.rank] = trace
    return dict(sorted(traces.items()))


def at_points(samples, points_us, value):
    """[point, value, ...]: what `value` was at each point of time, where it changed; -1 before the first sample."""
    times = [us for us, _ in samples]
    changes, last = [], -1
    for point, us in enumerate(points_us):
        index = bisect.bisect_right(times, us) - 1
        now = value(samples[index][1]) if index >= 0 else -1
        if now != last:
            changes += [point, now]
            last = now
    return changes


def mean_over_time(samples, end_us, value):
    """Weighted by time, from the first sample to the end."""
    span = end_us - samples[0][0]
    if span <= 0:
        return float(value(samples[-1][1]))
    edges = [us for us, _ in samples[1:]] + [end_us]
    return sum(value(credits) * (edge - us) for (us, credits), edge in zip(samples, edges)) / span


def job_data(traces):
    """Data for the page's script: numbers of the files, and timelines at points that all ranks share."""
    first = next(iter(traces.values()))
    zero_ns = min(trace.header["start_ns"] for trace in traces.values())
    offsets = {rank: (trace.header["start_ns"] - zero_ns) // 1000 for rank, trace in traces.items()}
    begin_us = min((samples[0][0] + offsets[rank] for rank, trace in traces.items()
                    for samples in trace.samples.values()), default=0)
    end_us = max([trace.end_us + offsets[rank] for rank, trace in traces.items()] + [begin_us + 1])
    pairs = sum(len(trace.totals) for trace in traces.values())
    points = min(POINTS_OF_PAIR[1], max(POINTS_OF_PAIR[0], POINTS_MAX // max(pairs, 1)))
    points_us = [begin_us + (end_us - begin_us) * (point + 1) // points for point in range(points)]
    ranks = []
    for rank, trace in traces.items():
        own_us = [us - offsets[rank] for us in points_us]
        peers = []
        for peer, total in sorted(trace.totals.items()):
            samples = trace.samples.get(peer) or [(0, total)]
            peers.append({
                "peer": peer,
                "stalls": total.stalls,
                "stall_ns": total.stall_ns,
                "mean_held": round(mean_over_time(samples, trace.end_us, lambda c: c.held), 3),
                "mean_granted": round(mean_over_time(samples, trace.end_us, lambda c: c.granted), 3),
                "held": at_points(samples, own_us, lambda c: c.held),
                "granted": at_points(samples, own_us, lambda c: c.granted),
                "quota": at_points(samples, own_us, lambda c: c.quota),
                "stalled_us": at_points(samples, own_us, lambda c: c.stall_ns // 1000),
            })
        ranks.append({"rank": rank, "peers": peers, "waits": sorted(trace.waits.items()), "counters": trace.counters,
                      "available": at_points(trace.available, own_us, lambda slots: slots)})
    return {"header": {name: first.header[name] for name in COMMON}, "begin_us": begin_us, "end_us": end_us,
            "points": points, "ranks": ranks}


def duration(ns):
    """Three digits and a unit."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}" if ns < 999.5 * size else f"{ns / size:,.0f} {unit}"
    return f"{ns} ns"


def table(caption, head, rows):
    cells = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in head)
    text = [f"<table><caption>{html.escape(caption)}</caption><thead><tr>{cells}</tr></thead><tbody>"]
    for row in rows:
        name, *values = row
        text.append(f'<tr><th scope="row">{html.escape(str(name))}</th>' +
                    "".join(f"<td>{html.escape(value if isinstance(value, str) else f'{value:,}')}</td>"
                            for value in values) + "</tr>")
    return "".join(text) + "</tbody></table>"


RANK_COLUMNS = (("messages", "velo_tx_messages"), ("packets", "velo_tx_packets"),
                ("credit packets", "credits_tx_packets"), ("credits in them", "credits_tx_explicit"),
                ("piggybacked", "credits_tx_piggybacked"), ("got back", "credits_rx"))


def rank_table(traces):
    rows = []
    for rank, trace in traces.items():
        stalls = sum(total.stalls for total in trace.totals.values())
        ns = sum(total.stall_ns for total in trace.totals.values())
        worst = max(trace.totals.items(), key=lambda item: item[1].stall_ns, default=(None, None))[0] if ns else None
        rows.append([rank] + [trace.counters.get(counter, "–") for _, counter in RANK_COLUMNS] +
                    [stalls, duration(ns), duration(ns // stalls) if stalls else "–",
                     "–" if worst is None else f"{worst}"])
    return table("Sent through the device by each rank, and its waits", ["rank"] + [name for name, _ in RANK_COLUMNS] +
                 ["stalls", "stall time", "mean wait", "longest on"], rows)


def counter_table(traces):
    rows = []
    names = list(dict.fromkeys(name for trace in traces.values() for name in trace.counters))
    for name in names:
        values = {rank: trace.counters[name] for rank, trace in traces.items() if name in trace.counters}
        if not any(values.values()):
            continue
        high = max(values, key=values.get)
        rows.append([name, sum(values.values()), min(values.values()), values[high], f"{high}"])
    return table("Counters that moved (docs/counters.md)", ["counter", "sum", "lowest", "highest", "at rank"], rows)


def pair_table(traces):
    pairs = [(total.stall_ns, total.stalls, rank, peer) for rank, trace in traces.items()
             for peer, total in trace.totals.items() if total.stalls]
    pairs.sort(key=lambda pair: (-pair[0], pair[2], pair[3]))
    return table("The pairs that waited longest", ["from → to", "stall time", "stalls", "mean wait"],
                 [[f"{rank} → {peer}", duration(ns), stalls, duration(ns // stalls)]
                  for ns, stalls, rank, peer in pairs[:10]])


def ranges(numbers):
    """0 1 2 5 -> '0-2, 5'."""
    parts = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def notes(traces):
    first = next(iter(traces.values()))
    text = []
    missing = [rank for rank in range(first.size) if rank not in traces]
    if missing:
        text.append(f"No files of {len(missing)} of {first.size} ranks: {ranges(missing)}. Their waits are not "
                    "here.")
    cut = [rank for rank, trace in traces.items() if not trace.whole]
    if cut:
        text.append(f"The files of ranks {ranges(cut)} are cut off: their totals are those of the last samples, and they "
                    "have no counters and no histogram.")
    if first.header["mode"] in ("none", "hardware"):
        text.append(f"Flow control '{first.header['mode']}' has no credits, so nothing can wait for them.")
    return text


def tiles(traces, data):
    header = data["header"]
    stalls = sum(total.stalls for trace in traces.values() for total in trace.totals.values())
    ns = sum(total.stall_ns for trace in traces.values() for total in trace.totals.values())
    facts = [("ranks", f"{header['size']}"), ("flow control", str(header["mode"])),
             ("slots a mailbox", f"{header['mailbox_slots']:,}"), ("senders a mailbox", f"{header['peers']:,}"),
             ("traced", duration((data["end_us"] - data["begin_us"]) * 1000)), ("stalls", f"{stalls:,}"),
             ("stall time, all ranks", duration(ns))]
    return "".join(f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>" for name, value in facts)


def page(traces):
    data = job_data(traces)
    first = next(iter(traces.values()))
    started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(first.header["start_unix"]))
    parts = {
        "TITLE": f"Credits of job {data['header']['job']}, {data['header']['size']} ranks",
        "STARTED": started,
        "TILES": tiles(traces, data),
        "NOTES": "".join(f'<p class="note">{html.escape(note)}</p>' for note in notes(traces)),
        "PAIRS": pair_table(traces),
        "RANKS": rank_table(traces),
        "COUNTERS": counter_table(traces),
        "DATA": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    }
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda match: parts[match.group(1)], PAGE.strip("\n")) + "\n"


def main():
    parser = argparse.ArgumentParser(prog="velo_report", description="Makes one HTML page of the files that a job's ranks "
                                     "wrote with btl_velo_trace.")
    parser.add_argument("files", metavar="FILE", nargs="+", help="the ranks' files")
    parser.add_argument("-o", "--output", metavar="PAGE", default="report.html", help="the page (default: report.html)")
    parser.add_argument("--partial", action="store_true", help="also take files that are cut off")
    parser.add_argument("--version", action="version", version=f"velo_report {VERSION}")
    arguments = parser.parse_args()
    try:
        traces = read_job(arguments.files, arguments.partial)
    except BadTrace as error:
        print(f"velo_report: {error}", file=sys.stderr)
        return 1
    text = page(traces)
    try:
        with open(arguments.output, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        print(f"velo_report: {arguments.output}: cannot be written ({error.strerror}); name another file with -o",
              file=sys.stderr)
        return 1
    for note in notes(traces):
        print(f"velo_report: {note}", file=sys.stderr)
    print(f"{arguments.output}: {len(traces)} ranks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
