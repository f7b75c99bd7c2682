"""Draw strips of frames of the Fetch arm: each task solved by a script, or what a run does.

    python -m experiments.scripts.draw_fetch --out fetch-strips.png
    python -m experiments.scripts.draw_fetch --out fetch-learned.png --run DIR

Rows: pick-place, throw and flip (pale cubes are goals). With a run: a rollout of the next round, and one attempt at each task
with what it has learned; with the paper's settings that takes some minutes on two cores.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from sonde.control import OnStep, SimulatorPool
from sonde.evaluation import Learned, evaluate
from sonde.explorer import Explorer
from sonde.runs import RunConfig
from sonde.runs._run import collect, restore_explorer
from sonde.runs._store import RunStore
from sonde.runs.figures._film import captioned
from sonde.worlds import FetchConstruction, Simulators
from sonde.worlds.fetch._script import flip, pick_place, throw
from sonde.worlds.fetch._tasks import FETCH_TASKS

FRAMES, WIDTH, COLOURS = 6, 200, 256
NEAR_ARM, IN_REACH = (110, 120, 370, 380), (50, 70, 400, 420)
"""Boxes in pixels that images are cropped to."""
BLOCKS, SEED = 4, 2
STEPS = {"pick-place": 140, "throw": 170, "flip": 60}
SCRIPTS = {
    "pick-place": lambda x, goal: pick_place(x, goal.reshape(-1, 3)),
    "throw": lambda x, goal: throw(x, goal.reshape(-1, 3)),
    "flip": lambda x, _: flip(x),
}


def frame_steps(steps: int) -> set[int]:
    """Choose the steps after which an image is rendered.

    Args:
        steps: Number of steps of the rollout.
    """
    return {int(step) for step in np.linspace(1, steps, FRAMES).round()}


def scripted_frames(name: str) -> dict[int, np.ndarray]:
    """Render a script that solves a task.

    Args:
        name: Name of the task.

    Returns:
        Images by the number of steps taken.
    """
    copies = FetchConstruction(blocks=BLOCKS).for_task(name).open(1)
    goal = FETCH_TASKS[name](BLOCKS).sample_goal(np.random.default_rng(SEED))
    copies.show_goal(goal)
    x, frames = copies.reset([SEED]), {}
    for step in range(1, STEPS[name] + 1):
        x = copies.step(SCRIPTS[name](x[0], goal)[None]).next_states
        if step in frame_steps(STEPS[name]):
            frames[step] = copies.render()
    copies.close()
    return frames


def frames_of(steps: int, roll_out: Callable[[OnStep], object]) -> dict[int, np.ndarray]:
    """Render the first of the rollouts that a function runs.

    Args:
        steps: Number of steps of the rollout.
        roll_out: Runs the rollouts and calls its argument after every step.

    Returns:
        Images by the number of steps taken.
    """
    frames = {}

    def on_step(step: int, copies: Simulators) -> None:
        if step in frame_steps(steps):
            frames[step] = copies.render()

    roll_out(on_step)
    return frames


def learned_frames(config: RunConfig, explorer: Explorer) -> dict[str, dict[int, np.ndarray]]:
    """Render the next round's first rollout, and one attempt at each task.

    Args:
        config: The config of the run.
        explorer: The explorer of the run.

    Returns:
        Images by the number of steps taken, by row.
    """
    config = replace(config, rollouts=1, evaluation_rollouts=1)
    learned = Learned(explorer.posterior, explorer.data)
    with SimulatorPool() as pool:
        rows = {"free play": frames_of(config.horizon, lambda on_step: collect(config, explorer, pool, on_step))}
        for name in SCRIPTS:
            setup = config.task_setup(name)
            attempt = lambda on_step, it=setup: evaluate(it, learned, explorer.keys(), pool=pool, on_step=on_step)
            rows[name] = frames_of(setup.horizon, attempt)
    return rows


def strip(title: str, frames: dict[int, np.ndarray], box: tuple[int, int, int, int] | None) -> np.ndarray:
    """Join images side by side, with the number of steps above them.

    Args:
        title: Title of each image.
        frames: Images by the number of steps taken.
        box: Part of the images to show, in pixels; None for all of it.

    Returns:
        An image, uint8 [height, width, 3].
    """
    small = lambda image: np.asarray(Image.fromarray(image).resize((WIDTH, WIDTH), Image.Resampling.LANCZOS, box))
    return np.concatenate([captioned(small(image), title, f"step {step}", "") for step, image in frames.items()], axis=1)


def main() -> None:
    """Draw all strips into one image."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--run", type=Path, help="folder of a run of fetch-construction: draw what it does instead of scripts")
    options = parser.parse_args()
    if options.run is None:
        strips = [strip(name, scripted_frames(name), None if name == "throw" else NEAR_ARM) for name in SCRIPTS]
    else:
        store = RunStore.open(options.run)
        explorer = restore_explorer(store)
        rows = learned_frames(store.config, explorer).items()
        strips = [strip(name, frames, None if name == "throw" else IN_REACH) for name, frames in rows]
    image = Image.fromarray(np.concatenate(strips)).quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    image.save(options.out, optimize=True)


if __name__ == "__main__":
    main()
