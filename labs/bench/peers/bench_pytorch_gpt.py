"""Times PyTorch's training step of a small GPT on one thread, eager and compiled; make bench-gpt runs it between lockstep's own runs.

    python3 labs/bench/peers/bench_pytorch_gpt.py LAYERS HEADS CHANNELS CONTEXT VOCABULARY BATCH STEPS [EAGER|COMPILED]

Prints one line of JSON: {"version": "2.15.0", "eager_ms": 70.1, "compiled_ms": 67.2}, each the median of STEPS steps behind a
warm-up. "version" is null where this Python has no PyTorch, and "compiled_ms" where it cannot compile. The model is the one
that lockstep trains: same sizes, tied head, tanh GELU, no dropout, fused AdamW over all parameters. Batches are ready in memory.
"""
import json
import os
import statistics
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
WARMUP = 5


def make_model(torch, layers, heads, channels, context, vocabulary):
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
            self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
            self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

        def forward(self, x):
            batch, length, _ = x.shape
            by_head = (batch, length, heads, channels // heads)
            q, k, v = (part.view(by_head).transpose(1, 2) for part in self.qkv(self.ln_1(x)).split(channels, dim=2))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, channels))
            return x + self.down(functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, channels), nn.Embedding(context, channels)
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(layers)), nn.LayerNorm(channels)
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, x, y):
            hidden = self.tokens(x) + self.positions.weight
            for block in self.blocks:
                hidden = block(hidden)
            logits = functional.linear(self.norm(hidden), self.tokens.weight)
            return functional.cross_entropy(logits.view(-1, vocabulary), y.view(-1))

    return Gpt()


def time_steps(torch, model, sizes, batch, steps, compiled):
    context, vocabulary = sizes[3], sizes[4]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    loss_of = torch.compile(model) if compiled else model
    tokens = [torch.randint(0, vocabulary, (batch, context + 1)) for _ in range(8)]
    times = []
    for step in range(WARMUP + steps):
        x, y = tokens[step % len(tokens)][:, :-1], tokens[step % len(tokens)][:, 1:]
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss_of(x.contiguous(), y.contiguous()).backward()
        optimizer.step()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times[WARMUP:])


def main():
    *sizes, batch, steps = (int(word) for word in sys.argv[1:8])
    forms = sys.argv[8:] or ["eager", "compiled"]
    result = {"version": None, "eager_ms": None, "compiled_ms": None}
    try:
        import torch
    except ImportError:
        print(json.dumps(result))
        return
    torch.set_num_threads(1)
    torch.manual_seed(0)
    result["version"] = torch.__version__
    for form in forms:
        model = make_model(torch, *sizes)
        try:
            result[form + "_ms"] = time_steps(torch, model, sizes, batch, steps, form == "compiled")
        except Exception as error:  # no compiler, or a version that cannot compile here
            if form == "eager":
                raise
            print(f"PyTorch cannot compile here: {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
