#!/usr/bin/env python3
"""Runs the commands of README.md and CONTRIBUTING.md, so that they cannot go stale.

    python3 scripts/readme_commands.py

Takes the ```bash blocks in order and runs them as one script in a scratch folder that sees this tree's files and the
quickstart's results (run scripts/quickstart.sh first). What .ci/run does as a stage of its own is not run again, a
training is cut to a few steps, and a choice of tests must name some. A ```yaml block that opens with "# NAME.yaml" is the file NAME.yaml of the commands.
Blocks of other kinds (```text) are left alone.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("README.md", "CONTRIBUTING.md")
RESULTS = ("quickstart", "eval-mqar-quick")  # of runs/, from scripts/quickstart.sh
SECONDS = 600  # for all of a document's commands
TRAINING = "--steps 3 --set train.validate_every=0"  # for a training that is not the point


def fail(message):
    raise SystemExit(f"readme_commands.py: error: {message}")


def commands(document):
    """[(line number, command)] of the bash blocks, continued lines joined."""
    out, inside, start, pending = [], False, 0, ""
    for number, line in enumerate((ROOT / document).read_text().splitlines(), 1):
        if line.startswith("```"):
            inside = line.strip() == "```bash"
            continue
        if not inside or not line.strip() or line.lstrip().startswith("#"):
            continue
        start = start if pending else number
        pending += line.strip()
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        out.append((start, pending))
        pending = ""
    return out


def files(document):
    """{name: text} of the yaml blocks that name a file."""
    blocks = re.findall(r"^```yaml\n# (\S+\.yaml)\n(.*?)^```", (ROOT / document).read_text(), re.M | re.S)
    return dict(blocks)


def stages():
    """Commands that .ci/run runs itself."""
    return set(re.findall(r"\./scripts/\w+\.sh", (ROOT / ".ci/run").read_text()))


def shortened(command):
    """None for what CI runs as a stage; a training of a few steps for a training; of some tests only their list."""
    command = command.split(" #")[0].strip()
    if command in stages():
        return None
    if command.startswith("./scripts/test.sh "):
        chosen = command.removeprefix("./scripts/test.sh ")
        return f"ctest --test-dir '{ROOT}/build/cpu' -N {chosen} | tail -n 1 | grep -v ': 0$'"
    if command.startswith("katatrain ") and not re.search(r"--(dry-run|list-mixers|help|version|steps)\b", command):
        first, bar, rest = command.partition(" | ")
        return f"{first} {TRAINING}{bar}{rest}"
    return command


def scratch_tree(folder):
    """The tree's files as links; runs/ and data/ are folders of their own, so that nothing here is changed."""
    for entry in ROOT.iterdir():
        if entry.name not in ("runs", "data", ".git"):
            (folder / entry.name).symlink_to(entry)
    (folder / "data").mkdir()
    for entry in (ROOT / "data").iterdir():
        (folder / "data" / entry.name).symlink_to(entry)
    for name in RESULTS:
        if not (ROOT / "runs" / name).exists():
            fail(f"runs/{name} is missing; run ./scripts/quickstart.sh first")
        shutil.copytree(ROOT / "runs" / name, folder / "runs" / name)


def run(document):
    script = ["set -euo pipefail", f'export PATH="{ROOT}/build/cpu/bin:$PATH"']
    skipped = 0
    for line, command in commands(document):
        short = shortened(command)
        if short is None:
            skipped += 1
            continue
        script += [f"echo '--- {document}:{line}'", "echo " + "'" + short.replace("'", "'\\''") + "'", short]
    with tempfile.TemporaryDirectory() as name:
        scratch_tree(Path(name))
        for file, text in files(document).items():
            (Path(name) / file).write_text(text)
        shell = subprocess.Popen(["bash", "-c", "\n".join(script)], cwd=name, stdin=subprocess.DEVNULL,
                                 start_new_session=True)
        try:
            code = shell.wait(SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
            fail(f"{document}: its commands took more than {SECONDS} s")
    if code != 0:
        fail(f"the last command above, of {document}, ended with code {code}")
    count = (len(script) - 2) // 3
    print(f"readme_commands.py: {document}: {count} commands run, {skipped} are stages of CI", flush=True)


if __name__ == "__main__":
    for each in DOCUMENTS:
        run(each)
