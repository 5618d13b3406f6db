#!/usr/bin/env python3
"""Compares models in the Llama layout between here and transformers, in both directions.

    python3 scripts/check_llama_interchange.py [--bin build/cpu/bin] [--keep DIR]
    python3 scripts/check_llama_interchange.py --write-fixtures     makes tests/train/fixtures/llama_* again

Small Llamas with random weights are saved by transformers and read here; what is read, and a model that is trained
here, is exported and read by transformers. Logits may differ by 1e-4. Needs the programs and test_train of a build,
and Python with torch, transformers and safetensors. Exit code 1 where something differs.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

ROOT = Path(__file__).resolve().parent.parent
TOLERANCE = 1e-4

# What differs from hidden_size 24, 3 heads of 8, vocab_size 61, and how the model is saved.
CASES = {
    "untied": {},
    "tied": {"tie_word_embeddings": True},
    "grouped": {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4},
    "one_kv_head": {"num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 6, "hidden_size": 20},
    "wide_heads": {"num_attention_heads": 3, "head_dim": 16, "intermediate_size": 37, "vocab_size": 257},
    "eps_and_theta": {"rms_norm_eps": 1e-3, "theta": 500000.0},
    "bf16": {"save": {"dtype": torch.bfloat16}},
    "f16_tied": {"tie_word_embeddings": True, "save": {"dtype": torch.float16}},
    "sharded": {"num_hidden_layers": 3, "save": {"max_shard_size": "12KB"}},
    "sharded_bf16_tied": {"tie_word_embeddings": True, "save": {"dtype": torch.bfloat16, "max_shard_size": "9KB"}},
    "old_keys": {"theta": 20000.0, "old": True},
}
FIXTURES = {
    "llama_grouped": {"num_attention_heads": 3, "num_key_value_heads": 1, "rms_norm_eps": 1e-2, "theta": 50000.0,
                      "save": {"dtype": torch.float16}},
    "llama_tied_sharded": {"tie_word_embeddings": True, "num_hidden_layers": 1, "old": True,
                           "save": {"dtype": torch.bfloat16, "max_shard_size": "5KB"}},
}


def tokens_of(vocab, count=33):
    return torch.randint(0, vocab, (1, count), generator=torch.Generator().manual_seed(5))


def logits_of(folder):
    """Logits [time, vocab] in fp32 as transformers computes them from a folder, which must fit exactly."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    left = {key: names for key, names in info.items() if names}
    if left:
        raise SystemExit(f"{folder}: transformers reports {left}")
    with torch.no_grad():
        return model(tokens_of(model.config.vocab_size)).logits[0]


def save_logits(folder):
    logits = logits_of(folder)
    tensors = {"tokens": tokens_of(logits.shape[1])[0].int(), "logits": logits.contiguous()}
    save_file(tensors, folder / "logits.safetensors")


def write_old_keys(folder):
    """config.json as earlier versions of transformers wrote it."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"], config["rope_scaling"] = rope["rope_theta"], None
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=2) + "\n")


def make_case(folder, case):
    case = dict(case)
    save, old = dict(case.pop("save", {})), case.pop("old", False)
    sizes = {"vocab_size": 61, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2,
             "num_attention_heads": 3, "head_dim": 8, "max_position_embeddings": 64, "initializer_range": 0.3,
             "rope_parameters": {"rope_type": "default", "rope_theta": case.pop("theta", 10000.0)}, **case}
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    for name, weight in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    model.to(save.pop("dtype", torch.float32)).save_pretrained(folder, **save)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if old:
        write_old_keys(folder)
    save_logits(folder)


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def check_here(binaries, cases):
    """Our logits for the folders, by the test that also reads the fixtures."""
    out = run(binaries / "test_train", "--gtest_filter=Llama.LogitsOfTransformers",
              env={**os.environ, "KATA_LLAMA_CASES": str(cases)})
    print("".join(line + "\n" for line in out.split("\n") if "largest difference" in line), end="")


def check_back(binaries, case, work):
    """Imported and exported again, transformers must see the same model."""
    back = work / f"back-{case.name}"
    more = ["--file-bytes", 8000] if "sharded" in case.name else []
    run(binaries / "katadata", "import", "--from", case, "--output", work / f"run-{case.name}", "--tokenizer", "bytes")
    run(binaries / "katadata", "export", "--checkpoint", work / f"run-{case.name}", "--output", back, *more)
    difference = (logits_of(back) - logits_of(case)).abs().max().item()
    print(f"{case.name}: back in transformers, largest difference {difference:.2g}")
    return difference <= TOLERANCE


def train_here(binaries, work, cases):
    text = work / "text.txt"
    text.write_text("".join(f"line {i * i % 97}: the quick brown fox, again\n" for i in range(400)))
    run(binaries / "katadata", "tokenize", "--input", text, "--output", work / "shards")
    for tied in ("true", "false"):
        config = work / f"trained_{tied}.yaml"
        config.write_text(
            f"model: {{hidden: 48, layers: 2, heads: 6, kv_heads: 2, mlp: 80, tie_embeddings: {tied},\n"
            f"        mixer: {{preset: softmax, rope: {{base: 5000}}}}}}\n"
            f"data: {{train: ['{work}/shards/train-*.bin']}}\n"
            "train: {steps: 30, batch_tokens: 512, sequence: 64}\n")
        run(binaries / "katatrain", "--config", config, "--output", work / f"trained-{tied}")
        case = cases / f"trained_tied_{tied}"
        run(binaries / "katadata", "export", "--checkpoint", work / f"trained-{tied}", "--output", case)
        save_logits(case)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=ROOT / "build/cpu/bin", help="folder of the programs")
    parser.add_argument("--keep", type=Path, help="work in this folder, and leave it")
    parser.add_argument("--write-fixtures", action="store_true", help="make the test's fixtures again")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if arguments.write_fixtures:
        for name, case in FIXTURES.items():
            folder = ROOT / "tests/train/fixtures" / name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            make_case(folder, case)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.keep or Path(temporary)
        cases = work / "cases"
        cases.mkdir(parents=True)
        for name, case in CASES.items():
            make_case(cases / name, case)
        good = all([check_back(arguments.bin, case, work) for case in sorted(cases.iterdir())])
        train_here(arguments.bin, work, cases)
        check_here(arguments.bin, cases)
    print(f"transformers {transformers.__version__}: {'all equal' if good else 'DIFFERENT'} within {TOLERANCE}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
