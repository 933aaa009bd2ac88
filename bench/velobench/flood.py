"""Memory of a flood of messages that come before their receives.

Many messages at once to a receiver that computes, over velo's MTL with the default budgets, with small ones and with none, over
ob1 and velo's BTL, and over vader, in turn. It prints by how much the receiver's memory grows, beside the bound that its budgets
set, what a waiting message costs its sender, and how long the receiver takes for all of them."""

import itertools

from .openmpi import Jobs, OpenMpi, check_plugin, of_jobs
from .options import number, numbers, parser, words
from .stats import Samples

# Records and data, bytes; the parameters' defaults.
BUDGETS = {"mtl": (16 << 20, 64 << 20), "small": (64 << 10, 256 << 10), "none": (0, 0)}
COLUMNS = (*BUDGETS, "btl", "vader")
# Beside its budgets a receiver may use so much, and so much for each of its peers.
BESIDE_BYTES = 64 << 10
PEER_BYTES = 256


def arguments(given):
    options = parser("flood", __doc__)
    add = options.add_argument
    add("--columns", type=words(*COLUMNS), default=list(COLUMNS), metavar="LIST",
        help="of mtl, small, none (budgets of velo's MTL), btl, vader (default: all)")
    add("--np", type=numbers(2, "ranks"), default=[2, 8, 32], metavar="LIST", help="ranks (default: 2,8,32)")
    add("--count", type=number(1, 1000000000), default=1000000, metavar="N", help="messages in all (default: 1000000)")
    add("--sizes", type=numbers(0, "bytes"), default=[0, 8, 1024], metavar="LIST",
        help="bytes of a message (default: 0,8,1024)")
    of_jobs(add, "flood", rounds=1, timeout=300)
    return options.parse_args(given)


def bound(column, ranks):
    """Most bytes by which a receiver may grow; None: there is no bound."""
    if column not in BUDGETS:
        return None
    return sum(BUDGETS[column]) + BESIDE_BYTES + (ranks - 1) * PEER_BYTES


def table(samples, options):
    lines = [f"{options.count} messages before their receives; medians of {options.rounds} rounds", "",
             "| ranks | bytes | column | receiver KiB | bound KiB | met | sender, B a message | s |",
             "|--:|--:|:--|--:|--:|:--|--:|--:|"]
    for ranks in options.np:
        for size in options.sizes:
            for column in options.columns:
                receiver, sender, taken = (samples.median((column, f"np{ranks}", measure, size))
                                           for measure in ("receiver", "sender", "s"))
                if receiver is None:
                    continue
                most = bound(column, ranks)
                met = "–" if most is None else "yes" if receiver <= most else "**no**"
                lines.append(f"| {ranks} | {size} | {column} | {receiver / 1024:.0f} | "
                             f"{'–' if most is None else format(most / 1024, '.0f')} | {met} | {sender:.0f} | {taken:.2f} |")
    return "\n".join(lines)


def main(given):
    options = arguments(given)
    check_plugin(options.plugin)
    mpi = OpenMpi()
    jobs = Jobs(mpi, "flood", options.out, options.timeout)
    samples = Samples()
    for round_, ranks, size, column in itertools.product(range(1, options.rounds + 1), options.np, options.sizes,
                                                         options.columns):
        mca = dict(zip(("btl_velo_unexpected_records", "btl_velo_unexpected_bytes"), BUDGETS.get(column, ())))
        command = mpi.command(ranks, mpi.sm if column == "vader" else "velo", options.plugin, yields=True,
                              pml="cm" if column in BUDGETS else "ob1", mca=mca)
        for row in jobs.run(round_, command, (column, options.count, size), f"{column}-{ranks}-{size}"):
            samples.add((row.label, row.where, row.measure, row.size), row.value)
    return jobs.finish(table(samples, options))
