"""Make docs/gallery.md: films and pictures of every world, explored and given tasks, by the lite presets.

    python -m experiments.scripts.gallery [--only pendulum ...] [--runs runs/gallery] [--use cheetah=DIR]

A world is explored (a run that was interrupted goes on; `--use` takes a finished one), then one more round is filmed, then
tasks that are planned zero-shot. Pictures, films and numbers that exist are not made again: delete them, or their rows of
films.json, to renew them. Takes minutes to an hour per world on two cores. `MUJOCO_GL=osmesa` renders without EGL.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from PIL import Image
from rich.console import Console

from sonde._internal.files import write_atomically
from sonde._internal.precision import double_precision
from sonde.control import rollout
from sonde.data import Trajectory
from sonde.evaluation import Evaluation, Learned, TaskSetup, evaluate
from sonde.explorer import Explorer
from sonde.runs import ProgressDisplay, RunConfig, TaskSettings, default_config, explore, preset
from sonde.runs._run import build_explorer, restore_explorer
from sonde.runs._store import RunStore
from sonde.runs.figures import draw_states
from sonde.runs.figures._film import captioned, write_film
from sonde.worlds import GymWorld, JaxWorld, Simulators, Task, World

FOLDER = Path("docs/gallery")
PAGE = Path("docs/gallery.md")
SIZE, FRAMES, COLOURS = 220, 60, 64
"""Width of films in pixels, most frames, and colours of each frame: what keeps the whole gallery small."""
FASTEST, SLOWEST = 0.06, 0.1
"""Seconds of a frame: shorter ones cannot be followed, longer ones are not seen as motion."""
EXPLORED = "explored"
"""Name of the film of an exploration round, beside those of tasks."""


def stand_to_the_right(x, u, x_next):
    """Reward for the inverted pendulum of Gymnasium: half a metre to the right, upright, at rest; 1 is perfect."""
    return 1 - (x_next[0] - 0.5) ** 2 - x_next[1] ** 2 - 0.01 * x_next[2] ** 2 - 0.001 * u[0] ** 2


@dataclass(frozen=True)
class Judgement:
    """When a filmed task counts as solved."""

    words: str
    """What must have happened, as half a sentence."""
    solved: Callable[[Evaluation], bool]
    """Whether it happened in the filmed episode."""


@dataclass(frozen=True)
class Exhibit:
    """A world of the gallery."""

    world: str
    """Name in file names."""
    title: str
    config: RunConfig
    preset: str
    """Where the config comes from, in words."""
    tasks: dict[str, Judgement]
    """Tasks to film."""
    own_tasks: dict[str, Task]
    """Tasks that the world does not have itself."""


def _lite(name: str, rounds: int) -> RunConfig:
    return replace(preset(name), rounds=rounds, evaluate_every=0)


def _last(evaluation: Evaluation, steps: int) -> np.ndarray:
    """The last states [steps, dx] of the filmed episode, if it took all its steps; else states that satisfy nothing."""
    trajectory = evaluation.trajectory
    ended = trajectory.ended is not None and bool(trajectory.ended[0, :-1].any())
    states = trajectory.next_states[0, -steps:]
    return np.full_like(states, np.nan) if ended else states


UPRIGHT = Judgement("upright within 15 degrees for the last 3 s", lambda e: bool((_last(e, 60)[:, 0] > 0.966).all()))
IN_THE_GOAL = Judgement("in the goal at some step", lambda e: bool((e.rewards[0] > 50).any()))
AT_THE_TARGET = Judgement("finger at the target for the last 10 steps", lambda e: bool((e.rewards[0, -10:] > 50).all()))
NEAR_THE_TARGET = Judgement("nose within 0.1 m of the target at the end", lambda e: bool(e.rewards[0, -1] > -0.1))
RUNNING = Judgement("1 m/s or more on average, set after seeing the returns", lambda e: float(e.rewards[0].mean()) >= 1.0)
PLACED = Judgement("all blocks at their places at the end", lambda e: e.success is not None and float(e.success[0]) == 1.0)
STANDING = Judgement(
    "standing within 0.2 m of its place for the last 2 s, loosened from 0.1 m after a first film",
    lambda e: bool((np.abs(_last(e, 50)[:, 0] - 0.5) < 0.2).all()),
)
BALANCING = GymWorld("InvertedPendulum-v5", reachable_steps=0)
PRESETS = ("pendulum-gp-lite", "mountain-car-lite", "reacher-lite", "swimmer-lite", "cheetah-lite", "fetch-construction-lite")
EXHIBITS = (
    Exhibit("pendulum", "Pendulum", _lite(PRESETS[0], 4), PRESETS[0], {"swing-up": UPRIGHT}, {}),
    Exhibit("mountain-car", "Mountain car", _lite(PRESETS[1], 6), PRESETS[1], {"reach-goal": IN_THE_GOAL}, {}),
    Exhibit("reacher", "Reacher", _lite(PRESETS[2], 10), PRESETS[2], {"reach": AT_THE_TARGET}, {}),
    Exhibit("swimmer", "Swimmer", _lite(PRESETS[3], 10), PRESETS[3], {"go-to": NEAR_THE_TARGET}, {}),
    Exhibit("cheetah", "Cheetah", _lite(PRESETS[4], 10), PRESETS[4], {"forward": RUNNING, "backward": RUNNING}, {}),
    Exhibit("fetch", "Fetch arm among blocks", _lite(PRESETS[5], 10), PRESETS[5], {"pick-place": PLACED}, {}),
    Exhibit(
        "gymnasium",
        "A Gymnasium environment: InvertedPendulum-v5",
        replace(default_config(BALANCING), rounds=4, horizon=100, evaluate_every=0),
        "default_config",
        {"stand-to-the-right": STANDING},
        {"stand-to-the-right": Task(stand_to_the_right)},
    ),
)


class Recorder:
    """Takes small pictures of a system while it runs, or afterwards where its states are enough."""

    def __init__(self, world: World, steps: int):
        """Choose which steps are shown.

        Args:
            world: The system.
            steps: Most steps of the film.
        """
        self.world, self.every = world, -(-steps // FRAMES)
        self.pictures: dict[int, np.ndarray] = {}

    def __call__(self, taken: int, copies: Simulators) -> None:
        """Take a picture of the first copy (see `sonde.control.OnStep`)."""
        if taken % self.every == 0:
            self.pictures[taken] = _small(copies.render())

    def save(self, out: Path, title: str, trajectory: Trajectory, rewards: np.ndarray | None) -> float:
        """Write the film of the first seed.

        Args:
            out: Path of the film.
            title: First line of the caption.
            trajectory: What was filmed.
            rewards: Rewards of each step [T], to be summed up in the caption.

        Returns:
            How many times faster than the system the film runs.
        """
        steps = trajectory.states.shape[1]
        if trajectory.ended is not None and rewards is not None and trajectory.ended[0].any():
            steps = 1 + int(np.argmax(trajectory.ended[0]))
        if isinstance(self.world, JaxWorld):
            self.pictures = {n: _small(self.world.render(trajectory.states[0, n])) for n in range(0, steps, self.every)}
        achieved = np.concatenate([[0.0], np.cumsum(0.0 if rewards is None else rewards)])
        words = lambda n: "" if rewards is None else f"return {achieved[n]:.1f}"
        frames = [captioned(p, title, f"step {n} of {steps}", words(n)) for n, p in self.pictures.items() if n <= steps]
        seconds = (self.world.seconds_per_step or 0.05) * self.every
        shown = min(max(seconds, FASTEST), SLOWEST)
        write_film(map(_few_colours, frames), out, 1 / shown)
        return seconds / shown


def _small(picture: np.ndarray) -> np.ndarray:
    height, width = picture.shape[:2]
    size = (SIZE, max(2, round(SIZE * height / width)) // 2 * 2)
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))


def _few_colours(frame: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(frame).quantize(COLOURS, dither=Image.Dither.NONE).convert("RGB"))


def first_seed(store: RunStore) -> Explorer:
    """The explorer of a run's first seed alone: what is filmed needs no others.

    Args:
        store: A finished run.
    """
    together = restore_explorer(store)
    if together.num_seeds == 1:
        return together
    alone = build_explorer(replace(store.config, seeds=1))
    alone.restore(
        [_first(one) for one in store.load_data(together.round)], jax.tree.map(lambda leaf: leaf[:1], together.params)
    )
    return alone


def _first(trajectory: Trajectory) -> Trajectory:
    """The part of a trajectory that belongs to the first seed."""
    arrays = ((name, getattr(trajectory, name)) for name in ("states", "actions", "next_states"))
    return Trajectory(**{name: array[:1] for name, array in arrays})


class Gallery:
    """What has been made so far; every row of `films` is on disk as soon as its film is."""

    def __init__(self, folder: Path):
        """Read what exists.

        Args:
            folder: Folder of pictures and films.
        """
        self.folder, self.path = folder, folder / "films.json"

    @property
    def films(self) -> dict[str, dict[str, Any]]:
        """Rows by film, read again each time: another process may make films of other worlds meanwhile."""
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def has(self, name: str) -> bool:
        """Whether a film and its numbers exist."""
        return name in self.films and (self.folder / f"{name}.gif").exists()

    def add(self, name: str, row: dict[str, Any]) -> None:
        """Keep the numbers of a film."""
        ordered = dict(sorted((self.films | {name: row}).items()))
        write_atomically(self.path, (json.dumps(ordered, indent=1) + "\n").encode())

    @double_precision
    def show(self, exhibit: Exhibit, explorer: Explorer, console: Console) -> None:
        """Make the picture and the films of a world that do not exist yet.

        Args:
            exhibit: The world.
            explorer: What was learned, one seed.
            console: For the progress.
        """
        about = {"preset": exhibit.preset, "rounds": explorer.round, "seed": explorer.seeds[0]}
        about |= {"method": explorer.method.name, "transitions": explorer.transitions}
        picture, name = self.folder / f"{exhibit.world}.png", f"{exhibit.world}-{EXPLORED}"
        if not picture.exists():
            draw_states(explorer, exhibit.config.world, picture)
            with Image.open(picture) as image:
                small = image.convert("RGB").resize((900, round(900 * image.height / image.width)), Image.Resampling.LANCZOS)
            small.quantize(256, dither=Image.Dither.NONE).save(picture, optimize=True)
            console.print(f"{picture}")
        if not self.has(name):
            steps = exhibit.config.horizon
            recorder = Recorder(exhibit.config.world, steps)
            trajectory = rollout(exhibit.config.world, explorer.ask(), steps, on_step=recorder)
            faster = recorder.save(self.folder / f"{name}.gif", f"round {explorer.round + 1}", trajectory, None)
            self.add(name, about | {"steps": steps, "faster": faster})
            console.print(f"{self.folder / name}.gif")
        for task in exhibit.tasks:
            if not self.has(f"{exhibit.world}-{task}"):
                self._film_task(exhibit, explorer, task, about)
                console.print(f"{self.folder / exhibit.world}-{task}.gif")

    def _film_task(self, exhibit: Exhibit, explorer: Explorer, task: str, about: dict[str, Any]) -> None:
        setup, name = task_setup(exhibit, task), f"{exhibit.world}-{task}"
        keys, starts, recorder = explorer.keys(), explorer.evaluation_keys(), Recorder(setup.world, setup.horizon)
        learned = Learned(explorer.posterior, explorer.data)
        played = evaluate(setup, learned, keys, starts=starts, on_step=recorder)
        idle = evaluate(setup, None, keys, starts=starts)
        faster = recorder.save(self.folder / f"{name}.gif", task, played.trajectory, played.rewards[0])
        judgement = exhibit.tasks[task]
        row: dict[str, Any] = {"task": task, "steps": setup.horizon, "faster": faster}
        row |= {"return": round(float(played.returns[0]), 2), "random": round(float(idle.returns[0]), 2)}
        row |= {"solved": judgement.solved(played), "criterion": judgement.words}
        self.add(name, about | row)


def task_setup(exhibit: Exhibit, task: str) -> TaskSetup:
    """A task as its film needs it: one rollout.

    Args:
        exhibit: The world.
        task: Name of the task.
    """
    config = exhibit.config
    if task in exhibit.own_tasks:
        settings = TaskSettings(task, config.evaluation_horizon, config.solver)
        return TaskSetup(config.world, exhibit.own_tasks[task], task, settings.solver, settings.horizon)
    return replace(config.task_setup(task), rollouts=1)


def page(films: dict[str, dict[str, Any]], exhibits: Sequence[Exhibit] = EXHIBITS) -> str:
    """The page of the gallery.

    Args:
        films: The rows of films.json.
        exhibits: The worlds; those without films are left out.
    """
    lines = [OPENING]
    for exhibit in exhibits:
        explored = films.get(f"{exhibit.world}-{EXPLORED}")
        if explored is None:
            continue
        lines += [f"## {exhibit.title}\n", _about(explored), ""]
        names = [f"{exhibit.world}-{name}" for name in (EXPLORED, *exhibit.tasks)]
        lines += [f"![{_alt(exhibit, films[name])}](gallery/{name}.gif)" for name in names if name in films]
        lines += ["", *(_caption(films[name]) for name in names if name in films)]
        lines += [f"\n![Visited states of {exhibit.title}, coloured by round](gallery/{exhibit.world}.png)\n"]
    return "\n".join(lines).rstrip() + "\n"


OPENING = """# Gallery

Every world, explored and then given tasks: by the first seed, with the small presets that run on two cores. Tasks are planned
zero-shot on what was learned. A task counts as solved if the filmed episode meets the criterion that is stated. Compare returns
with those of random actions from the same start.

This page is generated from `docs/gallery/films.json`: `python -m experiments.scripts.gallery`.
"""


def _about(film: dict[str, Any]) -> str:
    settings = "`default_config`" if film["preset"] == "default_config" else f"`{film['preset']}`"
    rounds, transitions = f"{film['rounds']} round{'s' if film['rounds'] > 1 else ''}", f"{film['transitions']:,}"
    return f"{settings}, `{film['method']}`, {rounds} ({transitions} transitions), seed {film['seed']}."


def _alt(exhibit: Exhibit, film: dict[str, Any]) -> str:
    what = f"the task {film['task']}" if "task" in film else "exploration"
    return f"Film of {exhibit.title}: {what}"


def _caption(film: dict[str, Any]) -> str:
    speed = "" if film["faster"] == 1 else f", shown at {film['faster']:.2g} times the system's speed"
    if "task" not in film:
        return f"- *Explored*: the next round, {film['steps']} steps planned for information alone{speed}."
    verdict = f" **{'Solved' if film['solved'] else 'Not solved'}** ({film['criterion']})."
    numbers = f"return {film['return']:,.1f}, random actions {film['random']:,.1f}"
    return f"- *{film['task']}*, {film['steps']} steps{speed}: {numbers}.{verdict}"


def main() -> None:
    """Make what is missing."""
    parser = argparse.ArgumentParser(description="Films and pictures of every world, explored and given tasks.")
    parser.add_argument("--only", nargs="*", choices=[e.world for e in EXHIBITS], help="worlds; by default all")
    parser.add_argument("--runs", type=Path, default=Path("runs/gallery"), help="folder of the runs")
    parser.add_argument("--use", nargs="*", default=[], metavar="WORLD=DIR", help="finished runs to take")
    parser.add_argument("--rounds", type=int, help="fewer rounds than by default")
    options = parser.parse_args()
    console, gallery = Console(), Gallery(FOLDER)
    finished = {name: Path(folder) for name, _, folder in (given.partition("=") for given in options.use)}
    for exhibit in EXHIBITS:
        if options.only and exhibit.world not in options.only:
            continue
        names = [EXPLORED, *exhibit.tasks]
        if all(gallery.has(f"{exhibit.world}-{name}") for name in names) and (FOLDER / f"{exhibit.world}.png").exists():
            continue
        console.print(f"[bold]{exhibit.title}")
        if exhibit.world not in finished:
            config = exhibit.config if options.rounds is None else replace(exhibit.config, rounds=options.rounds)
            explore(config, options.runs / exhibit.world, [ProgressDisplay(console)])
        store = RunStore.open(finished.get(exhibit.world, options.runs / exhibit.world))
        gallery.show(exhibit, first_seed(store), console)
        write_atomically(PAGE, page(gallery.films).encode())
    total = sum(path.stat().st_size for path in FOLDER.iterdir())
    console.print(f"{PAGE}, {FOLDER}: {total / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
