"""What a system that is stepped outside of JAX can reach: states that it visits under noise of many colours."""

import functools
import itertools
from collections.abc import Callable

import numpy as np

from sonde._internal.coloured_noise import colouring
from sonde._internal.errors import SondeError
from sonde.worlds._base import HostWorld, Transitions

REACHABLE_SEED = 20231
COLOURS = (0.0, 1.0, 2.0, 3.0)
"""Exponents of the spectrum, from white (an action is forgotten at once) to slow (it is held for long)."""
Steering = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(states [episodes, dx], noise [episodes, du]) -> actions [episodes, du] in [-1, 1], made of the noise."""
AMPLITUDES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Stds of the noise before it is clipped to [-1, 1], from gentle to always at a limit."""


def noise_actions(rng: np.random.Generator, episodes: int, steps: int, action_dim: int) -> np.ndarray:
    """Actions [episodes, steps, du] in [-1, 1]; episodes take all pairs of colour and amplitude in turn."""
    kinds = itertools.islice(itertools.cycle(itertools.product(COLOURS, AMPLITUDES)), episodes)
    white = rng.standard_normal((episodes, steps, action_dim))
    coloured = [scale * colouring(steps, colour) @ noise for (colour, scale), noise in zip(kinds, white, strict=True)]
    return np.clip(coloured, -1.0, 1.0)


@functools.cache
def reachable_by_noise(
    world: HostWorld,
    episodes: int = 20,
    steps: int = 250,
    seed: int = REACHABLE_SEED,
    points: int = 2000,
    steer: Steering | None = None,
) -> Transitions:
    """A fixed random choice of `points` transitions out of `episodes` rollouts of `steps` steps each.

    Where the system ends its episode earlier, it is restarted and the noise goes on. `steer` may lead it to where noise alone
    would hardly come. The same world gives the same transitions, for every method and every run.
    """
    if not 0 < points <= episodes * steps:
        raise SondeError(f"reachable: {points} points cannot be chosen out of {episodes} episodes of {steps} steps")
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
    chosen = rng.choice(episodes * steps, points, replace=False)
    found = Transitions(*(array.reshape(-1, array.shape[-1])[chosen] for array in (states, actions, next_states)))
    for array in found:
        array.flags.writeable = False  # it is shared by all who ask
    return found
