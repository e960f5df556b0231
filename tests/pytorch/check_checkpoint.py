"""Files that travel: a checkpoint, read by Python's safetensors, goes on in PyTorch as it would have here; and a state dict that
PyTorch has wrapped and saved is where --init starts from."""
import os
import subprocess
import sys
import tempfile
from collections import OrderedDict

from lockstep import BUILD, DIGITS, Table, apart, batches, column, make, torch, train

try:
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file
except ImportError:
    print("checkpoints: left out, this Python has no safetensors (pip install safetensors)")
    sys.exit(0)

STEPS, SAVED_AT, BATCH = 25, 15, 64  # over the end of an epoch; roundings have convolutions part later on
NAMES = {"mlp": ["flatten", "fc1", "relu1", "fc2"],
         "convnet": ["conv1", "bn1", "relu1", "pool1", "conv2", "bn2", "relu2", "pool2", "flatten", "fc"]}
RECIPES = {"mlp": (["--optimizer", "adam", "--lr", "0.001"], lambda p: torch.optim.Adam(p, lr=0.001)),
           "convnet": (["--optimizer", "sgd", "--lr", "0.01", "--momentum", "0.9"], lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9))}
FOREIGN = ("optimizer.", "scaler.", "mode.")


def named(name):
    """The model, with the layers' names that lockstep gives them."""
    return torch.nn.Sequential(OrderedDict(zip(NAMES[name], make(name))))


def take_optimizer(optimizer, model, file):
    """The moments lie under PyTorch's words."""
    kept = {key[len("optimizer."):]: value for key, value in file.items() if key.startswith("optimizer.")}
    step = float(kept.pop("step"))
    kept.pop("lr")
    for name, parameter in model.named_parameters():
        state = {key[:-len(name) - 1]: kept.pop(key) for key in list(kept) if key.endswith("." + name)}
        if "exp_avg" in state:
            state["step"] = torch.tensor(step)
        optimizer.state[parameter] = state
    assert not kept, f"nobody has asked for {', '.join(kept)}"


def losses_from(model, optimizer, first):
    """PyTorch's losses of the steps from `first` on."""
    found = []
    for step, (images, labels) in enumerate(batches(BATCH, STEPS)):
        if step < first:
            continue
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def run(options):
    command = [os.path.join(BUILD, "dp_train"), "--single", "--device-kind", "cpu", "--data", DIGITS, "--no-shuffle", "--batch-size", str(BATCH),
               *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stderr.strip()}")
    return done.stderr


def there(table, folder, name):
    """Ours, read and continued by PyTorch."""
    recipe, make_optimizer = RECIPES[name]
    path = os.path.join(folder, name)
    whole = column(train("--single", "--model", name, "--no-shuffle", "--batch-size", str(BATCH), "--steps", str(STEPS), *recipe), "loss")
    run(["--model", name, "--steps", str(SAVED_AT), "--no-evaluate", "--save", path, *recipe])
    file = load_file(path)
    with safe_open(path, framework="pt") as opened:
        metadata = opened.metadata()
    assert metadata["lockstep.step"] == str(SAVED_AT) and metadata["format"] == "pt"
    model = named(name)
    model.load_state_dict({key: value for key, value in file.items() if not key.startswith(FOREIGN)}, strict=True)
    optimizer = make_optimizer(model.parameters())
    take_optimizer(optimizer, model, file)
    table.row(f"{name}: losses of steps {SAVED_AT} to {STEPS - 1}, by PyTorch from our checkpoint",
              apart(losses_from(model, optimizer, SAVED_AT), whole[SAVED_AT:]), 1e-4)


def back(table, folder, name):
    """PyTorch's, wrapped, in two precisions, read by --init: the loss of one step is that of the weights."""
    model = named(name)
    wrapped = torch.nn.DataParallel(model)
    images, labels = next(batches(BATCH, 1))
    for dtype, text in ((torch.float32, ""), (torch.float16, "converted from F16")):
        path = os.path.join(folder, "wrapped")
        state = {key: value.to(dtype) if value.is_floating_point() else value for key, value in wrapped.state_dict().items()}
        save_file(state, path)
        model.load_state_dict({key[len("module."):]: value for key, value in state.items()})
        theirs = torch.nn.functional.cross_entropy(model(images), labels).item()
        options = ["--model", name, "--steps", "1", "--no-evaluate", "--init", path]
        losses = os.path.join(folder, "losses")
        said = run([*options, "--dump-losses", losses])
        assert 'without their "module."' in said and text in said, said
        with open(losses, encoding="utf-8") as file:
            ours = float(file.read())
        table.row(f"{name}: the loss with PyTorch's module.* weights in {str(dtype)[6:]}", apart([ours], [theirs]), 1e-5)


with tempfile.TemporaryDirectory() as scratch:
    figures = Table("Checkpoints and --init")
    for which in ("mlp", "convnet"):
        there(figures, scratch, which)
        back(figures, scratch, which)
    figures.done()
