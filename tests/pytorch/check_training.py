"""What surrounds the step, beside PyTorch: clipping and its norm, schedules, accumulation."""
import math

from lockstep import Table, apart, batches, column, make, torch, train

STEPS = 50
BATCH = 64
STEPS_PER_EPOCH = 24 # 1500 digits in batches of 64


def ours(*options):
    return train("--single", "--model", "mlp", "--batch-size", str(BATCH), "--no-shuffle", "--steps", str(STEPS), *options)


def pytorch_losses(make_optimizer, most_norm=math.inf):
    """Losses and norms of gradients; clipped to most_norm."""
    model = make("mlp")
    optimizer = make_optimizer(model.parameters())
    losses, norms = [], []
    for x, labels in batches(BATCH, STEPS):
        loss = torch.nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), most_norm).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms


def compare_clipping(table):
    sgd = ("--optimizer", "sgd", "--lr", "0.1", "--momentum", "0.9")

    def optimizer(parameters):
        return torch.optim.SGD(parameters, 0.1, momentum=0.9)
    for clip in (math.inf, 0.5):
        options = sgd if clip == math.inf else sgd + ("--clip-norm", str(clip))
        steps = ours(*options)
        losses, norms = pytorch_losses(optimizer, clip)
        name = "no clipping" if clip == math.inf else f"--clip-norm {clip}, {sum(n > clip for n in norms)} of {STEPS} steps clipped"
        table.row(f"{name}: losses", apart(column(steps, "loss"), losses), 2e-3)
        table.row(f"{name}: norms before clipping", apart(column(steps, "grad_norm"), norms), 5e-3)


def compare_accumulation(table):
    def optimizer(parameters):
        return torch.optim.Adam(parameters, 1e-3)
    losses, _ = pytorch_losses(optimizer)
    for k in (1, 4):
        steps = ours("--optimizer", "adam", "--lr", "1e-3", "--accumulate", str(k))
        table.row(f"--accumulate {k}: losses beside PyTorch's whole batch", apart(column(steps, "loss"), losses), 2e-3)


def rates_of(make_scheduler, count):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    scheduler = make_scheduler(optimizer)
    rates = []
    for _ in range(count):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def compare_schedules(table):
    warm = 10
    schedulers = torch.optim.lr_scheduler
    rising = rates_of(lambda o: schedulers.LinearLR(o, 1 / warm, total_iters=warm - 1), warm)
    cosine = rates_of(lambda o: schedulers.CosineAnnealingLR(o, STEPS - warm, eta_min=1e-3), STEPS - warm)
    by_epoch = rates_of(lambda o: schedulers.StepLR(o, 1, gamma=0.3), STEPS // STEPS_PER_EPOCH + 1)
    falling = [by_epoch[step // STEPS_PER_EPOCH] for step in range(STEPS)]
    constant = [0.1] * (STEPS - warm)
    base = ("--optimizer", "sgd", "--lr", "0.1")
    warmup = ("--warmup-steps", str(warm))
    for name, options, rates in (
            ("LinearLR", warmup, rising + constant),
            ("LinearLR, then CosineAnnealingLR", warmup + ("--lr-schedule", "cosine", "--lr-min", "1e-3"), rising + cosine),
            ("StepLR", ("--lr-schedule", "step", "--lr-decay", "0.3", "--lr-decay-epochs", "1"), falling)):
        table.row(f"{name}: the learning rate of each step", apart(column(ours(*base, *options), "lr"), rates), 1e-6)


def main():
    table = Table(f"Around the step, mlp, {STEPS} steps: how far apart, relative")
    compare_clipping(table)
    compare_accumulation(table)
    compare_schedules(table)
    table.done()


if __name__ == "__main__":
    main()
