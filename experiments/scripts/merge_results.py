"""Put results that were made on other machines among the recorded ones.

    python -m experiments.scripts.merge_results downstream FOLDER... [--into experiments/results]

Each FOLDER is what `python -m experiments downstream` wrote next to its figures: curves.csv and provenance.json. A world that
is in any of them replaces the recorded one as a whole, with all its methods; what several of them have of the same world is put
together, if it was made with the same settings. Then draw again, and answer the claims, with `--no-run`.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.paper import FIGURES
from experiments.provenance import FILE, comparable, joined, read
from sonde._internal.errors import SondeError, one_of
from sonde._internal.files import write_atomically
from sonde.runs import RunConfig
from sonde.runs._codec import from_json
from sonde.runs._config import differences
from sonde.runs.sweep import Results

CURVES = "curves.csv"


def merge(folders: Sequence[Path], into: Path) -> list[str]:
    """Replace worlds of recorded results.

    Args:
        folders: Folders with new curves and their provenance.
        into: Folder of the recorded ones; it is made if there is none.

    Returns:
        The worlds that were replaced or added.
    """
    new, made = [Results.load(folder / CURVES) for folder in folders], [read(folder / FILE) for folder in folders]
    _check(folders, made)
    settings = list(dict.fromkeys(row["setting"] for results in new for row in results.rows))
    old = Results.load(into / CURVES).rows if (into / CURVES).exists() else []
    kept = [row for row in old if row["setting"] not in settings]
    earlier = read(into / FILE)
    batches = {name: facts for name, facts in earlier["batches"].items() if facts["setting"] not in settings}
    for each in made:
        batches |= each["batches"]
    machines = joined([machine for each in (earlier, *made) for machine in each["machines"]])
    provenance = {**made[-1], "machines": machines, "batches": batches}
    into.mkdir(parents=True, exist_ok=True)
    Results([*kept, *(row for results in new for row in results.rows)]).save(into / CURVES)
    write_atomically(into / FILE, (json.dumps(provenance, indent=1) + "\n").encode())
    return settings


def _check(folders: Sequence[Path], made: Sequence[dict[str, Any]]) -> None:
    """Reject folders whose runs of the same method on the same world had different settings."""
    first: dict[tuple[str, str], tuple[Path, RunConfig]] = {}
    for folder, each in zip(folders, made, strict=True):
        if not each["batches"]:
            raise SondeError(f"{folder / FILE} does not say how the results were made; copy it from where they were")
        for name, facts in each["batches"].items():
            config = comparable(from_json(RunConfig, json.dumps(facts["config"]), f"{folder / FILE}: {name}"))
            other, wanted = first.setdefault((facts["setting"], facts["method"]), (folder, config))
            if differing := list(differences(wanted, config)):
                raise SondeError(
                    f"{name} was made with other settings in {other} (there) than in {folder} (here): {'; '.join(differing)}"
                )


def main() -> None:
    """Merge, and say what comes next."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure")
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--into", type=Path, default=Path(__file__).parents[1] / "results")
    args = parser.parse_args()
    one_of("figure", args.figure, FIGURES)
    settings = merge(args.folders, args.into / args.figure)
    print(f"Replaced: {', '.join(settings)}. Now draw: python -m experiments {args.figure} --no-run --out {args.into} ...")


if __name__ == "__main__":
    main()
