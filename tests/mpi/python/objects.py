"""Pickled objects, buffers, one-sided communication and spawned processes, through mpi4py.

Debian's mpi4py over whatever transport mpirun was told. Needs nothing but the standard library. Its last line is
PASS or FAIL, from rank 0. Started as a child by spawn().
"""
import array
import faulthandler
import sys

# A spawned process may hang in MPI_Init for Open MPI's own reasons (spawned.h); the script then starts again.
faulthandler.dump_traceback_later(30, exit=True)
from mpi4py import MPI
faulthandler.cancel_dump_traceback_later()
from mpi4py.util import pkl5

WORLD = MPI.COMM_WORLD


def expect(got, wanted, what):
    if got != wanted:
        raise AssertionError(f"rank {WORLD.rank}: {what}: {str(got)[:80]} instead of {str(wanted)[:80]}")


def thing(seed, count):
    """An object of about `count` elements that no other seed makes."""
    return {"seed": seed, "numbers": list(range(seed, seed + count)), "text": str(seed) * count, "none": None}


def objects(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for count in (0, 1, 50, 1000, 40000):
        expect(comm.sendrecv(thing(comm.rank, count), right, 1, None, left, 1), thing(left, count), "sendrecv")
        request = comm.isend(thing(comm.rank, count), right, 2)
        expect(comm.mprobe(left, 2).recv(), thing(left, count), "matched probe")
        request.wait()
    expect(comm.allgather(thing(comm.rank, 30)), [thing(r, 30) for r in range(comm.size)], "allgather")
    expect(comm.alltoall([(comm.rank, r) for r in range(comm.size)]), [(r, comm.rank) for r in range(comm.size)],
           "alltoall")
    expect(comm.bcast(thing(7, 5000) if comm.rank == 0 else None), thing(7, 5000), "bcast")
    expect(comm.allreduce([comm.rank]), list(range(comm.size)), "allreduce of lists")


def out_of_band(comm):
    """Pickle protocol 5: large buffers go as messages of their own."""
    comm = pkl5.Intracomm(comm)
    right, left = (comm.Get_rank() + 1) % comm.Get_size(), (comm.Get_rank() - 1) % comm.Get_size()
    payload = [bytearray([comm.Get_rank() + 1]) * size for size in (1, 5000, 3000000)]
    request = comm.isend(payload, right, 3)
    expect([(len(b), set(b)) for b in comm.recv(None, left, 3)], [(len(b), {left + 1}) for b in payload], "pkl5")
    request.wait()


def buffers(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for count in (0, 1, 7, 1000, 300000):
        out = array.array("d", [comm.rank * 1e6 + i for i in range(count)])
        into = array.array("d", [-1]) * count
        comm.Sendrecv(out, right, 4, into, left, 4)
        expect(into, array.array("d", [left * 1e6 + i for i in range(count)]), "Sendrecv")
    total = array.array("q", [0] * 1000)
    comm.Allreduce(array.array("q", range(1000)), total)
    expect(total, array.array("q", [comm.size * i for i in range(1000)]), "Allreduce")
    own = array.array("i", [comm.rank])
    send = comm.Send_init(own, right, 5)
    into = array.array("i", [-1])
    receive = comm.Recv_init(into, left, 5)
    for _ in range(20):
        MPI.Prequest.Startall([send, receive])
        MPI.Request.Waitall([send, receive])
        expect(into[0], left, "persistent request")
    send.Free()
    receive.Free()


def one_sided(comm):
    right = (comm.rank + 1) % comm.size
    memory = array.array("q", [0] * 20000)
    window = MPI.Win.Create(memory, memory.itemsize, comm=comm)
    # Memory that an operation reads has to live until it has ended.
    numbers = array.array("q", range(10000))
    one = array.array("q", [1])
    own = array.array("q", [comm.rank] * 500)
    window.Fence()
    window.Put(numbers, right, 10000)
    window.Fence()
    expect(memory[10000:], numbers, "Put")
    window.Lock_all()
    back = array.array("q", [0] * 10000)
    window.Get(back, right, 10000)
    window.Flush(right)
    expect(back, numbers, "Get")
    seen = []
    for _ in range(100):
        old = array.array("q", [-1])
        window.Fetch_and_op(one, old, 0, 0, MPI.SUM)
        window.Flush(0)
        seen.append(old[0])
    expect(sorted(sum(comm.allgather(seen), [])), list(range(100 * comm.size)), "Fetch_and_op")
    window.Accumulate(own, 0, 100, MPI.SUM)
    window.Unlock_all()
    comm.Barrier()
    if comm.rank == 0:
        window.Lock(0)
        expect(memory[100:600], array.array("q", [comm.size * (comm.size - 1) // 2] * 500), "Accumulate")
        window.Unlock(0)
    window.Free()


def spawn(comm):
    children = comm.Spawn(sys.executable, args=[__file__, "--child"], maxprocs=2)
    children.bcast({"from": "parents"}, MPI.ROOT if comm.rank == 0 else MPI.PROC_NULL)
    merged = children.Merge(high=False)
    expect(len(merged.allgather(thing(merged.rank, 2000))), comm.size + 2, "allgather with children")
    merged.Free()
    children.Disconnect()


def child():
    parents = MPI.Comm.Get_parent()
    expect(parents.bcast(None, 0), {"from": "parents"}, "bcast from parents")
    merged = parents.Merge(high=True)
    merged.allgather(thing(merged.rank, 2000))
    merged.Free()
    parents.Disconnect()


def main():
    if "--child" in sys.argv:
        child()
        return
    for test in (objects, out_of_band, buffers, one_sided) + ((spawn,) if "--spawn" in sys.argv else ()):
        comm = WORLD.Dup()
        try:
            test(comm)
        except BaseException as error:
            print(f"FAIL {test.__name__}: {error!r}", flush=True)
            WORLD.Abort(1)
        comm.Free()
        if WORLD.rank == 0:
            print(f"{test.__name__} done", flush=True)
    if WORLD.rank == 0:
        print("PASS", flush=True)


main()
