"""What the development checks against PyTorch share: the digits, the models, runs of both sides, and the table of figures with their
bounds. Not a check itself: `make pytorch-check` runs the check_*.py beside it."""
import gzip
import json
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["LC_ALL"] = "C"
import torch  # noqa: E402  (the thread count must be set before)

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
DIGITS = os.path.join(ROOT, "data", "digits")


# --- data and models --------------------------------------------------------------------------------------------------

def read_idx(folder, name):
    path = os.path.join(folder, name)
    plain = os.path.exists(path)
    with open(path, "rb") if plain else gzip.open(path + ".gz", "rb") as file:
        data = file.read()
    rank = data[3]
    shape = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(rank)]
    return torch.frombuffer(bytearray(data[4 + 4 * rank:]), dtype=torch.uint8).reshape(shape)


def digits(folder=DIGITS, normalize="mnist"):
    """The training set as lockstep sees it: images [n, 1, 28, 28] in fp32, labels [n]."""
    images = read_idx(folder, "train-images-idx3-ubyte").float().div(255).unsqueeze(1)
    if normalize == "mnist":
        images = (images - 0.1307) / 0.3081
    return images, read_idx(folder, "train-labels-idx1-ubyte").long()


def batches(batch_size, steps):
    """Those of --no-shuffle: front to back, the last of an epoch short, over as many epochs as it takes."""
    images, labels = digits()
    at = 0
    for _ in range(steps):
        at = at if at < len(labels) else 0
        yield images[at:at + batch_size], labels[at:at + batch_size]
        at += batch_size


def mlp():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))


def convnet():
    def block(inputs, outputs):
        return [torch.nn.Conv2d(inputs, outputs, 5, padding=2), torch.nn.BatchNorm2d(outputs), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
    return torch.nn.Sequential(*block(1, 16), *block(16, 32), torch.nn.Flatten(), torch.nn.Linear(1568, 10))


def make(name):
    """With the initial weights that lockstep has for --seed 0."""
    torch.manual_seed(0)
    return {"mlp": mlp, "convnet": convnet}[name]()


# --- lockstep's side --------------------------------------------------------------------------------------------------

def train(*options, program="dp_train"):
    """Runs a program on CPU devices; returns the metrics of each step (loss, lr, ...)."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "metrics")
        command = [os.path.join(BUILD, program), "--device-kind", "cpu", "--data", DIGITS, "--no-evaluate", "--quiet",
                   "--metrics", metrics, *options]
        run = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if run.returncode != 0:
            sys.exit(f"{' '.join(command)}: status {run.returncode}\n{run.stderr.strip()}")
        with open(metrics, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
    return [line for line in lines if "step" in line]


def column(steps, name):
    if name not in steps[0]:
        sys.exit(f"the metrics of a step have no {name}; they have {', '.join(steps[0])}")
    return [float("nan") if step[name] is None else float(step[name]) for step in steps]


# --- figures and bounds -----------------------------------------------------------------------------------------------

class Table:
    """Figures and what they must not exceed. NaN exceeds every bound."""

    def __init__(self, title):
        self.exceeded = 0
        print(f"{title} (PyTorch {torch.__version__}, CPU)")

    def row(self, what, figure, bound):
        holds = figure <= bound
        self.exceeded += not holds
        print(f"  {what:<74s} {figure:9.2e}  bound {bound:8.1e}  {'ok' if holds else 'EXCEEDED'}")

    def note(self, what, figure):
        print(f"  {what:<74s} {figure:9.2e}")

    def done(self):
        if self.exceeded:
            sys.exit(f"{self.exceeded} figure{'s' if self.exceeded > 1 else ''} beyond the bound")


def apart(ours, theirs):
    """How far two lists are apart at most, relative to the second."""
    assert len(ours) == len(theirs) > 0
    differences = [abs(a - b) / abs(b) if b else abs(a) for a, b in zip(ours, theirs)]
    return max(differences) if all(d == d for d in differences) else float("nan")


def mean_apart(ours, theirs, window=5):
    """The same for means over windows of steps, in which the noise of single batches' roundings averages out."""
    def means(values):
        return [sum(values[i:i + window]) / window for i in range(0, len(values) - window + 1, window)]
    return apart(means(ours), means(theirs))
