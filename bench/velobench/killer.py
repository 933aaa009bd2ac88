"""MEM's killer benchmark (figures 11 and 12): many messages before their receives, which come in reverse order.

Runs it over velo's MTL with memory for all messages, for all and with each of them asked for (as in the paper, where each
message is a rendezvous), for a tenth, and for none; over ob1 and velo's BTL, and over vader; all in turn. It prints the time of
a message beside that with memory for all. The paper says that shortage costs at most twice the time, with 3 and 5
messages a sender of 1, 10 and 100 KiB."""

import itertools

from .openmpi import Jobs, OpenMpi, check_plugin, of_jobs
from .options import number, numbers, parser
from .stats import Samples, ratio

COLUMNS = ("plenty", "asked", "tenth", "none", "btl", "vader")
RECORD_BYTES = 64
CELL_BYTES = 256
CELL_DATA_BYTES = 248


def arguments(given):
    options = parser("killer", __doc__)
    add = options.add_argument
    add("--np", type=numbers(2, "ranks"), default=[4], metavar="LIST", help="ranks (default: 4)")
    add("--messages", type=numbers(1, "messages"), default=[3, 5, 100, 1000, 10000], metavar="LIST",
        help="of a sender (default: 3,5,100,1000,10000)")
    add("--sizes", type=numbers(0, "bytes"), default=[8, 1024, 10240, 102400], metavar="LIST",
        help="bytes of a message (default: 8,1024,10240,102400)")
    add("--bytes-max", type=number(1, 1 << 40), default=64 << 20, metavar="N",
        help="a job of more bytes in all is left out (default: 64 MiB)")
    add("--runs", type=number(1, 1000000), default=5, metavar="N",
        help="of a job, of which the least time counts; with hundreds, memory is in use before (default: 5)")
    of_jobs(add, "killer", rounds=3, timeout=60)
    return options.parse_args(given)


def budgets(column, messages, size, ranks):
    """Records and data for this part of all messages that can be unexpected."""
    if column == "asked":
        return {"btl_velo_unexpected_granted": 0}
    part = {"tenth": 0.1, "none": 0}.get(column)
    if part is None:
        return {}
    count = messages * (ranks - 1)
    cells = -(-size // CELL_DATA_BYTES) if size > 24 else 0
    return {"btl_velo_unexpected_records": int(count * RECORD_BYTES * part),
            "btl_velo_unexpected_bytes": int(count * cells * CELL_BYTES * part)}


def table(samples, options):
    lines = [f"us a message, least of {options.runs} runs, medians of rounds; ratios to memory for all; B: the receiver's growth a message", "",
             "| ranks | messages | bytes | " + " | ".join(COLUMNS) + " | tenth / plenty | none / plenty | none / asked | plenty B | btl B | vader B |",
             "|--:" * (len(COLUMNS) + 9) + "|"]
    for ranks in options.np:
        for messages in options.messages:
            for size in options.sizes:
                value = {column: samples.median((ranks, column, messages, "us", size)) for column in COLUMNS}
                grown = [samples.median((ranks, column, messages, "grown", size)) for column in ("plenty", "btl", "vader")]
                if all(us is None for us in value.values()):
                    continue
                ratios = [ratio(value[column], value[other])
                          for column, other in (("tenth", "plenty"), ("none", "plenty"), ("none", "asked"))]
                lines.append(f"| {ranks} | {messages} | {size} | "
                             + " | ".join("-" if us is None else f"{us:.2f}" for us in value.values()) + " | "
                             + " | ".join("-" if each is None else f"{each:.2f}" for each in ratios) + " | "
                             + " | ".join("-" if each is None else f"{each:.0f}" for each in grown) + " |")
    return "\n".join(lines)


def main(given):
    options = arguments(given)
    check_plugin(options.plugin)
    mpi = OpenMpi()
    jobs = Jobs(mpi, "killer", options.out, options.timeout, "ranks")
    samples = Samples()
    for round_, ranks, messages, size, column in itertools.product(range(1, options.rounds + 1), options.np,
                                                                   options.messages, options.sizes, COLUMNS):
        if messages * size * (ranks - 1) > options.bytes_max:
            continue
        command = mpi.command(ranks, mpi.sm if column == "vader" else "velo", options.plugin, yields=True,
                              pml="ob1" if column in ("btl", "vader") else "cm",
                              mca=budgets(column, messages, size, ranks))
        for row in jobs.run(round_, command, (column, messages, size, options.runs),
                            f"{column}-{ranks}-{messages}-{size}", ranks):
            samples.add((ranks, row.label, messages, row.measure, row.size), row.value)
    return jobs.finish(table(samples, options))
