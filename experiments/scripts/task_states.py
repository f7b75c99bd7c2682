"""Sample transitions that good policies for the tasks visit, on which the error of models is measured where tasks happen.

    python -m experiments.scripts.task_states [cheetah swimmer reacher] [--generations 20]

For each task a policy with few parameters is found by the cross-entropy method on the simulator itself: a gait of sines for the
cheetah, a wave with steering for the swimmer, and for the reacher a spring to the target with damping. It is then run from new
starts with some noise on its actions, and transitions are drawn from all of it. Seeds are fixed, so the same command writes the
same files (`src/sonde/worlds/task_states`), up to the version of MuJoCo. experiments/NOTES.md says how good the policies are.
"""

import argparse
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import safetensors.numpy

from sonde._internal.files import write_atomically
from sonde.evaluation._tasks import reward_named
from sonde.worlds import Cheetah, Reacher, Swimmer
from sonde.worlds._suite import TASK_STATES, SuiteWorld

SEED = 20232
CANDIDATES, ELITES, STARTS = 60, 8, 2
"""Candidates and elites of a generation, and rollouts whose mean return is a candidate's value."""
FINAL_STARTS, ACTION_NOISE, POINTS = 10, 0.1, 1000
"""Rollouts of the policy that was found, std of the noise on its actions, and transitions kept of all tasks together."""
LINK = 0.12
"""Length of the reacher's links in m."""
Act = Callable[[np.ndarray, np.ndarray, float], np.ndarray]
"""(parameters [n, p], states [n, dx], time in s) -> actions [n, du]."""


def gait(parameters: np.ndarray, states: np.ndarray, seconds: float) -> np.ndarray:
    """Cheetah: for each joint a sine with its own offset, amplitude and phase, all of one frequency."""
    del states
    frequency, offset, amplitude, phase = np.split(parameters, [1, 7, 13], axis=1)
    return offset + amplitude * np.sin(2 * np.pi * np.exp(1 + 0.5 * frequency) * seconds + np.pi * phase)


def steered_wave(parameters: np.ndarray, states: np.ndarray, seconds: float) -> np.ndarray:
    """Swimmer: a wave along the body, bent by the direction of the target."""
    frequency, lag, steering, amplitude = np.split(parameters, [1, 2, 4], axis=1)
    to_target = states[:, -2:] / np.maximum(np.linalg.norm(states[:, -2:], axis=1, keepdims=True), 1e-9)
    bend = np.sum(steering * to_target, axis=1, keepdims=True)
    phases = np.pi * lag * np.arange(5)
    return bend + amplitude * np.sin(2 * np.pi * np.exp(0.5 * frequency) * seconds + phases)


def spring(parameters: np.ndarray, states: np.ndarray, seconds: float) -> np.ndarray:
    """Reacher: joint torques of a spring from finger to target (by the transposed Jacobian), and damping."""
    del seconds
    stiffness, damping = np.exp(3 + parameters[:, :1]), np.exp(parameters[:, 1:] - 1)
    shoulder, both = states[:, 0], states[:, 0] + states[:, 1]
    outer = LINK * np.stack([-np.sin(both), np.cos(both)], axis=1)
    inner = LINK * np.stack([-np.sin(shoulder), np.cos(shoulder)], axis=1)
    pull = stiffness * states[:, -2:]
    torques = np.stack([np.sum((inner + outer) * pull, axis=1), np.sum(outer * pull, axis=1)], axis=1)
    return 10 * torques - damping * states[:, 2:4]


class Kind(NamedTuple):
    """A world, and the policies that are searched."""

    world: SuiteWorld
    act: Act
    parameters: int
    steps: int


KINDS = {
    "cheetah": Kind(Cheetah(), gait, 19, 250),
    "swimmer": Kind(Swimmer(), steered_wave, 9, 120),
    "reacher": Kind(Reacher(), spring, 3, 50),
}


def play(kind: Kind, policies: np.ndarray, starts: range, noise: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run each policy [n, p] from all starts, which are seeds; transitions [n * starts, T, ...]."""
    parameters = np.repeat(policies, len(starts), axis=0)
    rng, copies = np.random.default_rng(SEED), kind.world.open(len(parameters))
    try:
        x = copies.reset([*starts] * len(policies))
        found = []
        for t in range(kind.steps):
            u = kind.act(parameters, x, t * kind.world.seconds_per_step)
            u = np.clip(u + noise * rng.standard_normal(u.shape), -1.0, 1.0)
            x_next = copies.step(u).next_states
            found.append((x, u, x_next))
            x = x_next
    finally:
        copies.close()
    states, actions, next_states = (np.stack(column, axis=1) for column in zip(*found, strict=True))
    return states, actions, next_states


def returns(kind: Kind, task: str, runs: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    """The return of each run [n]."""
    return np.asarray(jax.jit(jax.vmap(jax.vmap(reward_named(kind.world, task))))(*runs)).sum(axis=1)


def search(kind: Kind, task: str, generations: int) -> np.ndarray:
    """The best parameters that the cross-entropy method finds."""
    rng = np.random.default_rng(SEED)
    mean, std, best, best_value = np.zeros(kind.parameters), np.full(kind.parameters, 0.7), np.zeros(kind.parameters), -np.inf
    for generation in range(generations):
        candidates = mean + std * rng.standard_normal((CANDIDATES, kind.parameters))
        candidates[0] = best
        runs = play(kind, candidates, range(STARTS), 0.0)
        values = returns(kind, task, runs).reshape(CANDIDATES, STARTS).mean(axis=1)
        elites = candidates[np.argsort(-values)[:ELITES]]
        mean, std = elites.mean(axis=0), 0.2 * std + 0.8 * elites.std(axis=0)
        if values.max() > best_value:
            best, best_value = candidates[values.argmax()], float(values.max())
        print(f"{kind.world.domain} {task}, generation {generation + 1}: best return {best_value:.1f}", flush=True)
    return best


def main() -> None:
    """Search, sample and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worlds", nargs="*", choices=tuple(KINDS), default=tuple(KINDS))
    parser.add_argument("--generations", type=int, default=20)
    options = parser.parse_args()
    for name in options.worlds:
        kind, rng, parts = KINDS[name], np.random.default_rng(SEED), []
        for task in kind.world.tasks:
            best = search(kind, task, options.generations)
            runs = play(kind, best[None], range(1000, 1000 + FINAL_STARTS), ACTION_NOISE)
            values = returns(kind, task, runs)
            print(f"{name} {task}: from new starts, with noise, {values.mean():.1f} (std {values.std():.1f})", flush=True)
            flat = [array.reshape(-1, array.shape[-1]) for array in runs]
            rows = rng.choice(len(flat[0]), min(POINTS // len(kind.world.tasks), len(flat[0])), replace=False)
            parts.append([array[rows].astype(np.float32) for array in flat])
        names = ("states", "actions", "next_states")
        arrays = {key: np.concatenate(part) for key, part in zip(names, zip(*parts, strict=True), strict=True)}
        TASK_STATES.mkdir(exist_ok=True)
        write_atomically(TASK_STATES / f"{name}.safetensors", safetensors.numpy.save(arrays))


if __name__ == "__main__":
    main()
