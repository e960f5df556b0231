"""Times one training step of PyTorch and of lockstep on a GPU: eager and CUDA graph, in turn.

    python3 labs/bench_pytorch/bench_pytorch_gpu.py [ROUNDS [FILE]]

A development check: it needs a PyTorch built for CUDA and the programs and plug-ins in build/. PyTorch's batches are ready on the GPU and its
steps are timed in blocks with one synchronisation at the end; lockstep's step includes its loader and the copy to the device. FILE gets the
figures as JSON.
"""
import json
import statistics
import sys
import time

import torch

import bench_pytorch as cpu

BLOCK = 100


def wide():
    return torch.nn.Sequential(torch.nn.Linear(4096, 8192), torch.nn.ReLU(), torch.nn.Linear(8192, 4096))


class Trained:
    """A model, its optimizer and one step of it on fixed inputs."""

    def __init__(self, make_model, shape, batch, make_optimizer, squared):
        torch.manual_seed(0)
        self.model = make_model().cuda()
        self.x = torch.randn(batch, *shape, device="cuda")
        self.y = torch.randn(batch, 4096, device="cuda") if squared else torch.randint(0, 10, (batch,), device="cuda")
        self.loss_of = torch.nn.MSELoss() if squared else torch.nn.CrossEntropyLoss()
        self.optimizer = make_optimizer(self.model.parameters())

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.loss_of(self.model(self.x), self.y).backward()
        self.optimizer.step()


def time_blocks(step, blocks=7):
    times = []
    for _ in range(blocks):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(BLOCK):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e3 / BLOCK)
    return statistics.median(times[1:])


def time_eager(trained):
    return time_blocks(trained.step)


def time_graph(trained):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(5):
            trained.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    trained.optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        trained.step()
    return time_blocks(graph.replay)


CASES = [
    # name, model, sample shape, batch, optimizer, squared error?, the same for lockstep
    ("mlp, Adam, batch 64", cpu.mlp, (784,), 64, lambda p: torch.optim.Adam(p, 1e-3, capturable=True), False,
     ["--model", "mlp", "--batch-size", "64", "--optimizer", "adam", "--lr", "1e-3"]),
    ("convnet, SGD, batch 100", cpu.convnet, (1, 28, 28), 100, lambda p: torch.optim.SGD(p, 0.01, momentum=0.9), False,
     ["--model", "convnet", "--batch-size", "100", "--optimizer", "sgd", "--lr", "0.01", "--momentum", "0.9"]),
    ("wide, SGD, batch 8192", wide, (4096,), 8192, lambda p: torch.optim.SGD(p, 0.01), True,
     ["--model", "wide", "--data", "random:0", "--batch-size", "8192", "--optimizer", "sgd", "--lr", "0.01"]),
]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    gpu = torch.cuda.get_device_name()
    print(f"PyTorch {torch.__version__} on {gpu}, fp32 without TF32; measured, medians over {rounds} rounds, milliseconds per step")
    rows = []
    for name, make_model, shape, batch, make_optimizer, squared, options in CASES:
        found = {"lockstep": [], "lockstep, graph": [], "PyTorch eager": [], "PyTorch, graph": []}
        for _ in range(rounds):
            gpu_options = options + ["--device-kind", "cuda"]
            found["lockstep"].append(cpu.time_lockstep(gpu_options, 400))
            found["lockstep, graph"].append(cpu.time_lockstep(gpu_options + ["--cuda-graph"], 400))
            found["PyTorch eager"].append(time_eager(Trained(make_model, shape, batch, make_optimizer, squared)))
            found["PyTorch, graph"].append(time_graph(Trained(make_model, shape, batch, make_optimizer, squared)))
        medians = {who: statistics.median(times) for who, times in found.items()}
        print(f"{name:26s} " + "   ".join(f"{who} {ms:8.4f}" for who, ms in medians.items()))
        rows.append({"case": name, "step_ms": medians})
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="utf-8") as file:
            json.dump({"how": "measured", "gpu": gpu, "pytorch": torch.__version__, "rounds": rounds, "cases": rows}, file, indent=1)


if __name__ == "__main__":
    main()
