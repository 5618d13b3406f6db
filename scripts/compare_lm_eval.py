#!/usr/bin/env python3
"""Compares kataeval with lm-evaluation-harness: strings, targets, metrics and their errors, with a dummy model.

    python3 -m venv lm_eval_venv && lm_eval_venv/bin/pip install lm-eval
    lm_eval_venv/bin/python scripts/compare_lm_eval.py --kataeval build/cpu/bin/kataeval
    lm_eval_venv/bin/python scripts/compare_lm_eval.py --random 400 --seed 3     documents of characters that hurt

lm-eval runs its own tasks offline on the documents of tests/eval/fixtures (or --data DIR); kataeval --model dummy runs
on the same files, and kataeval --compare reads both sample files of every task. Not part of CI: lm-eval is not a
dependency of this project. Exit code 1 where anything differs.
"""

import argparse
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

ROOT = Path(__file__).resolve().parent.parent
# What lm-eval asks the hub for, and the file that answers: (path, configuration) -> task.
SOURCES = {
    ("allenai/ai2_arc", "ARC-Easy"): "arc_easy",
    ("allenai/ai2_arc", "ARC-Challenge"): "arc_challenge",
    ("baber/piqa", None): "piqa",
    ("Rowan/hellaswag", None): "hellaswag",
    ("allenai/winogrande", "winogrande_xl"): "winogrande",
    ("allenai/openbookqa", "main"): "openbookqa",
    ("aps/super_glue", "boolq"): "boolq",
    ("aps/super_glue", "copa"): "copa",
    ("allenai/sciq", None): "sciq",
    ("lighteval/siqa", None): "social_iqa",
    ("allenai/social_i_qa", None): "social_iqa",
    ("EleutherAI/lambada_openai", "default"): "lambada_openai",
    ("cimec/lambada", None): "lambada_standard",
    ("EleutherAI/wikitext_document_level", "wikitext-2-raw-v1"): "wikitext",
    ("hazyresearch/based-swde-v2", "default"): "swde",
    ("hazyresearch/based-fda", "default"): "fda",
    ("hazyresearch/based-squad", "default"): "squad_completion",
}
TASKS = sorted(set(SOURCES.values()))


# Pieces of random documents: blanks of all kinds, brackets and quotes that the preprocessing of tasks looks for,
# letters whose case is not one letter to one letter, marks, characters of one to four bytes.
PIECES = list("aAbBzZ .,:;!?'\"()[]{}=@-N\n\t_") + [
    "  ", "[title]", "[step]", " [title]", "= = ", " @-@ ", " @,@ ", " 's", "s '", " \u00b0 ", " N ", " . ", ' " ', "lol",
    "LOL", "\u00a0", "\u2003", "\u200b", "\u3000", "\x1c", "\x85", "\ufeff", "\u00ad", "\u2019", "\u00b7", "\u00df",
    "\u03a3", "\u0391\u03a3", "\u0130", "\u0131", "\u0149", "\u01c6", "\ufb01", "\u017f", "\u212a", "\u00e9",
    "e\u0301", "\u0345", "\u1fb3", "\u10a0", "\u10d0", "\u13a0", "\uab70", "\u1e9e", "\u0390", "\u4e2d", "\U0001f642"]


def random_documents(folder, count, seed):
    """A file of every task; what lm-eval itself cannot take (an empty choice, no letter at all) is left out."""
    draw = random.Random(seed)

    def text(most=12, least=0):
        return "".join(draw.choice(PIECES) for _ in range(draw.randint(least, most)))

    def some():
        return text(12, 1)

    def key():
        return draw.randint(0, 1)

    def choices(blanks):
        labels = list("ABCD")[:draw.randint(1, 4)]
        return {"choices": {"text": [some() for _ in labels], "label": labels},
                "answerKey": draw.choice(blanks) + draw.choice(labels)}

    def page():
        return {"text": "x" + text(20), "key": "k", "value": text(3)}

    makers = {
        "arc_easy": lambda: {"question": text(20), **choices([""])},
        "arc_challenge": lambda: {"question": text(20), **choices([""])},
        "openbookqa": lambda: {"question_stem": "q" + text(20), **choices(["", " ", "\u2003"])},
        "piqa": lambda: {"goal": text(20), "sol1": some(), "sol2": some(), "label": key()},
        "hellaswag": lambda: {"activity_label": text(5), "ctx_a": text(20), "ctx_b": text(), "ctx": text(),
                              "endings": ["x" + text(15) for _ in range(4)], "label": str(draw.randint(0, 3))},
        "winogrande": lambda: {"sentence": text() + "_" + text(), "option1": some(), "option2": some(),
                               "answer": str(1 + key())},
        "boolq": lambda: {"question": text(), "passage": text(20), "label": key()},
        "copa": lambda: {"premise": text() + "x", "choice1": some(), "choice2": some(),
                         "question": draw.choice(["cause", "effect"]), "label": key()},
        "sciq": lambda: {"question": text(), "distractor1": some(), "distractor2": some(), "distractor3": some(),
                         "correct_answer": some(), "support": text(15)},
        "social_iqa": lambda: {"context": text(), "question": text(), "answerA": some(), "answerB": some(),
                               "answerC": some(), "label": str(draw.randint(1, 3))},
        "lambada_openai": lambda: {"text": text(25) + "x"},
        "lambada_standard": lambda: {"text": text(25) + "x"},
        "wikitext": lambda: {"page": text(60)},
        "swde": page, "fda": page, "squad_completion": page,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for task in TASKS:
        lines = [json.dumps(makers[task](), ensure_ascii=draw.random() < 0.5) for _ in range(count)]
        (folder / f"{task}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def run_lm_eval(tasks, data, bootstrap):
    import datasets
    import lm_eval

    # Read before the evaluator seeds its generator: reading must not draw from it.
    loaded = {}
    for task in tasks:
        rows = datasets.load_dataset("json", data_files=str(data / f"{task}.jsonl"), split="train")
        loaded[task] = datasets.DatasetDict({split: rows for split in ("train", "validation", "test")})

    def local(path=None, name=None, **_):
        task = SOURCES.get((path, name)) or SOURCES.get((path, None))
        if task not in loaded:
            raise SystemExit(f"compare_lm_eval.py: lm-eval asks for {path} {name}, which SOURCES does not have")
        return loaded[task]

    # Building the tasks draws from Python's generator, how often depends on the version of datasets: the dummy
    # model starts where the evaluator seeded it.
    from lm_eval.models.dummy import DummyLM

    random.seed(0)
    start = random.getstate()

    class Dummy(DummyLM):
        started = False

        def answer(self, kind, requests, **more):
            if not self.started:
                random.setstate(start)
            self.started = True
            return getattr(super(), kind)(requests, **more)

        def loglikelihood(self, requests, **more):
            return self.answer("loglikelihood", requests, **more)

        def loglikelihood_rolling(self, requests, **more):
            return self.answer("loglikelihood_rolling", requests, **more)

    datasets.load_dataset = local
    return lm_eval.simple_evaluate(model=Dummy(), tasks=list(tasks), log_samples=True, bootstrap_iters=bootstrap)


def write_samples(results, folder):
    """As lm-eval writes them: arguments by name, answers and targets as text."""
    from lm_eval.loggers import EvaluationTracker

    samples = results.pop("samples")
    tracker = EvaluationTracker(output_path=str(folder))
    tracker.save_results_aggregated(results=results, samples=samples)
    for task, rows in samples.items():
        tracker.save_results_samples(task_name=task, samples=rows)


def only(pattern):
    found = glob.glob(str(pattern), recursive=True)
    if len(found) != 1:
        raise SystemExit(f"compare_lm_eval.py: {len(found)} files match {pattern}, expected one")
    return found[0]


def compare_results(theirs, ours, tasks):
    """Differences of the metrics' lines, as text."""
    for task in tasks:
        left, right = theirs["results"][task], ours["results"][task]
        for key, value in left.items():
            other = right.get(key)
            same = value == other
            if isinstance(value, float) and isinstance(other, float):
                same = abs(value - other) <= 1e-12 * max(1.0, abs(value))
            if not same:
                yield f"{task}: {key}: lm-eval {value!r}, kataeval {other!r}"
        for table in ("n-samples", "higher_is_better", "versions", "n-shot", "task_hashes"):
            if theirs[table][task] != ours[table][task]:
                yield f"{task}: {table}: lm-eval {theirs[table][task]}, kataeval {ours[table][task]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kataeval", default=str(ROOT / "build/cpu/bin/kataeval"))
    parser.add_argument("--data", type=Path, default=ROOT / "tests/eval/fixtures")
    parser.add_argument("--tasks", default=",".join(TASKS), help="names, separated by commas")
    parser.add_argument("--bootstrap", type=int, default=1000)
    parser.add_argument("--keep", type=Path, help="folder for the files of both, instead of a temporary one")
    parser.add_argument("--random", type=int, help="so many random documents of each task, instead of --data")
    parser.add_argument("--seed", type=int, default=1, help="of the random documents")
    arguments = parser.parse_args()
    tasks = sorted(arguments.tasks.split(","))
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        data = arguments.data
        if arguments.random:
            data = folder / "documents"
            random_documents(data, arguments.random, arguments.seed)
        write_samples(run_lm_eval(tasks, data, arguments.bootstrap), folder / "lm-eval")
        subprocess.run([arguments.kataeval, "--tasks", ",".join(tasks), "--model", "dummy", "--data",
                        str(data), "--compat", "lm-eval-head", "--bootstrap", str(arguments.bootstrap),
                        "--output", str(folder / "kataeval")], check=True)
        faults = 0
        for task in tasks:
            pair = [only(folder / f"lm-eval/**/samples_{task}_2*.jsonl"), f"{folder}/kataeval/samples_{task}.jsonl"]
            faults += subprocess.run([arguments.kataeval, "--compare", *pair]).returncode != 0
        both = [json.loads(Path(path).read_text())
                for path in (only(folder / "lm-eval/**/results_*.json"), f"{folder}/kataeval/results.json")]
        for line in compare_results(*both, tasks):
            print(line)
            faults += 1
    print(f"compare_lm_eval.py: {len(tasks)} tasks, {faults} with differences" if faults else
          f"compare_lm_eval.py: {len(tasks)} tasks, no differences")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
