"""Times one training step of PyTorch and of lockstep on the same model, in turn, one thread each.

    python3 labs/bench/peers/bench_pytorch.py [ROUNDS]

A development check: it needs a PyTorch (Debian's python3-torch or a wheel) and the programs in build/. Each round runs lockstep's
`dp_train --single` and then PyTorch, so that both meet the same machine; the figures are medians of the rounds' medians. PyTorch's
batches are ready in memory; lockstep's step includes its loader and the copy to the device.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["LC_ALL"] = "C"
import torch  # noqa: E402  (the thread count must be set before)

torch.set_num_threads(1)
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))


def convnet():
    def block(inputs, outputs):
        return [torch.nn.Conv2d(inputs, outputs, 5, padding=2), torch.nn.BatchNorm2d(outputs), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
    return torch.nn.Sequential(*block(1, 16), *block(16, 32), torch.nn.Flatten(), torch.nn.Linear(1568, 10))


CASES = [
    # name, model, sample shape, batch, steps, optimizer, the same for lockstep
    ("mlp, Adam, batch 64", mlp, (784,), 64, 500, lambda p: torch.optim.Adam(p, 1e-3),
     ["--model", "mlp", "--batch-size", "64", "--optimizer", "adam", "--lr", "1e-3"]),
    ("convnet, SGD, batch 100", convnet, (1, 28, 28), 100, 60, lambda p: torch.optim.SGD(p, 0.01, momentum=0.9),
     ["--model", "convnet", "--batch-size", "100", "--optimizer", "sgd", "--lr", "0.01", "--momentum", "0.9"]),
]


def time_pytorch(make_model, shape, batch, steps, make_optimizer):
    torch.manual_seed(0)
    model, loss_of = make_model(), torch.nn.CrossEntropyLoss()
    optimizer = make_optimizer(model.parameters())
    batches = [(torch.randn(batch, *shape), torch.randint(0, 10, (batch,))) for _ in range(16)]
    times = []
    for step in range(steps):
        x, y = batches[step % len(batches)]
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times[10:])


def time_lockstep(options, steps):
    with tempfile.NamedTemporaryFile() as summary:
        subprocess.run([os.path.join(os.environ.get("BUILD", os.path.join(ROOT, "build")), "dp_train"), "--single", "--no-evaluate", "--quiet", "--drop-last",
                        "--data", os.path.join(ROOT, "data", "digits"), "--steps", str(steps), "--summary", summary.name] + options,
                       check=True, stdout=subprocess.DEVNULL)
        with open(summary.name, encoding="utf-8") as file:
            return json.load(file)["summary"]["median_step_ms"]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"PyTorch {torch.__version__}, one thread; measured, medians over {rounds} rounds, milliseconds per step")
    for name, make_model, shape, batch, steps, make_optimizer, options in CASES:
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(time_lockstep(options, steps))
            theirs.append(time_pytorch(make_model, shape, batch, steps, make_optimizer))
        a, b = statistics.median(ours), statistics.median(theirs)
        ratios = [t / o for o, t in zip(ours, theirs)]
        print(f"{name:26s} lockstep {a:8.3f}   PyTorch {b:8.3f}   PyTorch/lockstep {b / a:5.2f}"
              f"   (rounds: {min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
