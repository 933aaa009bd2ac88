"""How far apart the CPUs were while something was measured: by the time of a cache line right before and after it."""

import itertools

NEAR_NS = 110  # below: near
FAR_NS = 160  # above: far


def distance(lines):
    """The word near, far or mixed, by readings in ns. Without a reading, as from a job that takes none: near."""
    if not lines or max(lines) < NEAR_NS:
        return "near"
    return "far" if min(lines) > FAR_NS else "mixed"


def placed(rows):
    """Each row with the distance right before and after it in its job. A reading has its own."""
    for _, job in itertools.groupby(rows, lambda row: (row["group"], row["round"], row["column"], row["where"])):
        job = list(job)
        lines = [(at, float(row["value"])) for at, row in enumerate(job) if row["measure"] == "line"]
        for at, row in enumerate(job):
            if row["measure"] == "line":
                yield row, distance([float(row["value"])])
            else:
                before = [line for read_at, line in lines if read_at < at][-1:]
                after = [line for read_at, line in lines if read_at > at][:1]
                yield row, distance(before + after)
