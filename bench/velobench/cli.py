"""The commands of bench/run."""

import importlib
import sys

from .openmpi import Failed

COMMANDS = {
    "compare": "velo beside the machine's other shared-memory transports, and which targets it meets",
    "hosts": "velo between hosts beside mtl/ofi, btl/tcp, UCX and a bare socket",
    "imb": "your Intel MPI Benchmarks over velo's layouts, Open MPI's shared memory and tcp",
    "npb": "your NAS Parallel Benchmarks over the same",
    "real": "the modes of flow control between real ranks: IBFC's figures, many ranks, cost",
    "instructions": "instructions of a message on either side, by library",
    "outstanding": "time and memory of messages that wait for a sleeping receiver",
    "saturation": "a slow receiver beside others, over emulated links",
    "fairness": "a fast sender beside slow ones, over emulated links",
    "flood": "memory of both ends under a flood of messages before their receives",
    "killer": "MEM's benchmark of unexpected messages, with memory for all of them, some and none",
    "depth": "the time of a message behind others that wait, posted or unexpected",
    "figures": "the figures of the paper FC from simulated runs; with --pictures, the pictures of all CSVs",
    "mem": "MEM's figure 12 from simulated runs of engines that match",
    "robust": "flow control where partners change, and where they do not, simulated",
    "demo": "all paths of velo in one job, as ./demo shows them after its build",
}


def usage():
    lines = [f"  {name:13} {text}" for name, text in COMMANDS.items()]
    return "\n".join(["usage: bench/run COMMAND [options]; bench/run COMMAND --help", *lines])


def main(arguments):
    """The exit status: 0, 1 when something failed, 2 on wrong usage."""
    if arguments[:1] in (["--help"], ["-h"]):
        print(usage())
        return 0
    if not arguments or arguments[0] not in COMMANDS:
        given = f"there is no command '{arguments[0]}'" if arguments else "a command is missing"
        print(f"bench/run: {given}\n{usage()}", file=sys.stderr)
        return 2
    name = arguments[0]
    try:
        return importlib.import_module("velobench." + name).main(arguments[1:]) or 0
    except Failed as end:
        print(f"\nbench/run {name}: {end}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
