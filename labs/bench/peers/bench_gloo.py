"""torch.distributed's all_reduce over gloo, measured as bench_comm measures our own: fp32 sums in place, buffers that rotate over twice
the last-level cache, loops that all ranks begin together after a barrier, the slowest rank's time. bench_comm --compare runs it:

    /usr/bin/python3 labs/bench/peers/bench_gloo.py N RUNS RUN_MS CACHE_BYTES SIZE...

It prints the lines that labs/bench/comm/others.c describes; one line "absent,..." if there is no torch. Every result is checked before
and after. Ranks are forked after the import, one thread each, and meet over a port that the system chose.
"""
import os
import sys
import time

os.environ.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
try:
    import torch
    import torch.distributed as dist
    assert dist.is_gloo_available() if hasattr(dist, "is_gloo_available") else dist.is_available()
except (ImportError, AssertionError) as error:
    print(f"absent,{error}")
    sys.exit(0)

ITERATIONS_MAX = 100000
FLOATS_PER_LINE = 16


class Bench:
    def __init__(self, rank, n, runs, run_ms, cache_bytes):
        self.rank, self.n, self.runs, self.run_us = rank, n, runs, run_ms * 1e3
        self.set_floats = 2 * cache_bytes // n // 4
        self.next_slot = 0

    def values(self, rank):
        return (torch.arange(self.count) * 7 + rank * 3).remainder(5).float()

    def check(self):
        slot = self.slots[self.next_slot]
        slot.copy_(self.values(self.rank))
        dist.all_reduce(slot)
        if not torch.equal(slot, sum(self.values(r) for r in range(self.n))):
            sys.exit("bench_gloo: error: a result is wrong")

    def time_loop(self, iterations):
        """The slowest rank's time, on all ranks."""
        slots, slot, all_reduce = self.slots, self.next_slot, dist.all_reduce
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(iterations):
            all_reduce(slots[slot])
            slot = slot + 1 if slot + 1 < len(slots) else 0
        elapsed = torch.tensor([(time.perf_counter() - begin) * 1e6], dtype=torch.float64)
        self.next_slot = slot
        dist.all_reduce(elapsed, op=dist.ReduceOp.MAX)
        return elapsed.item()

    def choose_iterations(self):
        """Operations that fill a run; loops that grow until they tell; of two the faster counts."""
        wanted, told = 1.0, False
        while not told:
            iterations = int(wanted)
            slowest_us = max(min(self.time_loop(iterations), self.time_loop(iterations)), 0.1)
            told = slowest_us * 4 >= self.run_us or iterations == ITERATIONS_MAX
            fitting = wanted * self.run_us / slowest_us
            wanted = min(max(fitting if told else min(fitting, 8 * wanted), 1), ITERATIONS_MAX)
        return int(wanted)

    def measure_size(self, nbytes):
        self.count = nbytes // 4
        stride = -(-self.count // FLOATS_PER_LINE) * FLOATS_PER_LINE
        slot_count = max(1, -(-self.set_floats // stride))
        memory = torch.zeros(slot_count, stride)
        # Views are made beforehand: cutting one costs Python more than a small all_reduce's wait.
        self.slots = [row[:self.count] for row in memory[:ITERATIONS_MAX]]
        self.next_slot = 0
        self.check()
        iterations = self.choose_iterations()
        for _ in range(self.runs):
            slowest_us = self.time_loop(iterations)
            if self.rank == 0:
                print(f"run,{nbytes},{iterations},{slowest_us / iterations:.9g}", flush=True)
        self.check()


def rank_main(rank, n, port, arguments):
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=n)
    bench = Bench(rank, n, int(arguments[0]), float(arguments[1]), int(arguments[2]))
    for nbytes in arguments[3:]:
        bench.measure_size(int(nbytes))
    dist.destroy_process_group()


def main():
    n, arguments = int(sys.argv[1]), sys.argv[2:]
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    print(f"library,gloo (PyTorch {torch.__version__.split('+')[0]})", flush=True)
    ranks = []
    for rank in range(n):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                rank_main(rank, n, store.port, arguments)
                status = 0
            except SystemExit as error:
                print(error, file=sys.stderr, flush=True)
            except Exception as error:  # whatever it is, the parent is to know
                print(f"bench_gloo: error: rank {rank}: {error}", file=sys.stderr, flush=True)
            sys.stdout.flush()
            os._exit(status)
        ranks.append(pid)
    statuses = [os.waitpid(pid, 0)[1] for pid in ranks]
    sys.exit(1 if any(statuses) else 0)


if __name__ == "__main__":
    main()
