# A rank that joins a process group and leaves it: what bench_launch starts under torchrun beside its own.
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
