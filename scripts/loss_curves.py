#!/usr/bin/env python3
"""One model trained in four ways: on the CPU in double and in float, on a GPU in fp32 and in bf16.

    python3 scripts/loss_curves.py [--config configs/lm20m_softmax.yaml] [--steps 500] [--build build/cuda] [--json FILE]

The four start from the same weights and see the same batches, so that their losses differ by rounding alone. What
must hold: CPU float and GPU fp32 lie within 1e-4 of each other over the first 50 steps; over the whole run their
mean difference is at most twice that between CPU float and CPU double (rounding grows in the same way on both);
bf16 is within 1% of GPU fp32 in the mean of the last tenth. The exit code is 1 where one of them does not.

The runs go at the same time, the two of the CPU on half of the cores each. Needs data/corpus, which
./scripts/quickstart.sh makes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = {
    "CPU double": ["--device", "cpu", "--set", "train.precision=fp64"],
    "CPU float": ["--device", "cpu", "--set", "train.precision=fp32"],
    "GPU fp32": ["--device", "cuda", "--set", "train.precision=fp32"],
    "GPU bf16": ["--device", "cuda", "--set", "train.precision=bf16"],
}


def fail(message):
    raise SystemExit(f"loss_curves.py: error: {message}")


def train(arguments, folder):
    """The losses of each run, step by step."""
    threads = max(1, (os.cpu_count() or 2) // 2)
    program = Path(arguments.build) / "bin" / "katatrain"
    outputs = {name: Path(folder) / name.replace(" ", "-") for name in RUNS}
    processes = {}
    for name, options in RUNS.items():
        command = [str(program), "--config", arguments.config, "--steps", str(arguments.steps),
                   "--output", str(outputs[name]), "--set", "train.validate_every=0",
                   "--set", f"train.threads={threads}", *options,
                   *[word for setting in arguments.settings for word in ("--set", setting)]]
        with open(f"{outputs[name]}.log", "w") as log:
            processes[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT)
    failed = [name for name, process in processes.items() if process.wait() != 0]
    for name in failed:
        print(Path(f"{outputs[name]}.log").read_text(), file=sys.stderr)
    if failed:
        fail(f"the run {failed[0]} ended with exit code {processes[failed[0]].returncode}; its output is above")
    return {name: [json.loads(line)["loss"] for line in open(outputs[name] / "metrics.jsonl")] for name in RUNS}


def differences(losses, one, other):
    return [abs(a - b) for a, b in zip(losses[one], losses[other])]


def report(losses):
    """The table, and whether everything that must hold does."""
    steps = len(losses["CPU float"])
    print("step      " + "".join(f"{name:>12}" for name in RUNS))
    for step in sorted({1, 10, 50, 100, 200, steps // 2, steps} & set(range(1, steps + 1))):
        print(f"{step:<10}" + "".join(f"{losses[name][step - 1]:12.6f}" for name in RUNS))

    early = max(differences(losses, "CPU float", "GPU fp32")[:50])
    devices = statistics.fmean(differences(losses, "CPU float", "GPU fp32"))
    rounding = statistics.fmean(differences(losses, "CPU float", "CPU double"))
    last = steps - max(1, steps // 10)
    tail = {name: statistics.fmean(losses[name][last:]) for name in RUNS}
    half = abs(tail["GPU bf16"] / tail["GPU fp32"] - 1)
    checks = [
        (f"CPU float and GPU fp32, largest difference of the first 50 steps: {early:.2e} (at most 1e-4)",
         early <= 1e-4),
        (f"CPU float and GPU fp32, mean difference: {devices:.2e} (at most twice CPU float and double: "
         f"{rounding:.2e})", devices <= 2 * rounding),
        (f"GPU bf16 and fp32, mean of the last {steps - last} steps: {half:.2%} apart (at most 1%)", half <= 0.01),
    ]
    for text, holds in checks:
        print(("holds: " if holds else "FAILS: ") + text)
    return all(holds for _, holds in checks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="configs/lm20m_softmax.yaml")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE",
                        help="of all four runs, as katatrain's")
    parser.add_argument("--build", default="build/cuda", help="build folder of the programs")
    parser.add_argument("--json", help="file for the losses of every step")
    arguments = parser.parse_args()
    if arguments.steps < 1:
        fail(f"--steps {arguments.steps}: expected at least 1")
    with tempfile.TemporaryDirectory() as folder:
        losses = train(arguments, folder)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(losses) + "\n")
    sys.exit(0 if report(losses) else 1)


if __name__ == "__main__":
    main()
