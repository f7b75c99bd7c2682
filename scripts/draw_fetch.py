"""Frame strips of the Fetch arm: each task as solved by a script, and free play as a run would go on with it.

    python scripts/draw_fetch.py --out fetch-strips.png [--run DIR]

Rows: pick & place, throw, flip (pale cubes are goals) and, with a run's folder, its next round of free play.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from sonde import FetchConstruction
from sonde.runs.film import captioned
from sonde.runs.run import experiment, restore_explorer
from sonde.runs.store import RunStore
from sonde.worlds.base import Simulators
from sonde.worlds.fetch_script import arrange, throw, turn
from sonde.worlds.fetch_tasks import FETCH_TASKS

FRAMES, WIDTH, COLOURS = 6, 200, 256
NEAR_THE_ARM = (110, 120, 370, 380)
"""What is cut out of pictures of what happens there, in pixels."""
BLOCKS, SEED = 4, 2
STEPS = {"pick-place": 140, "throw": 170, "flip": 60}
SCRIPTS = {
    "pick-place": lambda x, goal: arrange(x, goal.reshape(-1, 3)),
    "throw": lambda x, goal: throw(x, goal.reshape(-1, 3)),
    "flip": lambda x, _: turn(x),
}


def moments(steps: int) -> set[int]:
    """The steps after which a picture is taken."""
    return {int(step) for step in np.linspace(1, steps, FRAMES).round()}


def solving(name: str) -> dict[int, np.ndarray]:
    """Pictures of a script at work, by the steps taken."""
    copies = FetchConstruction(blocks=BLOCKS).for_task(name).open(1)
    goal = FETCH_TASKS[name](BLOCKS).sample_goal(np.random.default_rng(SEED))
    copies.show_goal(goal)
    x, pictures = copies.reset([SEED]), {}
    for step in range(1, STEPS[name] + 1):
        x = copies.step(SCRIPTS[name](x[0], goal)[None]).next_states
        if step in moments(STEPS[name]):
            pictures[step] = copies.picture()
    copies.close()
    return pictures


def playing(folder: Path) -> dict[int, np.ndarray]:
    """Pictures of the first rollout of the round that would come next."""
    store, pictures = RunStore.open(folder), {}
    explorer = restore_explorer(store, store.checkpoints()[-1])

    def look(step: int, copies: Simulators) -> None:
        if step in moments(store.config.horizon):
            pictures[step] = copies.picture()

    experiment(store.config, explorer, look)
    return pictures


def strip(title: str, pictures: dict[int, np.ndarray]) -> np.ndarray:
    """Pictures side by side, with the steps taken written above them."""
    box = None if title == "throw" else NEAR_THE_ARM
    small = lambda picture: np.asarray(Image.fromarray(picture).resize((WIDTH, WIDTH), Image.Resampling.LANCZOS, box))
    return np.concatenate([captioned(small(p), title, f"step {step}", "") for step, p in pictures.items()], axis=1)


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--run", type=Path, help="folder of a run of fetch-construction")
    chosen = parser.parse_args()
    rows = [strip(name, solving(name)) for name in SCRIPTS]
    if chosen.run is not None:
        rows.append(strip("free play", playing(chosen.run)))
    image = Image.fromarray(np.concatenate(rows)).quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    image.save(chosen.out, optimize=True)


if __name__ == "__main__":
    main()
