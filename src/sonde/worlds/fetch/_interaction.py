"""How much a rollout had to do with the blocks: what exploring is about, before there is any task."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from sonde.worlds.fetch._layout import HALF_SIZE, REST_HEIGHT, block_positions

MOVES = 1e-3
"""A block moves if it does so by more than this in a step, in m; what settles after a start does not."""


class Interaction(NamedTuple):
    """Of each rollout [...]."""

    moving: np.ndarray
    """Share of the steps in which at least one block moves."""
    blocks_moved: np.ndarray
    """How many blocks were ever farther than half a block from where they had been at first."""
    highest_lift: np.ndarray
    """The greatest height of a block's middle over that of a block on the table, in m, and at least 0."""


def interaction(states: Float[np.ndarray, "*n T dx"], next_states: Float[np.ndarray, "*n T dx"]) -> Interaction:
    """What became of the blocks, in rollouts that were not restarted."""
    before, after = block_positions(states), block_positions(next_states)
    moves = (np.linalg.norm(after - before, axis=-1) > MOVES).any(axis=-1)
    from_first = np.linalg.norm(after - before[..., :1, :, :], axis=-1)
    moved = (from_first > HALF_SIZE).any(axis=-2).sum(axis=-1)
    lift = np.maximum(after[..., 2].max(axis=(-2, -1)) - REST_HEIGHT, 0.0)
    return Interaction(moves.mean(axis=-1), moved, lift)
