"""Mixed precision beside PyTorch, on the real digits, from the same weights, in the same order of samples: the losses of 50 steps.

Two oracles. `autocast`: torch.autocast of the CPU, bfloat16, with the loss in fp32. It rounds elsewhere than lockstep does (gradients
of weights leave its products in bfloat16, lockstep's in fp32), so it tells that both are mixed precision of the same kind. `rounded`:
fp32 arithmetic of PyTorch whose activations, weights and gradients of activations are rounded to halves where lockstep stores
halves, with the loss scaled as GradScaler does: everything but the order of sums is then the same, and bounds are tight. It also
stands in for fp16, which PyTorch's autocast does not have on CPUs before 2.3.

Bounds. The notes show how far the halves are from fp32: on the first five steps 1.4e-4 and more for fp16, 6e-4 and more for bf16;
later the runs part for good, as any two runs that round differently do, and means over five steps are what can be compared.
`rounded` must be nearer than that on the first five steps (seen: 1e-5 to 2e-4), which a precision that is silently fp32 is not;
autocast within 2 % in means, which is what bf16 itself may differ from fp32 by.
"""
import math

from lockstep import Table, apart, batches, column, make, mean_apart, torch, train

STEPS = 50
CASES = [
    # model, batch, optimizer, the same for lockstep
    ("mlp", 64, lambda p: torch.optim.Adam(p, 1e-3), ["--optimizer", "adam", "--lr", "1e-3"]),
    ("convnet", 100, lambda p: torch.optim.SGD(p, 0.01), ["--optimizer", "sgd", "--lr", "0.01"]),  # steeper, and fp32 runs part, too
]
HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}


# --- PyTorch's side ---------------------------------------------------------------------------------------------------

class Rounded(torch.autograd.Function):
    """To a half and back: values on their way forward, and gradients on their way back, if wanted."""

    @staticmethod
    def forward(ctx, x, half, back):
        ctx.half = half if back else None
        return x.to(half).float()

    @staticmethod
    def backward(ctx, dy):
        return (dy if ctx.half is None else dy.to(ctx.half).float()), None, None


def rounded_forward(model, x, half):
    """Each layer reads halves and stores halves. Products are stored before the bias is added; batch norm's own parameters
    and statistics are fp32, as is what it computes."""
    def stored(y):
        return Rounded.apply(y, half, True)

    def weight(w):
        return Rounded.apply(w, half, False)

    x = x.to(half).float()
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            y = Rounded.apply(torch.nn.functional.linear(x, weight(layer.weight)), half, False)
            x = stored(y + weight(layer.bias))
        elif isinstance(layer, torch.nn.Conv2d):
            x = stored(torch.nn.functional.conv2d(x, weight(layer.weight), weight(layer.bias), padding=layer.padding))
        elif isinstance(layer, torch.nn.BatchNorm2d):
            x = stored(layer(x))
        else:
            x = layer(x)
    return x


class Scaler:
    """GradScaler's rule, for gradients that are fp32 tensors of the CPU."""

    def __init__(self, scale, interval=2000):
        self.scale, self.interval, self.streak, self.skipped = scale, interval, 0, 0

    def step(self, optimizer, parameters):
        for p in parameters:
            p.grad /= self.scale
        if all(torch.isfinite(p.grad).all() for p in parameters):
            optimizer.step()
            self.streak += 1
            if self.streak == self.interval:
                self.scale, self.streak = self.scale * 2, 0
        else:
            self.scale, self.streak, self.skipped = self.scale / 2, 0, self.skipped + 1


def losses_of_pytorch(name, batch, make_optimizer, how, half=None, scaler=None):
    model = make(name)
    parameters = list(model.parameters())
    optimizer = make_optimizer(parameters)
    scaler = scaler or Scaler(1.0)
    losses = []
    scales = []
    for x, labels in batches(batch, STEPS):
        if how == "rounded":
            y = rounded_forward(model, x, half)
        elif how == "autocast":
            with torch.autocast("cpu", dtype=half):
                y = model(x)
        else:
            y = model(x)
        loss = torch.nn.functional.cross_entropy(y.float(), labels)
        optimizer.zero_grad()
        (loss * scaler.scale).backward()
        scales.append(scaler.scale)
        scaler.step(optimizer, parameters)
        losses.append(loss.item())
    return losses, scales


# --- the comparison ---------------------------------------------------------------------------------------------------

def ours(name, batch, precision, options):
    return train("--single", "--model", name, "--batch-size", str(batch), "--no-shuffle", "--steps", str(STEPS),
                 "--precision", precision, *options)


def compare(table, name, batch, make_optimizer, options):
    fp32, _ = losses_of_pytorch(name, batch, make_optimizer, "fp32")
    table.row(f"{name} fp32: lockstep and PyTorch, each step", apart(column(ours(name, batch, "fp32", options), "loss"), fp32), 2e-3)
    for precision, half in HALVES.items():
        losses = column(ours(name, batch, precision, options), "loss")
        scaler = Scaler(65536.0) if precision == "fp16" else None
        rounded, _ = losses_of_pytorch(name, batch, make_optimizer, "rounded", half, scaler)
        first, later = (5e-4, 5e-3) if precision == "bf16" else (1e-4, 2e-3)
        what = f"{name} {precision}: lockstep and"
        table.note(f"{what} fp32, each of the first five", apart(losses[:5], fp32[:5]))
        table.note(f"{what} fp32, means of five", mean_apart(losses, fp32))
        table.row(f"{what} rounded, each of the first five", apart(losses[:5], rounded[:5]), first)
        table.row(f"{what} rounded, means of five", mean_apart(losses, rounded), later)
        if precision == "bf16":
            autocast, _ = losses_of_pytorch(name, batch, make_optimizer, "autocast", half)
            table.note(f"{name} {precision}: autocast and fp32, means of five", mean_apart(autocast, fp32))
            table.row(f"{what} autocast, means of five", mean_apart(losses, autocast), 2e-2)


def compare_scales(table):
    """A first scale that overflows and a short interval: the scale falls, settles and rises, and steps are skipped."""
    scaler = Scaler(2.0 ** 26, interval=8)
    _, scales = losses_of_pytorch(*CASES[0][:3], "rounded", torch.float16, scaler)
    steps = ours(*CASES[0][:2], "fp16", CASES[0][3] + ["--init-scale", str(2 ** 26), "--growth-interval", "8"])
    table.row(f"mlp fp16: the scale at each step, {scaler.skipped} of {STEPS} skipped", apart(column(steps, "loss_scale"), scales), 0)
    if not 0 < scaler.skipped < STEPS or max(scales[25:]) <= min(scales):
        table.row("mlp fp16: the scale falls and rises", math.nan, 0)


def main():
    table = Table(f"Mixed precision, the losses of {STEPS} steps: how far apart, relative")
    for case in CASES:
        compare(table, *case)
    compare_scales(table)
    table.done()


if __name__ == "__main__":
    main()
