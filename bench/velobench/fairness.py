"""Measures what slow senders cost a fast one, between real processes over the software device: a receiver fetches from
a fast sender and, at the same time, from slow ones, each of which brings its data at the hundredth part of the rate
(btl_velo_emulate). The ports are faster than all senders together, so what is shared is the receiver's window. Prints
what the fast sender gets by the number of slow ones, and the part of it that is left."""

from . import links
from .options import number, numbers, parser, words
from .stats import Samples

PORT = 4  # times the rate of the fast sender
FAST = "1-0"
CASES = {
    **links.WINDOWS,
    "small": {"btl_velo_chunk": 128 << 10, "btl_velo_window_bytes": 256 << 10},
    "one-chunk": {"btl_velo_window_bytes": 256 << 10},
    "no-window": {"btl_velo_window_bytes": 256 * (256 << 10)},
}


def arguments(given):
    options = parser("fairness", __doc__)
    add = options.add_argument
    add("--cases", type=words(*CASES), default=list(CASES), metavar="LIST",
        help="of default (8 chunks of 32 KiB), as-without-link (8 of 256 KiB), small (2 of "
             "128 KiB), one-chunk (of 256 KiB), no-window (256 of 256 KiB) (default: all)")
    add("--slow", type=numbers(0, "numbers of slow senders"), default=[0, 1, 4], metavar="LIST",
        help="numbers of slow senders, 0 in front (default: 0,1,4)")
    add("--rate", type=number(1, 250000), default=400, metavar="N",
        help="bytes per microsecond of the fast sender (default: 400, which leaves the CPUs idle)")
    add("--factor", type=number(1, 250000), default=100, metavar="N",
        help="by which a slow sender is slower (default: 100)")
    links.add_options(options, "fairness", 3)
    chosen = options.parse_args(given)
    if chosen.factor > chosen.rate:
        options.error("a slow sender brings a byte per microsecond or more: lower --factor")
    return chosen


def label(case, slow):
    return f"{case}/{slow}"


def table(samples, options):
    line = samples.median("line")
    lines = [f"a sender of {options.rate} MB/s beside slow ones of {options.rate // options.factor}, messages of "
             f"{options.bytes} bytes, medians of {options.rounds} rounds; line transfer {line or 0:.0f} ns",
             f"{'':16} {'slow ones':>9} {'fast, MB/s':>11} {'left':>6} {'a slow one, MB/s':>17}"]
    for case in options.cases:
        alone = samples.median((label(case, options.slow[0]), "fast"))
        for slow in options.slow:
            fast, each = (samples.median((label(case, slow), which)) for which in ("fast", "slow"))
            if fast is None:
                continue
            left = f"{fast / alone:.3f}" if alone else "-"
            lines.append(f"{case:16} {slow:9} {fast:11.2f} {left:>6} {'-' if each is None else f'{each:.2f}':>17}")
    return "\n".join(lines)


def add_sample(samples, row):
    if row.measure == "line":
        samples.add("line", row.value)
    else:
        samples.add((row.label, "fast" if row.where == FAST else "slow"), row.value)


def main(given):
    options = arguments(given)
    samples = Samples()
    jobs = [(label(case, slow), ({"btl_velo_emulate": f"link={PORT * options.rate}", **CASES[case]},
                                 (slow, options.bytes, options.seconds, options.rate, options.factor)))
            for case in options.cases for slow in options.slow]
    ran = links.measure(options, "fairness", 2 + max(options.slow), jobs, lambda row: add_sample(samples, row))
    return ran.finish(table(samples, options))
