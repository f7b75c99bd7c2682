"""Metrics of how much a rollout interacted with the blocks, independent of any task."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from sonde.worlds.fetch._layout import HALF_SIZE, REST_HEIGHT, block_positions

MIN_MOTION = 1e-3
"""Smallest distance per step, in m, that counts as motion; blocks that settle after a start move less."""


class Interaction(NamedTuple):
    """Interaction with the blocks in each of several rollouts [...]."""

    moving: np.ndarray
    """Share of the steps in which at least one block moves."""
    blocks_moved: np.ndarray
    """Number of blocks that were ever farther than half a block from their initial position."""
    highest_lift: np.ndarray
    """Largest height of a block's centre above that of a block on the table, in m; at least 0."""


def interaction(states: Float[np.ndarray, "*n T dx"], next_states: Float[np.ndarray, "*n T dx"]) -> Interaction:
    """Compute the interaction with the blocks in rollouts of one episode each.

    Args:
        states: States before each step.
        next_states: States after each step.
    """
    before, after = block_positions(states), block_positions(next_states)
    moves = (np.linalg.norm(after - before, axis=-1) > MIN_MOTION).any(axis=-1)
    from_first = np.linalg.norm(after - before[..., :1, :, :], axis=-1)
    moved = (from_first > HALF_SIZE).any(axis=-2).sum(axis=-1)
    lift = np.maximum(after[..., 2].max(axis=(-2, -1)) - REST_HEIGHT, 0.0)
    return Interaction(moves.mean(axis=-1), moved, lift)
