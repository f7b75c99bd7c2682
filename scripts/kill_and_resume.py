"""Kill a run with `kill -9` at random moments, resume it each time, and compare with a run that was left alone.

    python scripts/kill_and_resume.py [--kills 20] [--seed 0]

Each trial starts a fresh run, kills it at one random moment between its beginning and its end, resumes it, and compares
measurements, checkpoints and metrics (but for the times) byte by byte.
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
    """Start the command line in a process of its own."""
    return subprocess.Popen([sys.executable, "-m", "sonde", *args], stdout=subprocess.DEVNULL)


def results(folder: Path) -> dict[str, object]:
    """All that must not depend on interruptions."""
    files = [path for name in ("data", "checkpoints") for path in sorted((folder / name).iterdir())]
    found: dict[str, object] = {path.name + path.parent.name: path.read_bytes() for path in files}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found["metrics"] = [{k: v for k, v in row.items() if not k.startswith("seconds/")} for row in rows]
    return found


def explore(folder: Path) -> subprocess.Popen:
    """Start the run."""
    return sonde("explore", "pendulum-gp-lite", *OPTIONS, "--out", str(folder))


def main() -> int:
    """Returns the number of trials that ended differently."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="trials")
    parser.add_argument("--seed", type=int, default=0, help="for the moments")
    arguments = parser.parse_args()
    rng, base = random.Random(arguments.seed), Path(tempfile.mkdtemp())
    assert explore(base / "warm").wait() == 0  # fills the compilation cache, so that the next one has the usual length
    began = time.monotonic()
    assert explore(base / "whole").wait() == 0
    length = time.monotonic() - began
    expected, different = results(base / "whole"), 0
    print(f"an undisturbed run takes {length:.1f} s", flush=True)
    for trial in range(1, arguments.kills + 1):
        folder = base / "killed"
        shutil.rmtree(folder, ignore_errors=True)
        moment = rng.uniform(0, length)
        process = explore(folder)
        time.sleep(moment)
        process.send_signal(signal.SIGKILL)
        killed = process.wait() == -signal.SIGKILL
        checkpoints = sorted(path.stem for path in folder.glob("checkpoints/*.json"))
        # killed before the folder appeared: nothing to resume, so it is started anew
        again = sonde("resume", str(folder)) if folder.exists() else explore(folder)
        same = again.wait() == 0 and results(folder) == expected
        different += not same
        state = f"killed after {moment:4.1f} s, newest checkpoint {checkpoints[-1] if checkpoints else 'none'}"
        print(
            f"trial {trial:2d}: {state if killed else 'ended before it was killed'}: {'same' if same else 'DIFFERENT'}",
            flush=True,
        )
    if different:
        print(f"kept for inspection: {base}")
    else:
        shutil.rmtree(base)
    print(f"{arguments.kills - different} of {arguments.kills} bit-identical")
    return different


if __name__ == "__main__":
    sys.exit(main())
