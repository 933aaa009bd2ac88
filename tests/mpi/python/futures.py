"""Work handed to the other ranks by mpi4py.futures: started as `python3 -m mpi4py.futures futures.py`."""
from mpi4py.futures import MPIPoolExecutor, as_completed


def work(number, payload):
    return number * number, payload[::-1]


if __name__ == "__main__":
    with MPIPoolExecutor() as pool:
        assert list(pool.map(pow, range(200), [2] * 200, chunksize=7)) == [n * n for n in range(200)]
        payloads = [bytes([n % 251]) * size + b"end" for n, size in enumerate([0, 10, 3000, 100000, 2000000] * 5)]
        futures = {pool.submit(work, n, payload): n for n, payload in enumerate(payloads)}
        done = 0
        for future in as_completed(futures, timeout=60):
            number = futures[future]
            assert future.result() == (number * number, payloads[number][::-1]), number
            done += 1
        assert done == len(payloads), done
    print("PASS", flush=True)
