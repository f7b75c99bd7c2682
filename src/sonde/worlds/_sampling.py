"""Transitions of host worlds that coloured noise visits: a part of what can be reached, and what stands for it."""

import functools
import itertools
from collections.abc import Callable

import numpy as np

from sonde._internal.coloured_noise import colouring
from sonde._internal.errors import SondeError
from sonde.worlds._base import HostWorld, Transitions

REACHABLE_SEED = 20231
COLOURS = (0.0, 1.0, 2.0, 3.0)
"""Exponents of the noise spectrum, from white noise to slowly varying actions."""
AMPLITUDES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Stds of the noise before it is clipped to [-1, 1]."""
REACHABLE_EPISODES = 20
"""Episodes of `reached_by_noise`: one for each kind of noise."""
MAX_REACHABLE_POINTS = 2000
"""Largest number of transitions of `reached_by_noise`."""
Steering = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(states [episodes, dx], noise [episodes, du]) -> actions [episodes, du] in [-1, 1]."""


def noise_actions(rng: np.random.Generator, episodes: int, steps: int, action_dim: int) -> np.ndarray:
    """Draw action sequences of coloured noise; episodes cycle through all pairs of colour and amplitude.

    Args:
        rng: Random generator.
        episodes: Number of episodes.
        steps: Steps per episode.
        action_dim: Number of action dimensions du.

    Returns:
        Actions in [-1, 1] [episodes, steps, du].
    """
    kinds = itertools.islice(itertools.cycle(itertools.product(COLOURS, AMPLITUDES)), episodes)
    white = rng.standard_normal((episodes, steps, action_dim))
    coloured = [scale * colouring(steps, colour) @ noise for (colour, scale), noise in zip(kinds, white, strict=True)]
    return np.clip(coloured, -1.0, 1.0)


@functools.cache
def visited_by_noise(
    world: HostWorld,
    episodes: int = 20,
    steps: int = 250,
    seed: int = REACHABLE_SEED,
    points: int = 2000,
    steer: Steering | None = None,
) -> Transitions:
    """Sample transitions from rollouts under coloured noise; the same arguments give the same transitions.

    Args:
        world: The system. An episode that it ends early is restarted, and the noise goes on.
        episodes: Number of rollouts.
        steps: Steps per rollout.
        seed: Seed of noise, resets and sampling.
        points: Number of transitions to sample.
        steer: Turns states and noise into actions, to reach what noise alone rarely reaches; by default they are the noise.

    Returns:
        Read-only arrays [points, ...].
    """
    if not 0 < points <= episodes * steps:
        raise SondeError(f"visited_by_noise: {points} points cannot be sampled from {episodes} episodes of {steps} steps")
    rng = np.random.default_rng(seed)
    actions = noise_actions(rng, episodes, steps, world.action_dim)
    states, next_states = (np.empty((episodes, steps, world.state_dim)) for _ in range(2))
    copies = world.open(episodes)
    try:
        x = copies.reset([int(number) for number in rng.integers(2**32, size=episodes)])
        for t in range(steps):
            if steer is not None:
                actions[:, t] = steer(x, actions[:, t])
            after = copies.step(actions[:, t])
            states[:, t], next_states[:, t] = x, after.next_states
            x = copies.restart(after.ended) if after.ended.any() else after.next_states
    finally:
        copies.close()
    sampled = rng.choice(episodes * steps, points, replace=False)
    transitions = Transitions(*(array.reshape(-1, array.shape[-1])[sampled] for array in (states, actions, next_states)))
    for array in transitions:
        array.flags.writeable = False  # the cache returns the same arrays to every caller
    return transitions


def reached_by_noise(world: HostWorld, steps: int) -> Transitions | None:
    """Sample what noise of all kinds reaches within a number of steps, for a world of which no more is known.

    Args:
        world: The system.
        steps: Number of steps, over all episodes; 0 for none.

    Returns:
        Read-only arrays [at most 2000, ...]; None without steps.
    """
    if steps == 0:
        return None
    episodes = min(REACHABLE_EPISODES, steps)
    each = steps // episodes
    return visited_by_noise(world, episodes, each, points=min(MAX_REACHABLE_POINTS, episodes * each))
