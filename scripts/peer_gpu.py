"""The 340M model's training step here and in PyTorch on one GPU: bench_peers.py --gpu.

The peer is the same softmax decoder through torch.compile: bf16 autocast, SDPA, fused AdamW, clipping, the same batch
of random tokens. The contenders take turns, a process each, so that their memory does not meet. Attention alone is
timed too: PyTorch's FlashAttention and cuDNN, forward and backward. flash-linear-attention joins where it is installed.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LENGTH, VOCAB = 2048, 32000
OURS = ("softmax", "psd", "kata_m2")
MODEL = {"hidden": 1024, "layers": 24, "heads": 16, "kv_heads": 16, "head_dim": 64, "mlp": 2816, "vocab": VOCAB,
         "tie_embeddings": True,
         "mixer": {"read": "softmax", "qk_norm": "none", "conv": 0, "rope": {"base": 10000}}}


def fail(message):
    raise SystemExit(f"bench_peers.py: error: {message}")


def write_shard(path, tokens):
    """Random tokens in the layout of a token shard: 256 int32 of header, then uint16."""
    import numpy
    header = numpy.zeros(256, numpy.int32)
    header[:3] = 20240520, 1, tokens
    ids = numpy.random.default_rng(1).integers(0, VOCAB, tokens, numpy.uint16)
    Path(path).write_bytes(header.tobytes() + ids.tobytes())


# ---- the PyTorch side, in a process of its own ----

def peer_step(batch, steps, warmup):
    """Seconds of each step, and peak memory, of the compiled softmax peer."""
    import torch
    import peer_model
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    config = {"model": MODEL, "train": {"sequence": LENGTH}}
    with torch.device("cuda"):
        model = peer_model.Decoder(config, peer_model.COMPILED["masked"])
    run = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    tokens = torch.randint(0, VOCAB, (batch, LENGTH + 1), device="cuda")
    seconds = []
    for step in range(warmup + steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - begin)
    return {"seconds": seconds[warmup:], "peak_bytes": torch.cuda.max_memory_allocated(),
            "parameters": sum(p.numel() for p in model.parameters()), "torch": torch.__version__,
            "gpu": torch.cuda.get_device_name()}


def attention_times(width=64, heads=16, tokens=32768):
    """Milliseconds of causal attention, forward and both passes, by sequence length and implementation."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    backends = {"FlashAttention": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
    rows = []
    for length in (2048, 8192, 32768):
        shape = (max(1, tokens // length), heads, length, width)
        q, k, v, d = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(4))
        for name, backend in backends.items():
            with sdpa_kernel(backend):
                def forward():
                    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

                def both():
                    forward().backward(d)
                rows.append({"peer": name, "length": length, "forward_ms": device_ms(forward),
                             "both_ms": device_ms(both)})
    return rows


def linear_attention_times(width=64, heads=16, tokens=32768):
    """Milliseconds of flash-linear-attention's chunked ops, as attention_times; nothing where it is not installed."""
    import torch
    import torch.nn.functional as F
    try:
        from fla.ops.delta_rule import chunk_delta_rule
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
        from fla.ops.linear_attn import chunk_linear_attn
        from fla.ops.simple_gla import chunk_simple_gla
    except ImportError as error:
        print(f"bench_peers.py: note: without flash-linear-attention ({error})", file=sys.stderr)
        return []
    rows = []
    for length in (2048, 8192, 32768):
        shape = (max(1, tokens // length), length, heads, width)  # its layout: time before heads
        q, k, v, d = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4))
        gate = torch.randn(shape[:3], device="cuda")
        unit_q, unit_k = (F.normalize(x.float(), dim=-1).bfloat16() for x in (q, k))
        inputs = {"q": unit_q, "k": unit_k, "v": v,
                  "beta": gate.sigmoid().bfloat16(), "g": F.logsigmoid(gate + 4)}
        for x in inputs.values():
            x.requires_grad_()
        for name, op, names in (("linear_attn", chunk_linear_attn, "qkv"), ("simple_gla", chunk_simple_gla, "qkvg"),
                                ("delta_rule", chunk_delta_rule, ("q", "k", "v", "beta")),
                                ("gated_delta_rule", chunk_gated_delta_rule, ("q", "k", "v", "g", "beta"))):
            chosen = {x: inputs[x] for x in names}
            options = {"normalize": False} if name == "linear_attn" else {}

            def forward():
                return op(**chosen, **options)[0]

            def both():
                forward().backward(d)
            rows.append({"peer": f"fla {name}", "length": length, "forward_ms": device_ms(forward),
                         "both_ms": device_ms(both)})
    return rows


def device_ms(body):
    import torch
    for _ in range(3):
        body()
    times = []
    for _ in range(9):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        body()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def ask(call, *arguments):
    command = [sys.executable, str(Path(__file__)), call, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT / "scripts", text=True, capture_output=True)
    if done.returncode != 0:
        fail(f"the PyTorch side ended with code {done.returncode}: {done.stderr.strip()[-600:]}")
    return json.loads(done.stdout.splitlines()[-1])


# ---- our side: the real program ----

def our_step(build, name, shard, batch, steps, warmup, folder):
    output = Path(folder) / f"{name}-{time.monotonic_ns()}"
    settings = [f"data.train=[{shard}]", "data.validation=[]", "data.tokenizer=bytes", f"model.vocab={VOCAB}",
                f"train.batch_tokens={batch * LENGTH}", f"train.micro_batch={batch}", "train.validate_every=0",
                "train.checkpoint_every=0", "optimizer.warmup=0"]
    command = [str(ROOT / build / "bin/katatrain"), "--config", str(ROOT / f"configs/{name}.yaml"),
               "--output", str(output), "--steps", str(warmup + steps), "--device", "cuda",
               *[word for setting in settings for word in ("--set", setting)]]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    if done.returncode != 0:
        fail(f"katatrain ended with code {done.returncode}: {done.stderr.strip()[-600:]}")
    metrics = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return {"seconds": [batch * LENGTH / step["tokens_per_s"] for step in metrics[warmup:]],
            "peak_bytes": metrics[-1]["memory"], "mfu": metrics[-1]["mfu"]}


def run(arguments):
    rounds = {}
    with tempfile.TemporaryDirectory() as folder:
        shard = Path(folder) / "random.bin"
        write_shard(shard, 4_000_000)
        for number in range(min(arguments.rounds, 2)):
            print(f"  round {number + 1}", file=sys.stderr, flush=True)
            for name in ("PyTorch softmax", *(f"lm340m_{mixer}" for mixer in OURS)):
                step = (ask("step", arguments.batch, arguments.steps, arguments.warmup) if name.startswith("PyTorch") else
                        our_step(arguments.build, name, shard, arguments.batch, arguments.steps, arguments.warmup, folder))
                rounds.setdefault(name, []).append(step)
                print(f"  {name}: {1e3 * statistics.median(step['seconds']):.1f} ms", file=sys.stderr, flush=True)
    attention = ask("attention") + ask("linear_attention")
    peer = rounds["PyTorch softmax"][0]
    medians = {name: statistics.median([s for r in runs for s in r["seconds"]]) for name, runs in rounds.items()}
    tokens = arguments.batch * LENGTH
    print(f"{peer['gpu']}, PyTorch {peer['torch']}: {arguments.batch} rows of {LENGTH} tokens, bf16, "
          f"{peer['parameters']} parameters in the peer")
    print(f"  {'':<20} {'ms, median':>10} {'tokens/s':>9} {'to peer':>8} {'GiB':>6} {'mfu':>6}   ms of each round")
    for name, runs in rounds.items():
        each = " ".join(f"{1e3 * statistics.median(r['seconds']):.1f}" for r in runs)
        mfu = runs[-1].get("mfu")
        print(f"  {name:<20} {1e3 * medians[name]:>10.1f} {tokens / medians[name]:>9.0f} "
              f"{medians['PyTorch softmax'] / medians[name]:>7.2f}x {runs[-1]['peak_bytes'] / 2**30:>6.1f} "
              f"{f'{mfu:.2f}' if mfu else '':>6}   {each}")
    print("  causal attention of 16 heads of 64, 32,768 tokens, ms:")
    for row in attention:
        print(f"    {row['peer']:<20} T {row['length']:>6}  forward {row['forward_ms']:.3f}  "
              f"forward and backward {row['both_ms']:.3f}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"rounds": rounds, "attention": attention}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    call, numbers = sys.argv[1], map(int, sys.argv[2:])
    calls = {"step": peer_step, "attention": attention_times, "linear_attention": linear_attention_times}
    print(json.dumps(calls[call](*numbers)))
