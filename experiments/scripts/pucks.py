"""Three pucks on a table (examples/pucks.py), explored with the model relational and with pe: the error in play by round.

    python -m experiments.scripts.pucks [--models relational pe] [--rounds 8] [--seeds 3] [--steps 1000] [--out FILE.json]

Both explore by `opax-heuristic` with the same planner and as many gradient steps. The file is written after each round.
What the relational model has learned is then used for other numbers of pucks.
"""

import argparse
import importlib.util
import json
import time
from pathlib import Path
from types import ModuleType

from sonde._internal.files import write_atomically

OTHERS = (1, 2, 5)
"""Numbers of pucks that what was learned of three is used for."""


def load_pucks() -> ModuleType:
    """The example as a module."""
    path = Path(__file__).parents[2] / "examples" / "pucks.py"
    spec = importlib.util.spec_from_file_location("pucks", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Explore with each model, and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=("relational", "pe"), default=("relational", "pe"), help="what learns")
    parser.add_argument("--rounds", type=int, default=8, help="number of rounds of 50 steps")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--steps", type=int, default=1000, help="gradient steps after each round")
    parser.add_argument("--out", type=Path, help="file for the errors [rounds, seeds] of each model")
    options = parser.parse_args()

    pucks, found, explorer = load_pucks(), {}, None
    world = pucks.Pucks()
    for name in options.models:
        began, found[name] = time.process_time(), []
        for explorer in pucks.explore(world, pucks.models(options.steps)[name], options.rounds, tuple(range(options.seeds))):
            errors = pucks.error_in_play(explorer, world)
            found[name].append(errors.tolist())
            each = ", ".join(f"{error:.3f}" for error in errors)
            spent = time.process_time() - began
            print(f"{name}, {explorer.transitions} transitions: {errors.mean():.3f} ({each}); {spent:.0f} CPU-s", flush=True)
            if options.out is not None:
                write_atomically(options.out, json.dumps(found).encode())
        if explorer is not None and name == "relational":
            for count in OTHERS:
                other = pucks.Pucks(count)
                print(f"{count} pucks: {pucks.error_in_play(explorer.transferred(other.spec), other).mean():.3f}", flush=True)


if __name__ == "__main__":
    main()
