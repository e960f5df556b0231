"""What PyTorch prints for the recipe `convnet`, on any digits in MNIST's format: DistributedDataParallel over gloo, a process per rank,
each with batches of 100, SGD, batch norm per rank, pixels in 0..1, DistributedSampler with set_epoch.

    python3 tests/pytorch/course_convnet.py FOLDER [EPOCHS [RANKS [LR]]]

Prints per epoch: the mean over rank 0's batches (which is what the course's script prints), the mean over all ranks, rank 0's 100th
batch and its last. labs/bench/recipes/convnet_reference.csv was made with it.
"""
import os
import sys
import tempfile

os.environ.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
from lockstep import convnet, digits, torch  # noqa: E402

import torch.distributed as dist  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402
from torch.utils.data.distributed import DistributedSampler  # noqa: E402


def run_rank(rank, ranks, meet_at, folder, epochs, rate):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet_at}", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(convnet())
    data = TensorDataset(*digits(folder, "none"))
    sampler = DistributedSampler(data, num_replicas=ranks, rank=rank)
    loader = DataLoader(data, batch_size=100, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        losses = []
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        own = sum(losses) / len(losses)
        everyone = torch.tensor([own], dtype=torch.float64)
        dist.all_reduce(everyone)
        if rank == 0:
            hundredth = losses[99] if len(losses) > 99 else float("nan")
            print(f"{epoch + 1},{own:.4f},{everyone.item() / ranks:.4f},{hundredth:.4f},{losses[-1]:.4f}", flush=True)


def main():
    if not 2 <= len(sys.argv) <= 5:
        sys.exit(__doc__)
    folder, epochs, ranks, rate = (sys.argv[1:] + ["10", "4", "1e-4"][len(sys.argv) - 2:])
    print("epoch,rank0_mean,all_ranks_mean,rank0_step100,rank0_last")
    with tempfile.TemporaryDirectory() as place:
        torch.multiprocessing.spawn(run_rank, (int(ranks), os.path.join(place, "store"), folder, int(epochs), float(rate)), int(ranks))


if __name__ == "__main__":
    main()
