"""Frame strips of the Fetch arm: each task as solved by a script, or what a run does.

    python scripts/draw_fetch.py --out fetch-strips.png
    python scripts/draw_fetch.py --out fetch-learned.png --run DIR

Rows: pick & place, throw and flip (pale cubes are goals). With a run: a rollout of free play as it would go on, and one
try at each task with what it has learned; with the paper's settings that is some minutes on two cores.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from sonde import FetchConstruction, RunConfig
from sonde.control._rollout import OnStep
from sonde.explorer import Explorer
from sonde.runs._run import evaluate_task, experiment, restore_explorer
from sonde.runs._store import RunStore
from sonde.runs.figures._film import captioned
from sonde.worlds._base import Simulators
from sonde.worlds.fetch._script import arrange, throw, turn
from sonde.worlds.fetch._tasks import FETCH_TASKS

FRAMES, WIDTH, COLOURS = 6, 200, 256
NEAR_THE_ARM, IN_ITS_REACH = (110, 120, 370, 380), (50, 70, 400, 420)
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


def watched(steps: int, act: Callable[[OnStep], object]) -> dict[int, np.ndarray]:
    """Pictures of the first rollout of what `act` does, which takes a function to call after every step."""
    pictures = {}

    def look(step: int, copies: Simulators) -> None:
        if step in moments(steps):
            pictures[step] = copies.picture()

    act(look)
    return pictures


def learned(config: RunConfig, explorer: Explorer) -> dict[str, dict[int, np.ndarray]]:
    """Pictures of free play as it would go on, and of the tasks."""
    config = replace(config, rollouts=1, evaluation_rollouts=1)
    rows = {"free play": watched(config.horizon, lambda look: experiment(config, explorer, look))}
    for name in SCRIPTS:
        attempt = lambda look, name=name: evaluate_task(config, explorer, name, explorer.posterior, look)
        rows[name] = watched(config.settings_for(name).horizon, attempt)
    return rows


def strip(title: str, pictures: dict[int, np.ndarray], box: tuple[int, int, int, int] | None) -> np.ndarray:
    """Pictures side by side, or what is in a box of them, with the steps taken written above them."""
    small = lambda picture: np.asarray(Image.fromarray(picture).resize((WIDTH, WIDTH), Image.Resampling.LANCZOS, box))
    return np.concatenate([captioned(small(p), title, f"step {step}", "") for step, p in pictures.items()], axis=1)


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--run", type=Path, help="folder of a run of fetch-construction: draw what it does, and no script")
    chosen = parser.parse_args()
    if chosen.run is None:
        strips = [strip(name, solving(name), None if name == "throw" else NEAR_THE_ARM) for name in SCRIPTS]
    else:
        store = RunStore.open(chosen.run)
        explorer = restore_explorer(store, store.checkpoints()[-1])
        rows = learned(store.config, explorer).items()
        strips = [strip(name, pictures, None if name == "throw" else IN_ITS_REACH) for name, pictures in rows]
    image = Image.fromarray(np.concatenate(strips)).quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    image.save(chosen.out, optimize=True)


if __name__ == "__main__":
    main()
