"""Times one training step of PyTorch and of lockstep on a GPU, in turn: eager and as a CUDA graph, in fp32 and in bf16.

    python3 labs/bench/peers/bench_pytorch_gpu.py [ROUNDS [FILE [SECONDS]]]

A development check: it needs a PyTorch built for CUDA and the programs and plug-ins in build/. What is compared with what:

    lockstep, loader        its loader fills page-locked batches, and each step copies one to the GPU
    PyTorch, upload         each step copies a page-locked batch, which is ready on the host, to the GPU: no loader
    resident                of both: batches lie on the GPU all the time: no loader, no copy

PyTorch's optimizers are its fused ones. Steps are timed in blocks of about a tenth of a second with one synchronisation at the end.
FILE gets a line of JSON after each case, as build/gpu_check writes them, which calls this script; after SECONDS (default 240) no further
case is begun. BUILD in the environment names the folder of the programs.
"""
import json
import statistics
import sys
import time

import torch

import bench_pytorch as cpu

BLOCK_S = 0.1
BLOCKS = 5


def wide():
    return torch.nn.Sequential(torch.nn.Linear(4096, 8192), torch.nn.ReLU(), torch.nn.Linear(8192, 4096))


class Trained:
    """A model, its optimizer, and one step of it on a batch on the GPU or, with `upload`, from page-locked host memory."""

    def __init__(self, case, upload):
        torch.manual_seed(0)
        self.model = case.make_model().cuda()
        self.bf16 = case.bf16
        host_x = torch.randn(case.batch, *case.shape).pin_memory()
        host_y = (torch.randn(case.batch, 4096) if case.squared else torch.randint(0, 10, (case.batch,))).pin_memory()
        self.host = (host_x, host_y) if upload else None
        self.x, self.y = host_x.cuda(), host_y.cuda()
        self.loss_of = torch.nn.MSELoss() if case.squared else torch.nn.CrossEntropyLoss()
        self.optimizer = case.make_optimizer(self.model.parameters())

    def upload(self):
        if self.host:
            self.x.copy_(self.host[0], non_blocking=True)
            self.y.copy_(self.host[1], non_blocking=True)

    def compute(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=self.bf16, cache_enabled=False):
            loss = self.loss_of(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()


def time_block(step, steps):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / steps


def time_step_ms(step):
    time_block(step, 5)
    steps = max(3, int(BLOCK_S / time_block(step, 5)))
    return statistics.median(time_block(step, steps) for _ in range(BLOCKS)) * 1e3


def time_eager(case, upload):
    trained = Trained(case, upload)

    def step():
        trained.upload()
        trained.compute()
    return time_step_ms(step)


def time_graph(case, upload):
    trained = Trained(case, upload)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(5):
            trained.compute()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    trained.optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        trained.compute()

    def step():
        trained.upload()
        graph.replay()
    return time_step_ms(step)


class Case:
    def __init__(self, name, make_model, shape, batch, make_optimizer, options, steps, bf16=False, squared=False):
        self.name, self.make_model, self.shape, self.batch = name, make_model, shape, batch
        self.make_optimizer, self.bf16, self.squared, self.steps = make_optimizer, bf16, squared, steps
        self.options = options + ["--device-kind", "cuda", "--batch-size", str(batch)] + (["--precision", "bf16"] if bf16 else [])


def adam(parameters):
    return torch.optim.Adam(parameters, 1e-3, fused=True, capturable=True)


def momentum(parameters):
    return torch.optim.SGD(parameters, 0.01, momentum=0.9, fused=True)


def sgd(parameters):
    return torch.optim.SGD(parameters, 0.01, fused=True)


OURS_MLP = ["--model", "mlp", "--optimizer", "adam", "--lr", "1e-3"]
OURS_CONVNET = ["--model", "convnet", "--optimizer", "sgd", "--lr", "0.01", "--momentum", "0.9"]
OURS_WIDE = ["--model", "wide", "--data", "random:0", "--optimizer", "sgd", "--lr", "0.01", "--workers", "8"]
CASES = [
    Case("mlp, Adam, batch 64, fp32", cpu.mlp, (784,), 64, adam, OURS_MLP, 3000),
    Case("convnet, SGD, batch 100, fp32", cpu.convnet, (1, 28, 28), 100, momentum, OURS_CONVNET, 1500),
    Case("wide, SGD, batch 8192, bf16", wide, (4096,), 8192, sgd, OURS_WIDE, 60, bf16=True, squared=True),
    Case("convnet, SGD, batch 100, bf16", cpu.convnet, (1, 28, 28), 100, momentum, OURS_CONVNET, 1500, bf16=True),
    Case("mlp, Adam, batch 64, bf16", cpu.mlp, (784,), 64, adam, OURS_MLP, 3000, bf16=True),
    Case("wide, SGD, batch 8192, fp32", wide, (4096,), 8192, sgd, OURS_WIDE, 60, squared=True),
]


def measure(case, rounds):
    resident, graph = ["--resident-batches", "2"], ["--cuda-graph"]
    ways = {
        "lockstep eager, loader": lambda: cpu.time_lockstep(case.options, case.steps),
        "lockstep graph, loader": lambda: cpu.time_lockstep(case.options + graph, case.steps),
        "lockstep eager, resident": lambda: cpu.time_lockstep(case.options + resident, case.steps),
        "lockstep graph, resident": lambda: cpu.time_lockstep(case.options + resident + graph, case.steps),
        "PyTorch eager, upload": lambda: time_eager(case, True),
        "PyTorch graph, upload": lambda: time_graph(case, True),
        "PyTorch eager, resident": lambda: time_eager(case, False),
        "PyTorch graph, resident": lambda: time_graph(case, False),
    }
    found = {who: [] for who in ways}
    for _ in range(rounds):
        for who, way in ways.items():
            found[who].append(way())
    return {who: statistics.median(times) for who, times in found.items()}


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    end = time.perf_counter() + (float(sys.argv[3]) if len(sys.argv) > 3 else 240)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    gpu = torch.cuda.get_device_name()
    print(f"PyTorch {torch.__version__} on {gpu}, fp32 without TF32; measured, medians over {rounds} rounds, milliseconds per step")
    for case in CASES:
        if time.perf_counter() > end:
            print(f"{case.name:32s} not measured: no time left")
            continue
        begin = time.perf_counter()
        medians = measure(case, rounds)
        print(f"{case.name:32s} " + "   ".join(f"{who} {ms:.4f}" for who, ms in medians.items()), flush=True)
        if len(sys.argv) > 2:
            figures = {"case": case.name, "pytorch": torch.__version__, "rounds": rounds, "step_ms": medians}
            line = {"stage": "steps", "name": f"{case.name}, PyTorch in turn", "verdict": "held",
                    "seconds": round(time.perf_counter() - begin, 3), "figures": figures}
            with open(sys.argv[2], "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
