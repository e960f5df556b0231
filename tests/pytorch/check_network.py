"""A residual network with a tied layer, which no built-in model is: PyTorch's outputs and gradients, for tests/nn/test_network.c.

Compares tests/golden/residual_tied.json with what PyTorch finds; --write writes the file anew. bf16 is fp32 arithmetic, rounded where
lockstep stores halves: activations, their gradients, and the copies of weights that products read.
"""
import json
import os
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "golden", "residual_tied.json")
BATCH, WIDTH, OUTPUTS = 4, 6, 3


class Rounded(torch.autograd.Function):
    """To bf16 and back, values and gradients."""

    @staticmethod
    def forward(ctx, x, back):
        ctx.back = back
        return x.bfloat16().float()

    @staticmethod
    def backward(ctx, dy):
        return (dy.bfloat16().float() if ctx.back else dy), None


def run(rounds):
    both = (lambda x: Rounded.apply(x, True)) if rounds else (lambda x: x)
    parameter = (lambda x: Rounded.apply(x, False)) if rounds else (lambda x: x)

    def linear(layer, x):
        return both(both(x @ parameter(layer.weight).t()) + parameter(layer.bias))

    torch.manual_seed(3)
    fc1, fc2, head = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, OUTPUTS)
    fc2.weight = fc1.weight
    torch.manual_seed(4)
    x = both(torch.empty(BATCH, WIDTH).uniform_(-1, 1))
    torch.manual_seed(5)
    dy = torch.empty(BATCH, OUTPUTS).uniform_(-1, 1)
    h = torch.relu(linear(fc1, x))
    y = linear(head, both(both(h + torch.relu(linear(fc2, both(h)))) + x))
    y.backward(dy)
    found = {"y": y, "fc1.weight": fc1.weight.grad, "fc1.bias": fc1.bias.grad, "fc2.bias": fc2.bias.grad,
             "head.weight": head.weight.grad, "head.bias": head.bias.grad}
    return {name: tensor.flatten().tolist() for name, tensor in found.items()}


found = {"fp32": run(False), "bf16": run(True)}
if "--write" in sys.argv[1:]:
    with open(GOLDEN, "w") as file:
        json.dump(found, file, indent=None, separators=(", ", ": "))
        file.write("\n")
with open(GOLDEN) as file:
    kept = json.load(file)
worst = max(abs(a - b) for p in found for name in found[p] for a, b in zip(found[p][name], kept[p][name]))
print(f"network: residual_tied.json is at most {worst:.1e} from PyTorch {torch.__version__}")
sys.exit(0 if worst < 1e-5 else 1)
