#!/usr/bin/env python3
"""Draws a metric of one or more runs over the steps, as one SVG file that any browser shows.

    python3 scripts/plot.py runs/softmax runs/psd --key validation_loss --output compare.svg

A run is a folder with metrics.jsonl; --key is any number of its lines (loss, validation_loss, grad_norm, lr,
tokens_per_s, ...); steps without it are left out. --smooth N averages over N neighbouring points. Python's standard
library only.
"""

import argparse
import json
import math
import sys
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 480, 70, 20, 20, 50
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999")


def fail(message):
    raise SystemExit(f"plot.py: error: {message}")


def read(run, key):
    """[(step, value)] with finite values only."""
    path = Path(run) / "metrics.jsonl"
    try:
        lines = [line for line in path.read_text().splitlines() if line]
    except OSError as error:
        fail(f"{path}: {error.strerror}; expected the folder of a run")
    points, keys = [], set()
    for number, line in enumerate(lines, 1):
        try:
            step = json.loads(line)
        except ValueError:
            if number == len(lines):
                continue  # a run that is being written, or was killed
            fail(f"{path}:{number}: not JSON")
        keys |= {k for k, v in step.items() if isinstance(v, (int, float))}
        value = step.get(key)
        if isinstance(value, (int, float)) and math.isfinite(value):
            points.append((step["step"], value))
    if not points:
        fail(f"{path}: no step has '{key}'; it has {', '.join(sorted(keys)) or 'no steps'}")
    return points


def smoothed(points, window):
    if window <= 1:
        return points
    half, out = window // 2, []
    for i, (step, _) in enumerate(points):
        near = [value for _, value in points[max(0, i - half):i + half + 1]]
        out.append((step, sum(near) / len(near)))
    return out


def ticks(low, high, count=6):
    """Round numbers that cover [low, high]."""
    if low == high:
        return [low]
    raw = (high - low) / count
    unit = 10 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= raw)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def chart(curves, key):
    steps = [step for _, points in curves for step, _ in points]
    values = [value for _, points in curves for _, value in points]
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or abs(high) or 1
    low, high, first, last = low - margin, high + margin, min(steps), max(max(steps), min(steps) + 1)

    def x(step):
        return LEFT + (step - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(value):
        return TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           f'font-size="13"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for value in ticks(low, high):
        out.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.6g}</text>')
    for step in ticks(first, last):
        out.append(f'<text x="{x(step):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{step:.6g}</text>')
    out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" text-anchor="middle">step</text>'
               f'<text transform="translate(16 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(key)}</text>')
    for i, (name, points) in enumerate(curves):
        colour = COLOURS[i % len(COLOURS)]
        path = "L".join(f"{x(step):.1f} {y(value):.1f}" for step, value in points)
        out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-linecap="round"/>'
                   f'<text x="{WIDTH - RIGHT - 8}" y="{TOP + 18 + 18 * i}" text-anchor="end" fill="{colour}">'
                   f'{escape(name)}: {points[-1][1]:.4g}</text>')
    return "\n".join(out) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="folders of runs")
    parser.add_argument("--key", default="loss", help="which number of metrics.jsonl")
    parser.add_argument("--smooth", type=int, default=1, metavar="N", help="average over N points")
    parser.add_argument("--output", default="metrics.svg", metavar="FILE", help="the SVG file to write")
    arguments = parser.parse_args()
    curves = [(run.rstrip("/"), smoothed(read(run, arguments.key), arguments.smooth)) for run in arguments.runs]
    Path(arguments.output).write_text(chart(curves, arguments.key))
    for name, points in curves:
        print(f"{name}: {arguments.key} {points[-1][1]:.6g} at step {points[-1][0]}")
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    sys.exit(main())
