#!/usr/bin/env python3
"""A model's training step here and in PyTorch, in one run on this machine.

    python3 scripts/bench_peers.py --cpu [--json FILE]    the quickstart's model on the processor
    python3 scripts/bench_peers.py --gpu [--json FILE]    the 340M model on a GPU (scripts/peer_gpu.py)

--cpu needs build/cpu and data/corpus, which ./scripts/quickstart.sh makes, and a Python with PyTorch:

    python3 -m venv build/peers && build/peers/bin/pip install torch numpy pyyaml
    build/peers/bin/python scripts/bench_peers.py --cpu

The peer (scripts/peer_model.py) is the same model: a checkpoint of ours is loaded into it, and both must have the
same number of parameters and the same loss on the validation text. PyTorch runs eagerly and through torch.compile,
each in the fastest of several ways to write the model, with the faster of its AdamW implementations. The contenders
take turns; a figure is the median over the rounds of the median step of a round.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOLERANCE = 1e-5  # relative difference of the two losses, both fp32


def fail(message):
    raise SystemExit(f"bench_peers.py: error: {message}")


def median(values):
    return statistics.median(values)


def numbers(tree):
    """PyYAML takes 1e-08 for a word."""
    if isinstance(tree, dict):
        return {key: numbers(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [numbers(value) for value in tree]
    try:
        return float(tree) if isinstance(tree, str) else tree
    except ValueError:
        return tree


# ---- the PyTorch side: a process of its own, so that its threads and its memory do not meet ours ----

class Worker:
    """Answers one JSON object per line on standard input with one on standard output."""

    def __init__(self, threads):
        import torch
        import peer_model
        self.torch, self.peer = torch, peer_model
        torch.set_num_threads(threads)
        self.steps = {}

    def about(self):
        torch = self.torch
        parallel = torch.__config__.parallel_info().splitlines()
        return {"torch": torch.__version__, "python": platform.python_version(),
                "capability": torch.backends.cpu.get_cpu_capability(), "threads": torch.get_num_threads(),
                "blas": next((line.split("-Product")[0] for line in parallel if "Kernel Library" in line), "no MKL"),
                "mkldnn": torch.backends.mkldnn.is_available()}

    def config(self, path):
        import yaml
        self.settings = numbers(yaml.safe_load(Path(path).read_text()))
        return self.settings

    def variants(self):
        return {"eager": list(self.peer.EAGER), "compiled": list(self.peer.COMPILED)}

    def parameters(self):
        model = self.peer.Decoder(self.settings, self.peer.EAGER["masked"])
        return sum(p.numel() for p in model.parameters())

    def loss(self, checkpoint, shard, batches):
        """Mean loss over the first rows of a validation shard, as src/data/token_source.h cuts them."""
        torch, train = self.torch, self.settings["train"]
        length, rows = train["sequence"], train["batch_tokens"] // train["sequence"]
        model = self.peer.Decoder(self.settings, self.peer.EAGER["masked"])
        model.load_state_dict(self.peer.read_safetensors(checkpoint))
        tokens = torch.frombuffer(bytearray(Path(shard).read_bytes()), dtype=torch.uint16, offset=1024).long()
        count = batches * rows * length
        if tokens.numel() <= count:
            fail(f"{shard}: {tokens.numel()} tokens, expected more than {count}")
        inputs, targets = (tokens[i:i + count].view(batches, rows, length) for i in (0, 1))
        with torch.no_grad():
            return sum(model(x, y).item() for x, y in zip(inputs, targets)) / batches

    def make(self, name, mode, variant):
        """A training step by name; returns the seconds of the first call (compilation)."""
        torch, config = self.torch, self.settings
        torch.manual_seed(1)
        styles = self.peer.EAGER if mode == "eager" else self.peer.COMPILED
        model = self.peer.Decoder(config, styles[variant])
        run = model if mode == "eager" else torch.compile(model)
        parameters = list(model.parameters())
        optimizer = self.optimizer(model, parameters)
        length, rows = config["train"]["sequence"], config["train"]["batch_tokens"] // config["train"]["sequence"]
        tokens = torch.randint(0, config["model"]["vocab"], (rows, length + 1))
        clip = config["train"]["clip"]

        def step():
            loss = run(tokens[:, :-1], tokens[:, 1:])
            loss.backward()
            if clip > 0:
                torch.nn.utils.clip_grad_norm_(parameters, clip, foreach=True)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.item()

        self.steps[name] = step
        return self.time(name, 1)[0]

    def optimizer(self, model, parameters):
        """The fastest AdamW, with decay on matrices only as in ours."""
        torch, settings = self.torch, self.settings["optimizer"]
        decayed = {id(p) for p in model.matrices()}
        groups = [{"params": [p for p in parameters if (id(p) in decayed) == decays],
                   "weight_decay": settings["weight_decay"] if decays else 0.0} for decays in (True, False)]
        timed = []
        for implementation in ("fused", "foreach"):
            for p in parameters:
                p.grad = torch.zeros_like(p)
            optimizer = torch.optim.AdamW(groups, lr=settings["lr"], betas=tuple(settings["betas"]),
                                          eps=settings["eps"], **{implementation: True})
            seconds = []
            for _ in range(6):
                begin = time.perf_counter()
                optimizer.step()
                seconds.append(time.perf_counter() - begin)
            timed.append((median(seconds[1:]), implementation, optimizer))
            optimizer.zero_grad(set_to_none=True)
        _, self.adamw, best = min(timed, key=lambda entry: entry[0])
        return best

    def drop(self, name):
        del self.steps[name]

    def time(self, name, count):
        seconds = []
        for _ in range(count):
            begin = time.perf_counter()
            self.steps[name]()
            seconds.append(time.perf_counter() - begin)
        return seconds

    def serve(self):
        for line in sys.stdin:
            request = json.loads(line)
            answer = getattr(self, request["call"])(*request["arguments"])
            print(json.dumps({"answer": answer}), flush=True)


class Peer:
    """The worker seen from the parent."""

    def __init__(self, threads):
        environment = clean_environment(threads)
        # PyTorch allocates its activations anew in every step: keep them from going back to the system each time.
        environment.update(MALLOC_MMAP_THRESHOLD_=str(1 << 32), MALLOC_TRIM_THRESHOLD_=str(1 << 34))
        self.process = subprocess.Popen([sys.executable, __file__, "--worker", str(threads)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def __getattr__(self, call):
        def ask(*arguments):
            print(json.dumps({"call": call, "arguments": arguments}), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
            if not line:
                fail("the PyTorch process ended, its message is above")
            return json.loads(line)["answer"]
        return ask

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# ---- our side: the real program ----

def clean_environment(threads):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS_", "GOTO_", "MKL_", "OMP_"))}
    return environment | {"OMP_NUM_THREADS": str(threads)}


class Ours:
    def __init__(self, binaries, config, threads, folder):
        self.binaries, self.config, self.threads, self.folder = binaries, config, threads, Path(folder)
        self.runs = 0

    def call(self, program, *arguments):
        command = [str(self.binaries / program), *map(str, arguments)]
        done = subprocess.run(command, cwd=ROOT, env=clean_environment(self.threads), text=True, capture_output=True)
        if done.returncode != 0:
            fail(f"{' '.join(command)} ended with code {done.returncode}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def train(self, steps, *settings):
        """A run of its own; returns its folder and its metrics, one object per step."""
        self.runs += 1
        output = self.folder / f"run{self.runs}"
        overrides = [f"train.threads={self.threads}", "train.checkpoint_every=0", *settings]
        self.call("katatrain", "--config", self.config, "--output", output, "--steps", steps,
                  *[word for setting in overrides for word in ("--set", setting)])
        return output, [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]

    def time(self, warmup, count):
        _, metrics = self.train(warmup + count, "train.validate_every=0")
        tokens = metrics[0]["tokens"]
        return [tokens / step["tokens_per_s"] for step in metrics[warmup:]]

    def blas(self):
        file = self.folder / "bench.json"
        self.call("katabench", "global_norm", "--json", file)
        return json.loads(file.read_text())


def same_model(ours, peer):
    """Trains a little, loads the checkpoint into the peer, compares parameters and loss. Returns the findings."""
    steps, batches = 30, 4
    output, metrics = ours.train(steps, f"train.validate_every={steps}", f"train.validate_batches={batches}")
    config = peer.config(str(output / "config.yaml"))
    latest = output / "checkpoints" / (output / "checkpoints" / "latest").read_text().strip()
    checkpoint = latest / "model.safetensors"
    header = json.loads(checkpoint.read_bytes()[8:8 + int.from_bytes(checkpoint.read_bytes()[:8], "little")])
    sizes = [entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"]
    parameters = sum(end - begin for begin, end in sizes) // 4
    if parameters != peer.parameters():
        fail(f"the models differ: {parameters} parameters here, {peer.parameters()} in the peer")
    shards = sorted(p for pattern in config["data"]["validation"] for p in ROOT.glob(pattern))
    loss, peer_loss = metrics[-1]["validation_loss"], peer.loss(str(checkpoint), str(shards[0]), batches)
    difference = abs(loss - peer_loss) / loss
    if not difference <= TOLERANCE:
        fail(f"the models differ: validation loss {loss} here, {peer_loss} in the peer")
    return config, {"parameters": parameters, "loss": loss, "peer_loss": peer_loss, "relative_difference": difference}


def fastest(peer, mode, variants, steps):
    """Builds every variant of a mode and keeps the one with the fastest median step."""
    tried = {}
    for variant in variants:
        print(f"  {mode}, {variant}: building", file=sys.stderr, flush=True)
        peer.make(f"{mode} {variant}", mode, variant)
        tried[variant] = []
    for _ in range(3):
        for variant in variants:
            tried[variant] += peer.time(f"{mode} {variant}", steps)
    medians = {variant: median(seconds) for variant, seconds in tried.items()}
    best = min(medians, key=medians.get)
    for variant in variants:
        if variant != best:
            peer.drop(f"{mode} {variant}")
    return f"{mode} {best}", medians


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def machine(ours, peer):
    measured = ours.blas()
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "system": platform.platform(), "commit": measured["commit"],
            "openblas_core": measured["blas_core"], "openblas_coretype": "unset",
            "matrix_flops_per_s": measured["matrix_flops_per_s"], "peer": peer.about()}


def compare(arguments, threads, folder):
    """One thread count: the report as a dictionary."""
    ours = Ours(ROOT / arguments.build / "bin", arguments.config, threads, folder)
    peer = Peer(threads)
    try:
        report = {"threads": threads, "machine": machine(ours, peer)}
        config, report["same_model"] = same_model(ours, peer)
        report["model"] = config["model"]
        report["batch_tokens"], report["sequence"] = config["train"]["batch_tokens"], config["train"]["sequence"]
        variants = peer.variants()
        if arguments.eager_only:
            del variants["compiled"]
        report["tried"], names = {}, ["ours"]
        for mode, choices in variants.items():
            name, report["tried"][mode] = fastest(peer, mode, choices, 2)
            names.append(name)
        rounds = {name: [] for name in names}
        for number in range(arguments.rounds):
            print(f"  round {number + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
            for name in names:
                seconds = (ours.time(arguments.warmup, arguments.steps) if name == "ours" else
                           peer.time(name, arguments.warmup + arguments.steps)[arguments.warmup:])
                rounds[name].append(median(seconds))
        report["seconds_per_step"] = {name: {"rounds": values, "median": median(values)}
                                      for name, values in rounds.items()}
        return report
    finally:
        peer.close()


def show(report):
    about, same, peer = report["machine"], report["same_model"], report["machine"]["peer"]
    tokens = report["batch_tokens"]
    print(f"{about['cpu']}, {about['cores']} cores; commit {about['commit']}; {report['threads']} threads each")
    print(f"ours: OpenBLAS core {about['openblas_core']}; peer: PyTorch {peer['torch']}, {peer['capability']}, "
          f"{peer['blas']}")
    print(f"the same model: {same['parameters']} parameters, validation loss {same['loss']:.6f} and "
          f"{same['peer_loss']:.6f}")
    for mode, tried in report["tried"].items():
        print(f"{mode}, ms a step: " + ", ".join(f"{name} {1e3 * s:.0f}" for name, s in tried.items()))
    print(f"a step of {tokens} tokens, rows of {report['sequence']}:")
    print(f"  {'':<20} {'ms, median':>10} {'tokens/s':>9} {'ours is':>9}   ms of each round")
    ours = report["seconds_per_step"]["ours"]["median"]
    for name, entry in report["seconds_per_step"].items():
        each = " ".join(f"{1e3 * s:.0f}" for s in entry["rounds"])
        print(f"  {name:<20} {1e3 * entry['median']:>10.1f} {tokens / entry['median']:>9.0f} "
              f"{entry['median'] / ours:>8.2f}x   {each}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true", help="compare on the processor")
    parser.add_argument("--gpu", action="store_true", help="compare on a GPU, the 340M model")
    parser.add_argument("--batch", type=int, default=16, help="with --gpu: rows of 2,048 tokens a step")
    parser.add_argument("--threads", default=str(os.cpu_count()), help="thread counts to compare at: 1,2")
    parser.add_argument("--config", default="configs/quickstart.yaml", help="the model and the step")
    parser.add_argument("--build", default="build/cpu", help="build folder of our programs")
    parser.add_argument("--rounds", type=int, default=5, help="turns of every contender")
    parser.add_argument("--steps", type=int, default=20, help="timed steps of a turn")
    parser.add_argument("--warmup", type=int, default=20, help="steps before them")
    parser.add_argument("--eager-only", action="store_true", help="leave torch.compile out")
    parser.add_argument("--json", metavar="FILE", help="also write all numbers to FILE")
    parser.add_argument("--require", type=float, metavar="RATIO",
                        help="exit code 1 unless ours is RATIO times as fast as every peer")
    arguments = parser.parse_args()
    if arguments.cpu == arguments.gpu:
        fail("expected --cpu or --gpu")
    return arguments


def main():
    if sys.argv[1:2] == ["--worker"]:
        return Worker(int(sys.argv[2])).serve()
    arguments = parse()
    try:
        import torch  # noqa: F401, only to say early what is missing
        import yaml  # noqa: F401
    except ImportError as error:
        how = __doc__.split("Python with PyTorch:\n\n")[1].split("\n\n")[0]
        fail(f"{error}; make a scratch environment and use its Python:\n{how}")
    if arguments.gpu:
        import peer_gpu
        return peer_gpu.run(arguments)
    for needed in (f"{arguments.build}/bin/katatrain", "data/corpus/validation.bin"):
        if not (ROOT / needed).exists():
            fail(f"{needed} is missing; run ./scripts/quickstart.sh first")
    if os.getloadavg()[0] > 0.5:
        print(f"bench_peers.py: note: the machine is busy (load {os.getloadavg()[0]:.1f}), figures mean little",
              file=sys.stderr)
    reports, enough = [], True
    for threads in map(int, arguments.threads.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            reports.append(compare(arguments, threads, folder))
        show(reports[-1])
        times = {name: entry["median"] for name, entry in reports[-1]["seconds_per_step"].items()}
        slowest_allowed = min(s for name, s in times.items() if name != "ours")
        enough = enough and (arguments.require is None or times["ours"] * arguments.require <= slowest_allowed)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(reports, indent=2) + "\n")
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
