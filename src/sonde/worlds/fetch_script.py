"""Hand-written control of the Fetch arm: what the scene allows, whatever a learned model can do.

A script has no memory: it sees in the state how far it has come. It only fetches blocks that stand straight, as they do at the
start, since the gripper cannot turn.
"""

import numpy as np
from jaxtyping import Float

from sonde.worlds.fetch_layout import GRIP_HOME, HALF_SIZE, REST_HEIGHT, block_positions, finger_positions, grip_position

GAIN = 20.0
"""Action per metre that the grip is away from where it should be."""
ABOVE = 0.09
"""How far above a block, or a place for one, to travel: fingers and a held block then clear what stands on the table."""
ALIGNED, WITHIN = 0.006, 0.02
"""How well the grip must be over a block to go down, and how near to its middle to hold it."""
CLOSED = 2 * HALF_SIZE + 0.001
"""Sum of the fingers' positions when a block is between them."""
OPEN, CLOSE = 1.0, -1.0
PLACED = 0.03
BESIDE = (0.045, 0.1)
"""Blocks so near in x and y may be in the way of the open fingers."""


def holds(x: Float[np.ndarray, " dx"], block: int) -> bool:
    """Whether the fingers are closed around the block."""
    near = float(np.linalg.norm(block_positions(x)[block] - grip_position(x))) < WITHIN
    return near and float(finger_positions(x).sum()) < CLOSED


def carry(x: Float[np.ndarray, " dx"], block: int, place: Float[np.ndarray, "3"]) -> Float[np.ndarray, "4"]:
    """The action that comes next in fetching a block and holding it at a place."""
    position = block_positions(x)[block]
    if holds(x, block):
        return _travel(position, place, max(float(place[2]), REST_HEIGHT + ABOVE), CLOSE)
    offset = position - grip_position(x)
    across = float(np.linalg.norm(offset[:2]))
    if across < ALIGNED and abs(offset[2]) < ALIGNED:
        return _towards(offset, CLOSE)
    if across < WITHIN and abs(offset[2]) < WITHIN:
        return _towards(offset, OPEN)
    return _travel(grip_position(x), position, float(position[2]) + ABOVE, OPEN)


def arrange(x: Float[np.ndarray, " dx"], goals: Float[np.ndarray, "blocks 3"]) -> Float[np.ndarray, "4"]:
    """The action that comes next in bringing all blocks to their goals, one after the other.

    Goals on the table come first, and of those blocks one with room for the fingers.
    """
    positions = block_positions(x)
    away = np.linalg.norm(positions - goals, axis=-1) > PLACED

    def urgency(block: int) -> tuple[bool, ...]:
        apart = np.abs(np.delete(positions, block, axis=0) - positions[block])
        cramped = bool(((apart[:, 0] < BESIDE[0]) & (apart[:, 1] < BESIDE[1])).any())
        high = goals[block, 2] > goals[:, 2].min() + HALF_SIZE
        return bool(away[block]) and holds(x, block), bool(away[block]), not high, not cramped

    block = max(range(len(goals)), key=urgency)
    return carry(x, block, goals[block])


def play(states: Float[np.ndarray, "episodes dx"], noise: Float[np.ndarray, "episodes du"]) -> Float[np.ndarray, "episodes du"]:
    """Actions for rollouts that are to reach much: half of them noise, half a block carried around, and dropped at times."""
    actions = noise.copy()
    for episode in range(len(states) // 2, len(states)):
        x, block = states[episode], episode % block_positions(states).shape[-2]
        east, north, _ = block_positions(x)[block] - GRIP_HOME
        place = np.add(GRIP_HOME, [east - 0.5 * north, north + 0.5 * east, 0.1 * np.sin(5 * east)])
        script = carry(x, block, place)
        script[3] = OPEN if noise[episode, 3] > 0.8 else script[3]
        actions[episode] = np.clip(script + 0.1 * noise[episode], -1.0, 1.0)
    return actions


def _travel(here: np.ndarray, there: np.ndarray, height: float, fingers: float) -> np.ndarray:
    """Up to that height first, then across, then down: not through what stands between."""
    offset = there - here
    if np.linalg.norm(offset[:2]) < ALIGNED:
        return _towards(offset, fingers)
    rise = height - float(here[2])
    ahead = 0.0 if rise > WITHIN else 1.0
    return _towards(np.array([*(ahead * offset[:2]), rise]), fingers)


def _towards(offset: np.ndarray, fingers: float) -> np.ndarray:
    return np.clip([*(GAIN * offset), fingers], -1.0, 1.0)
