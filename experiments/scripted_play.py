"""Play of the Fetch arm by hand-written controllers, which shows all skills that the tasks need: how good can a model become?

Each episode is of one kind, and takes on some blocks one after the other: coloured noise alone, a block that is carried around
and dropped, blocks that are tipped over, thrown beyond the arm's reach, put to places on the table or in the air, or stacked.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sonde.worlds import FetchConstruction
from sonde.worlds._mujoco_simulators import MujocoSimulators
from sonde.worlds._sampling import noise_actions
from sonde.worlds.fetch._layout import GRIP_HOME, HALF_SIZE, REST_HEIGHT, block_positions, roll_angles
from sonde.worlds.fetch._script import OPEN, carry, flip, toss
from sonde.worlds.fetch._tasks import FETCH_TASKS

KINDS = ("noise", "carry", "tip", "throw", "place", "stack")
AT_ONCE = 50
"""Episodes that one process plays side by side."""
NOISE = {"tip": 0.03}
"""Noise on the controllers' actions, where it is not 0.1: a block that is tipped slips off easily."""
BLOCKS_PER_EPISODE = 2
"""Blocks that an episode takes on, if there are as many."""


class Play(NamedTuple):
    """Episodes of play in single precision."""

    states: np.ndarray
    """States, the last ones included [episodes, steps + 1, dx]."""
    actions: np.ndarray
    """Actions [episodes, steps, du]."""


@dataclass(frozen=True)
class Part:
    """Episodes that one process plays."""

    world: FetchConstruction
    episodes: int
    steps: int
    seed: int
    """Seed of this part alone."""


def places(kind: str, blocks: int, order: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Where each block should go [blocks, 3].

    Args:
        kind: Kind of the episode.
        blocks: Number of blocks.
        order: The blocks that are taken on, in this order.
        rng: Random generator.
    """
    if kind in ("throw", "place"):
        return FETCH_TASKS["throw" if kind == "throw" else "pick-place"](blocks).sample_goal(rng).reshape(-1, 3)
    found = np.array(GRIP_HOME) + np.append(rng.uniform(-0.15, 0.15, 2), rng.uniform(-0.05, 0.1)) * np.ones((blocks, 1))
    if kind == "stack":
        found[:, 2] = REST_HEIGHT
        for level, block in enumerate(order):
            found[block, 2] += 2 * HALF_SIZE * level
    return found


def choose(kind: str, x: np.ndarray, block: int, place: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The next action of an episode [4].

    Args:
        kind: Kind of the episode.
        x: State.
        block: The block that is taken on.
        place: Where it should go.
        noise: Random action.
    """
    if kind == "noise":
        return noise
    if kind == "tip":
        action = flip(x)  # one after the other, each until it lies
    elif kind == "throw":
        action = toss(x, block, place)
    else:
        action = carry(x, block, place)
    if kind == "carry" and noise[3] > 0.8:
        action[3] = OPEN
    return np.clip(action + NOISE.get(kind, 0.1) * noise, -1.0, 1.0)


def play_part(part: Part) -> Play:
    """Play some episodes in this process.

    Args:
        part: The episodes.
    """
    rng, blocks = np.random.default_rng([part.seed, 26]), part.world.blocks
    starts = [int(seed) for seed in rng.integers(2**31, size=part.episodes)]
    noise = noise_actions(rng, part.episodes, part.steps, part.world.action_dim)
    rng.shuffle(noise)  # its kinds come in turns too
    kinds = [KINDS[i % len(KINDS)] for i in range(part.episodes)]
    orders = [rng.permutation(blocks)[:BLOCKS_PER_EPISODE] for _ in kinds]
    goals = [places(kind, blocks, order, rng) for kind, order in zip(kinds, orders, strict=True)]
    simulators = MujocoSimulators(part.world, part.episodes, 1)
    states = np.empty((part.episodes, part.steps + 1, part.world.state_dim), np.float32)
    actions = np.empty(noise.shape, np.float32)
    x = simulators.reset(starts)
    for step in range(part.steps):
        states[:, step] = x
        for episode, kind in enumerate(kinds):
            order = orders[episode]
            block = int(order[step * len(order) // part.steps])
            actions[episode, step] = choose(kind, x[episode], block, goals[episode][block], noise[episode, step])
        x = simulators.step(actions[:, step].astype(float)).next_states
    states[:, part.steps] = x
    simulators.close()
    return Play(states, actions)


def play(world: FetchConstruction, episodes: int, steps: int, seed: int, workers: int) -> Play:
    """Play many episodes, in several processes.

    Args:
        world: The scene.
        episodes: Number of episodes; those of each kind come in turns.
        steps: Steps of each.
        seed: Seed; the same gives the same play with any number of workers.
        workers: Number of processes.
    """
    counts = [min(AT_ONCE, episodes - first) for first in range(0, episodes, AT_ONCE)]
    parts = [Part(world, count, steps, seed * 1_000_000 + number) for number, count in enumerate(counts)]
    if workers == 1:
        played = [play_part(part) for part in parts]
    else:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            played = list(pool.map(play_part, parts))
    return Play(*(np.concatenate(arrays) for arrays in zip(*played, strict=True)))


def skills(played: Play) -> dict[str, float]:
    """Share of the episodes in which a block was lifted by 5 cm, tipped over, thrown beyond reach, or stands on another one.

    Args:
        played: The episodes.
    """
    positions, last = block_positions(played.states), played.states[:, -1]
    away = np.linalg.norm(block_positions(last)[..., :2] - np.array((0.6919, 0.7441)), axis=-1)
    height = block_positions(last)[..., 2] - REST_HEIGHT
    stacked = (np.abs(height - 2 * HALF_SIZE) < 0.01) & (np.abs(last[:, 10:].reshape(len(last), -1, 12)[..., 8]) < 1e-3)
    share = lambda per_block: float(per_block.any(axis=-1).mean())
    return {
        "lifted": share((positions[..., 2] > REST_HEIGHT + 0.05).any(axis=1)),
        "tipped": share(np.abs(roll_angles(last, np) - np.pi / 2) < 0.087),
        "thrown": share((away > 0.95) & (height < 0.01)),
        "stacked": share(stacked),
    }
