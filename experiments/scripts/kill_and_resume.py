"""Kill a run with `kill -9` at random moments, resume it, and compare it with a run that was not interrupted.

    python -m experiments.scripts.kill_and_resume [--kills 20] [--seed 0]

Each trial starts a new run, kills it at a random moment between its beginning and its end, resumes it, and compares
measurements, checkpoints and metrics (except times) byte by byte.
"""

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OPTIONS = [
    *("--rounds", "4", "--horizon", "25", "--evaluation-horizon", "20"),
    *("--model.steps", "10", "--solver.samples", "50", "--solver.iterations", "2"),
]


def sonde(*args: str) -> subprocess.Popen:
    """Start the command line in another process."""
    return subprocess.Popen([sys.executable, "-m", "sonde", *args], stdout=subprocess.DEVNULL)


def explore(folder: Path) -> subprocess.Popen:
    """Start the run."""
    return sonde("explore", "pendulum-gp-lite", *OPTIONS, "--out", str(folder))


def results(folder: Path) -> dict[str, object]:
    """Everything that must not depend on interruptions."""
    files = [path for name in ("data", "checkpoints") for path in sorted((folder / name).iterdir())]
    found: dict[str, object] = {path.name + path.parent.name: path.read_bytes() for path in files}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found["metrics"] = [{k: v for k, v in row.items() if not k.startswith("seconds/")} for row in rows]
    return found


def trial(folder: Path, moment: float, expected: dict[str, object]) -> tuple[bool, str]:
    """Kill a new run after some seconds and resume it; returns whether the results are as expected, and what happened."""
    shutil.rmtree(folder, ignore_errors=True)
    process = explore(folder)
    time.sleep(moment)
    process.send_signal(signal.SIGKILL)
    killed = process.wait() == -signal.SIGKILL
    checkpoints = sorted(path.stem for path in folder.glob("checkpoints/*.json"))
    # a run that was killed before its folder appeared cannot be resumed, and is started again
    again = sonde("resume", str(folder)) if folder.exists() else explore(folder)
    same = again.wait() == 0 and results(folder) == expected
    newest = checkpoints[-1] if checkpoints else "none"
    return same, f"killed after {moment:4.1f} s, newest checkpoint {newest}" if killed else "ended before it was killed"


def main() -> int:
    """Run all trials; returns how many ended with different results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="number of trials")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random moments")
    arguments = parser.parse_args()
    rng, base = random.Random(arguments.seed), Path(tempfile.mkdtemp())
    assert explore(base / "first").wait() == 0  # fills the compilation cache, so that the next run has the usual length
    began = time.monotonic()
    assert explore(base / "whole").wait() == 0
    length = time.monotonic() - began
    expected, different = results(base / "whole"), 0
    print(f"an uninterrupted run takes {length:.1f} s", flush=True)
    for number in range(1, arguments.kills + 1):
        same, what = trial(base / "killed", rng.uniform(0, length), expected)
        different += not same
        print(f"trial {number:2d}: {what}: {'same' if same else 'DIFFERENT'}", flush=True)
    if different:
        print(f"kept for inspection: {base}")
    else:
        shutil.rmtree(base)
    print(f"{arguments.kills - different} of {arguments.kills} bit-identical")
    return different


if __name__ == "__main__":
    sys.exit(main())
