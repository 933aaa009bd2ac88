"""Measures what one slow receiver does to the others, between real processes over the software device (RDRP 4.1 and its
figure 6): senders keep a message under way to every receiver, ports have a rate, and the network holds a buffer's worth
on the way to each receiver. Once all receivers are as fast as their ports, and once the first one takes an eighth of
that. Prints what the others get, and the part of it that is left beside the slow one."""

from . import links
from .options import number, parser, words
from .stats import Samples

BUFFER = 256 << 10
# A window of one buffer is RDRP's advice: what the receiver asks for then never waits in the network.
CASES = {
    "one-get": {"btl_velo_chunk": 8 << 20, "btl_velo_window_bytes": 1 << 30},
    **links.WINDOWS,
    "window": {"btl_velo_chunk": 16 << 10, "btl_velo_window_bytes": BUFFER},
}


def arguments(given):
    options = parser("saturation", __doc__)
    add = options.add_argument
    add("--cases", type=words(*CASES), default=list(CASES), metavar="LIST",
        help="of one-get (a message is one get), default, as-without-link (8 chunks of 256 KiB), window "
             "(RDRP, a buffer's worth in 16 parts) (default: all)")
    add("--senders", type=number(1, 64), default=8, metavar="N", help="default: 8")
    add("--receivers", type=number(2, 64), default=4, metavar="N", help="with the slow one (default: 4)")
    add("--link", type=number(8, 1000000), default=40, metavar="N",
        help="bytes per microsecond of a port (default: 40, which leaves the CPUs idle)")
    links.add_options(options, "saturation", 6)
    return options.parse_args(given)


def label(case, slow):
    return f"{case}/slow" if slow else case


def table(samples, options):
    line = samples.median("line")
    lines = [f"{options.senders} senders, {options.receivers} receivers, messages of {options.bytes} bytes, ports of "
             f"{options.link} MB/s, medians of {options.rounds} rounds; line transfer {line or 0:.0f} ns",
             f"{'':16} {'others, MB/s':>13} {'beside slow':>12} {'left':>6} {'slow, MB/s':>11}"]
    for case in options.cases:
        alone, beside, slow = (samples.median(key) for key in
                               ((label(case, False), "others"), (label(case, True), "others"), (label(case, True), "slow")))
        if alone is None or beside is None:
            continue
        lines.append(f"{case:16} {alone:13.2f} {beside:12.2f} {beside / alone if alone else 0:6.2f} {slow:11.2f}")
    return "\n".join(lines)


def add_sample(samples, row):
    samples.add("line" if row.measure == "line" else (row.label, row.measure), row.value)


def main(given):
    options = arguments(given)
    samples = Samples()
    jobs = [(label(case, slow), ({"btl_velo_emulate": f"link={options.link},buffer={BUFFER}", **CASES[case]},
                                 (options.senders, options.bytes, options.seconds, options.link // 8 if slow else 0)))
            for case in options.cases for slow in (False, True)]
    ran = links.measure(options, "saturation", options.senders + options.receivers, jobs,
                        lambda row: add_sample(samples, row))
    return ran.finish(table(samples, options))
