#!/usr/bin/env python3
"""Checks what no compiler checks: who includes whom, the places of every op, formatting, lengths, words.

    python3 scripts/check_tree.py               one line per finding, exit code 1 where there is any
    python3 scripts/check_tree.py --self-test   plants a fault for every rule in a copy and sees it found

Python's standard library only. Formatting needs clang-format 14 and is left out, with a note, where that is missing.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# ---- the include rule (src/README.md): a file of the room on the left includes these rooms and its own ----
ROOMS = {
    "base": {"base"},
    "config": {"base"},
    "ops": {"base"},
    "nn": {"base", "config", "ops"},
    "dist": {"base"},
    "data": {"base", "config"},
    "tasks": {"base", "config", "data"},
    "train": {"base", "config", "ops", "nn", "dist", "data/batch.h"},
    "eval": {"base", "config", "ops", "nn", "data", "tasks", "train"},
    "bench": {"base", "ops"},
    "apps": {"base", "config", "ops", "nn", "dist", "data", "tasks", "train", "eval", "bench"},
}
# Tests of a room include what the room may, tests/support, and these; those of the programs only run them.
TESTS = {room: allowed | {room, "support"} for room, allowed in ROOMS.items()} | {
    "train": ROOMS["train"] | {"train", "support", "data", "tasks"},  # real sources to train on
    "apps": {"base", "apps", "support"},
    "fuzz": ROOMS["apps"] | {"support"},
    # The GPU against the CPU; Hopper's kernels have an interface of their own.
    "kernels": {"base", "config", "ops", "nn", "data", "tasks", "train", "kernels", "kernels/sm90", "kernels/common", "support"},
    "support": {"base", "config", "ops", "nn", "support"},
}
GENERATED = {"commit.h"}  # made by CMake
# Private parts of ops, and who may look inside: the oracle shares no code with what it judges.
PRIVATE = {
    "ops/cpu/": ("src/ops/cpu/", "tests/ops/", "src/bench/report.cpp"),  # the report names the BLAS in use
    "ops/oracle/": ("src/ops/oracle/", "tests/"),
}

# ---- the places of an op ----
NOT_OPS = {
    "decay": "what fades between tokens, as launchers see it, computes nothing",
    "dispatch": "from tensors to launchers, computes nothing",
    "documents": "document boundaries as launchers see them, computes nothing",
    "token_heads": "the strided view that attention launchers take",
}
NO_GRADIENT = {
    "adamw": "the update itself, nothing is differentiated through it",
    "global_norm": "reads gradients, has no backward pass",
    "head_sum": "is itself the backward pass of a tensor that all heads share",
}

SOURCES = (".cpp", ".h", ".cu", ".cuh")
LENGTH_LIMIT = 500
COUNTED = SOURCES + (".py", ".sh", ".cmake")
NOT_TRACKED = ("data/corpus", "data/lm")  # made by programs, may be named by documents
HOSTS = ("pypi.org", "pythonhosted.org", "deb.debian.org", "archive.ubuntu.com", "npmjs.org")


class Tree:
    """The files of a working tree, by relative path."""

    def __init__(self, root, paths):
        self.root = Path(root)
        self.paths = sorted(p for p in paths if (self.root / p).is_file())

    @staticmethod
    def of_git(root):
        command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, capture_output=True, text=True)
        if listed.returncode != 0:
            raise SystemExit(f"check_tree.py: error: {root} is no git clone: {listed.stderr.strip()}")
        return Tree(root, set(filter(None, listed.stdout.split("\0"))))

    @staticmethod
    def of_folder(root):
        return Tree(root, [str(p.relative_to(root)) for p in Path(root).rglob("*")])

    def text(self, path):
        """None for what is no text."""
        data = (self.root / path).read_bytes()
        if b"\0" in data:
            return None
        try:
            return data.decode()
        except UnicodeDecodeError:
            return None

    def lines(self, path):
        return enumerate((self.text(path) or "").split("\n"), 1)

    def under(self, prefix, suffixes=("",)):
        return [p for p in self.paths if p.startswith(prefix) and p.endswith(tuple(suffixes))]

    def texts(self):
        return [p for p in self.paths if self.text(p) is not None and "/fixtures/" not in p]

    def exists(self, path):
        return any(p == path or p.startswith(path.rstrip("/") + "/") for p in self.paths)


# Every rule yields (path, line or 0, message).

def op_of_kernel(path):
    """The forms of one op may be files of their own."""
    return re.sub(r"_(quadratic|chunked|recurrent)$", "", Path(path).stem)


def allowed_includes(path):
    """The rooms and headers that a file may include, or None where the rule says nothing."""
    parts = path.split("/")
    if parts[0] == "src" and len(parts) > 2:
        return ROOMS.get(parts[1], set()) | {parts[1]}
    if parts[0] == "tests" and len(parts) > 2:
        return TESTS.get(parts[1], set())
    if parts[0] == "kernels":
        if parts[1] == "common":  # the types that the launchers of several ops share
            return {"base", "kernels/common", "kernels/sm90/attention.h", "ops"}
        own = {f"ops/{op_of_kernel(path)}.h"} if path.endswith(".cu") else set()
        return {"base", "kernels/common"} | own | ({"kernels/sm90"} if parts[1] == "sm90" else set())
    return None


def includes(tree):
    """who includes whom"""
    for path in tree.under("", SOURCES):
        allowed = allowed_includes(path)
        if allowed is None:
            continue
        for number, line in tree.lines(path):
            found = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
            if not found or found[1] in GENERATED:
                continue
            header = found[1]
            if "/" not in header or ".." in header:
                yield path, number, f'"{header}" must be written room/file.h'
                continue
            if not any(header == a or header.startswith(a + "/") for a in allowed):
                yield path, number, f'may not include "{header}" (the include rule of src/README.md)'
                continue
            for private, friends in PRIVATE.items():
                if header.startswith(private) and not path.startswith(friends):
                    yield path, number, f'"{header}" is private to {private}'


def lengths(tree):
    """a file over 500 lines is two files"""
    for path in tree.under("", COUNTED):
        count = (tree.text(path) or "").count("\n")
        if count > LENGTH_LIMIT:
            yield path, 0, f"{count} lines, at most {LENGTH_LIMIT}"


def op_names(tree):
    headers = [p for p in tree.under("src/ops/", (".h",)) if p.count("/") == 2]
    return [Path(p).stem for p in headers if Path(p).stem not in NOT_OPS]


def op_places(tree):
    """one op, its places, one name"""
    cases = tree.text("src/bench/cases.cpp") if tree.exists("src/bench/cases.cpp") else ""
    ops = op_names(tree)
    for op in ops:
        header = f"src/ops/{op}.h"
        if not tree.under(f"src/ops/cpu/{op}", (".cpp",)):
            yield header, 0, f"no CPU implementation src/ops/cpu/{op}*.cpp"
        tests = tree.under(f"tests/ops/{op}", ("_test.cpp",))
        if not tests:
            yield header, 0, f"no test tests/ops/{op}*_test.cpp"
        if op not in NO_GRADIENT:
            if not re.search(rf"\b{op}_backward", tree.text(header)):
                yield header, 0, f"declares no {op}_backward (an op without gradient stands in NO_GRADIENT)"
            around = tree.under(f"tests/ops/{op}", (".cpp", ".h"))
            if tests and not any("complex_step" in tree.text(t) for t in around):
                yield header, 0, f"no gradient test: nothing in tests/ops/{op}* uses complex_step"
        if not tree.exists(f"src/bench/{op}.cpp"):
            yield header, 0, f"no bench case src/bench/{op}.cpp"
        if f'{{"{op}", bench_{op}}}' not in cases:
            yield "src/bench/cases.cpp", 0, f'{{"{op}", bench_{op}}} is not listed'
    for path in tree.under("kernels/", (".cu",)):
        if path.count("/") == 1 and op_of_kernel(path) not in ops:
            yield path, 0, f"no op of that name: src/ops/{op_of_kernel(path)}.h"


def clang_format():
    for name in ("clang-format-14", "clang-format"):
        if shutil.which(name):
            text = subprocess.run([name, "--version"], capture_output=True, text=True).stdout
            if re.search(r"version 14\.", text):
                return name
    return None


def formatting(tree):
    """clang-format 14"""
    program = clang_format()
    files = tree.under("", SOURCES)
    if not program or not files:
        return
    command = [program, "--dry-run", "-Werror", "--style=file", *files]
    result = subprocess.run(command, cwd=tree.root, capture_output=True, text=True)
    seen = set()
    for found in re.finditer(r"^(\S+?):(\d+):\d+: error: ", result.stderr, re.M):
        if found[1] not in seen:
            seen.add(found[1])
            yield found[1], int(found[2]), f"not formatted; run {program} -i {found[1]}"
    if result.returncode != 0 and not seen:
        yield ".clang-format", 0, f"{program} failed: {result.stderr.strip()[:200]}"


def words(tree):
    """no notes to oneself, no paths or hosts of one machine, no blanks at line ends"""
    notes = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    places = re.compile(r"(?<![\w.~}/)\]-])/(?:work|root|home)(?![\w-])")
    for path in tree.texts():
        for number, line in tree.lines(path):
            if path == "scripts/check_tree.py" and line.startswith("HOSTS"):
                continue
            if found := notes.search(line):
                yield path, number, f"{found[1]}: do it, or file an issue"
            if found := places.search(line):
                yield path, number, f"{found[0]}: a path of one machine"
            for host in HOSTS:
                if host in line:
                    yield path, number, f"{host}: a package registry's host"
            if line != line.rstrip():
                yield path, number, "blanks at the end of the line"


def readmes(tree):
    """every top-level folder says what it is"""
    for folder in sorted({p.split("/")[0] for p in tree.paths if "/" in p}):
        if not folder.startswith(".") and not tree.exists(f"{folder}/README.md"):
            yield folder, 0, "has no README.md"


def names_in_documents(tree):
    """links and paths in documents lead somewhere"""
    named = re.compile(r"`((?:src|tests|scripts|configs|kernels|data|\.ci)/[\w./-]*)`")
    for path in tree.under("", (".md",)):
        for number, line in tree.lines(path):
            for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", line):
                where = os.path.normpath(os.path.join(os.path.dirname(path), target))
                if "://" not in target and where != "." and not tree.exists(where):
                    yield path, number, f"the link {target} leads nowhere"
            for target in named.findall(line):
                if not target.startswith(NOT_TRACKED) and not tree.exists(target):
                    yield path, number, f"`{target}` is not there"


def executables(tree):
    """what is called as ./scripts/x can be"""
    for path in tree.under("scripts/"):
        if (tree.text(path) or "").startswith("#!") and not os.access(tree.root / path, os.X_OK):
            yield path, 0, "starts with #! but is not executable; run chmod +x"


RULES = [includes, lengths, op_places, formatting, words, readmes, names_in_documents, executables]


def findings(tree, rules):
    lines = []
    for rule in rules:
        for path, line, message in rule(tree):
            lines.append(f"{path}{f':{line}' if line else ''}: {message}")
    return lines


# ---- the self-test ----

def edit(path, change):
    def apply(root):
        file = Path(root) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        before = file.read_text() if file.exists() else ""
        file.write_text(change(before))
    return apply


def add(path, text):
    return edit(path, lambda before: before + text + "\n")


def remove(path):
    return lambda root: (Path(root) / path).unlink()


def planted_faults():
    """(rule, fault, what the finding must hold)"""
    def include(path, header):
        return includes, add(path, f'#include "{header}"'), f'{path}:.*"{header}"'

    return [
        include("src/base/tensor.h", "ops/matmul.h"),
        include("src/ops/matmul.h", "nn/linear.h"),
        include("src/ops/matmul.h", "config/schema.h"),
        include("src/nn/block.h", "train/learner.h"),
        include("src/nn/block.cpp", "ops/cpu/gemm.h"),
        include("src/nn/block.cpp", "ops/oracle/scalar.h"),
        include("src/train/learner.h", "data/shard.h"),
        include("src/train/learner.cpp", "tasks/mqar.h"),
        include("src/bench/rmsnorm.cpp", "train/learner.h"),
        include("src/ops/matmul.h", "dispatch.h"),
        include("src/ops/cpu/matmul.cpp", "../dispatch.h"),
        include("src/ops/oracle/matmul.h", "ops/cpu/gemm.h"),
        include("tests/ops/rmsnorm_test.cpp", "train/learner.h"),
        include("tests/support/compare.h", "train/learner.h"),
        include("tests/apps/katatrain_test.cpp", "nn/block.h"),
        include("kernels/rmsnorm.cu", "ops/matmul.h"),
        include("kernels/rmsnorm.cu", "kernels/sm90/tile.cuh"),
        (lengths, add("src/base/error.cpp", "\n" * LENGTH_LIMIT), "src/base/error.cpp: .* lines"),
        (op_places, add("src/ops/strange.h", "#pragma once"), "strange.h: no CPU implementation"),
        (op_places, add("src/ops/strange.h", "#pragma once"), "strange.h: no test"),
        (op_places, add("src/ops/strange.h", "#pragma once"), "strange.h: declares no strange_backward"),
        (op_places, add("src/ops/strange.h", "#pragma once"), "strange.h: no bench case"),
        (op_places, remove("src/ops/cpu/rmsnorm.cpp"), "rmsnorm.h: no CPU implementation"),
        (op_places, remove("src/bench/rmsnorm.cpp"), "rmsnorm.h: no bench case"),
        (op_places, edit("src/bench/cases.cpp", lambda t: t.replace('{"rmsnorm"', '{"norm"')),
         '"rmsnorm".*not listed'),
        (op_places, edit("tests/ops/rmsnorm_test.cpp", lambda t: t.replace("complex_step", "step")),
         "rmsnorm.h: no gradient test"),
        (op_places, add("kernels/strange.cu", ""), "kernels/strange.cu: no op of that name"),
        (formatting, add("src/base/error.cpp", "int  x ;"), "src/base/error.cpp:.*not formatted"),
        (words, add("src/base/error.cpp", "// TO" + "DO: later"), "src/base/error.cpp:.*do it"),
        (words, add("src/base/error.cpp", "// FIX" + "ME"), "src/base/error.cpp:.*do it"),
        (words, add("README.md", "see /ho" + "me/someone/x"), "README.md:.*one machine"),
        (words, add("README.md", "`/wo" + "rk`"), "README.md:.*one machine"),
        (words, add("README.md", "get it from https://" + HOSTS[0]), "README.md:.*registry"),
        (words, add("src/base/error.cpp", "// end "), "src/base/error.cpp:.*blanks"),
        (readmes, remove("src/README.md"), "src: has no README"),
        (readmes, add("strange/file.txt", "x"), "strange: has no README"),
        (names_in_documents, add("README.md", "[x](src/strange.md)"), "README.md:.*leads nowhere"),
        (names_in_documents, add("src/README.md", "`src/strange.h`"), "src/README.md:.*not there"),
        (executables, lambda root: os.chmod(Path(root) / "scripts/test.sh", 0o644), "scripts/test.sh:.*chmod"),
    ]


def copy(tree, to):
    for path in tree.paths:
        target = Path(to) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree.root / path, target)


def self_test(tree):
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        clean = Path(folder) / "clean"
        copy(tree, clean)
        before = {rule: set(findings(Tree.of_folder(clean), [rule])) for rule in RULES}
        for rule, fault, expected in planted_faults():
            if rule is formatting and not clang_format():
                continue
            faulty = Path(folder) / "faulty"
            copy(tree, faulty)
            fault(faulty)
            new = set(findings(Tree.of_folder(faulty), [rule])) - before[rule]
            if not any(re.search(expected, line) for line in new):
                missed += 1
                print(f"check_tree.py: {rule.__name__} did not find its fault: /{expected}/ not in {sorted(new)}")
            shutil.rmtree(faulty)
    print(f"check_tree.py: {len(planted_faults())} planted faults, {missed} missed")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true", help="see every rule find a planted fault")
    arguments = parser.parse_args()
    tree = Tree.of_git(Path(__file__).resolve().parent.parent)
    if not clang_format():
        print("check_tree.py: note: no clang-format 14 here, formatting is not checked")
    if arguments.self_test:
        return 1 if self_test(tree) else 0
    lines = findings(tree, RULES)
    for line in lines:
        print(line)
    if not lines:
        print(f"check_tree.py: {len(tree.paths)} files, {len(op_names(tree))} ops, no findings")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
