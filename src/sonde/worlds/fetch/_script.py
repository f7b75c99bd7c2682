"""Hand-written controllers of the Fetch arm, which show what the scene allows independently of any learned model.

They have no memory: the state shows how far they have come. They only grasp blocks that stand straight, as at the start of an
episode, since the gripper cannot turn. `carry`, `toss` and `tip` handle one block; `pick_place`, `throw` and `flip` solve the
tasks of the same names.
"""

import numpy as np
from jaxtyping import Float

from sonde.worlds.fetch._layout import (
    GRIP_HOME,
    HALF_SIZE,
    REST_HEIGHT,
    SECONDS_PER_STEP,
    TABLE_TOP,
    block_positions,
    block_states,
    finger_positions,
    grip_position,
    roll_angles,
)

GAIN = 20.0
"""Action per metre of the grip's offset from its target."""
CLEARANCE = 0.09
"""Height above a block, or above its goal, at which to travel: fingers and a held block then clear what stands on the table."""
ALIGNED, NEAR = 0.006, 0.02
"""Largest offsets of the grip from a block at which to descend, and at which the block can be held."""
CLOSED = 2 * HALF_SIZE + 0.001
"""Sum of the fingers' positions with a block between them."""
OPEN, CLOSE = 1.0, -1.0
PLACED, THROWN, FLIPPED = 0.03, 0.08, 0.08
"""A block is done within these distances of its goal in m (horizontally if thrown), or of its angle in rad."""
BESIDE = (0.045, 0.1)
"""Distances in x and y within which another block may obstruct the open fingers."""
SWING_HEIGHT, FALL = 0.15, 9.81 * SECONDS_PER_STEP**2
"""Height above the table at which a block is swung before a throw; acceleration of gravity in m per step squared."""
LANDING = 0.05
"""A block is released when it would land within this distance of its goal."""
BEHIND, FINGER_TIP, LEVER, AT_LEVER = 0.06, 0.0185, 0.03, 0.05
"""To tip a block over, the closed fingers, whose tips are `FINGER_TIP` below the grip, start at `BEHIND` from the block and at
`LEVER` above the table; below `AT_LEVER` they touch the block."""
PUSH, RISE = -0.5, 0.3
"""Actions along y and z that tip a block."""


def holds(x: Float[np.ndarray, " dx"], block: int) -> bool:
    """Whether the fingers are closed around a block.

    Args:
        x: State.
        block: Index of the block.
    """
    near = float(np.linalg.norm(block_positions(x)[block] - grip_position(x))) < NEAR
    return near and float(finger_positions(x).sum()) < CLOSED


def carry(x: Float[np.ndarray, " dx"], block: int, position: Float[np.ndarray, "3"]) -> Float[np.ndarray, "4"]:
    """Choose the next action to grasp a block and hold it at a position.

    Args:
        x: State.
        block: Index of the block.
        position: Where to hold it.
    """
    here = block_positions(x)[block]
    if holds(x, block):
        return _travel(here, position, max(float(position[2]), REST_HEIGHT + CLEARANCE), CLOSE)
    offset = here - grip_position(x)
    across = float(np.linalg.norm(offset[:2]))
    if across < ALIGNED and abs(offset[2]) < ALIGNED:
        return _move(offset, CLOSE)
    if across < NEAR and abs(offset[2]) < NEAR:
        return _move(offset, OPEN)
    return _travel(grip_position(x), here, float(here[2]) + CLEARANCE, OPEN)


def toss(x: Float[np.ndarray, " dx"], block: int, position: Float[np.ndarray, "3"]) -> Float[np.ndarray, "4"]:
    """Choose the next action to grasp a block and throw it to a position.

    Args:
        x: State.
        block: Index of the block.
        position: Where it should land.
    """
    here, velocity = block_positions(x)[block], block_states(x)[block, 6:9]
    if holds(x, block):
        height = REST_HEIGHT + SWING_HEIGHT
        action = _travel(here, np.append(position[:2], height), height, CLOSE)
        drop = max(float(here[2]) - REST_HEIGHT, 0.0)
        lands = here[:2] + velocity[:2] * np.sqrt(2 * drop / FALL)
        action[3] = OPEN if np.linalg.norm(lands - position[:2]) < LANDING else CLOSE
        return action
    if here[2] > REST_HEIGHT + HALF_SIZE:  # it was released and is in the air
        return np.array([0.0, 0.0, 0.0, OPEN])
    return carry(x, block, position)


def tip(x: Float[np.ndarray, " dx"], block: int) -> Float[np.ndarray, "4"]:
    """Choose the next action to tip a block over, with its top towards -y: the closed fingers push it there and upwards.

    Args:
        x: State.
        block: Index of the block.
    """
    offset = grip_position(x) - block_positions(x)[block]
    low = TABLE_TOP + LEVER + FINGER_TIP
    above = float(grip_position(x)[2]) - low
    behind = abs(offset[0]) < NEAR and 0.0 < offset[1] < BEHIND + ALIGNED
    if behind and (above < ALIGNED or (offset[1] < AT_LEVER and above < 2 * HALF_SIZE)):
        return np.array([float(np.clip(-GAIN * offset[0], -1.0, 1.0)), PUSH, RISE, CLOSE])
    start = np.append(block_positions(x)[block, :2] + [0.0, BEHIND], low)
    return _travel(grip_position(x), start, REST_HEIGHT + CLEARANCE, CLOSE)


def pick_place(x: Float[np.ndarray, " dx"], goals: Float[np.ndarray, "blocks 3"]) -> Float[np.ndarray, "4"]:
    """Choose the next action to bring all blocks to their goals, one after the other.

    Goals on the table come first, and among those blocks with room for the fingers.

    Args:
        x: State.
        goals: Goal position of each block.
    """
    away = np.linalg.norm(block_positions(x) - goals, axis=-1) > PLACED

    def urgency(block: int) -> tuple[bool, ...]:
        high = goals[block, 2] > goals[:, 2].min() + HALF_SIZE
        return bool(away[block]) and holds(x, block), bool(away[block]), not high, not _obstructed(x, block)

    block = max(range(len(goals)), key=urgency)
    return carry(x, block, goals[block])


def throw(x: Float[np.ndarray, " dx"], goals: Float[np.ndarray, "blocks 3"]) -> Float[np.ndarray, "4"]:
    """Choose the next action to throw all blocks to their goals, one after the other.

    Args:
        x: State.
        goals: Goal position of each block.
    """
    missed = (np.abs(block_positions(x) - goals)[:, :2] > THROWN).any(axis=-1)
    block = max(range(len(goals)), key=lambda block: (holds(x, block), bool(missed[block]), not _obstructed(x, block)))
    return toss(x, block, goals[block])


def flip(x: Float[np.ndarray, " dx"]) -> Float[np.ndarray, "4"]:
    """Choose the next action to tip all blocks over, one after the other.

    Args:
        x: State.
    """
    lying = np.abs(roll_angles(x, np) - np.pi / 2) < FLIPPED
    if lying.all():
        return _move(GRIP_HOME - grip_position(x), CLOSE)
    offsets = grip_position(x) - block_positions(x)
    begun = (np.abs(offsets[:, :2]) < [NEAR, BEHIND + NEAR]).all(axis=-1)
    block = max(range(len(lying)), key=lambda block: (not lying[block], bool(begun[block]), not _obstructed(x, block)))
    return tip(x, block)


def mixed_play(
    states: Float[np.ndarray, "episodes dx"], noise: Float[np.ndarray, "episodes du"]
) -> Float[np.ndarray, "episodes du"]:
    """Choose actions that reach much of the scene: noise in half of the episodes, else carrying and dropping a block.

    Args:
        states: State of each episode.
        noise: Random action of each episode.
    """
    actions = noise.copy()
    for episode in range(len(states) // 2, len(states)):
        x, block = states[episode], episode % block_positions(states).shape[-2]
        east, north, _ = block_positions(x)[block] - GRIP_HOME
        position = np.add(GRIP_HOME, [east - 0.5 * north, north + 0.5 * east, 0.1 * np.sin(5 * east)])
        action = carry(x, block, position)
        action[3] = OPEN if noise[episode, 3] > 0.8 else action[3]
        actions[episode] = np.clip(action + 0.1 * noise[episode], -1.0, 1.0)
    return actions


def _obstructed(x: np.ndarray, block: int) -> bool:
    """Whether other blocks may be in the way of the fingers."""
    positions = block_positions(x)
    apart = np.abs(np.delete(positions, block, axis=0) - positions[block])
    return bool(((apart[:, 0] < BESIDE[0]) & (apart[:, 1] < BESIDE[1])).any())


def _travel(here: np.ndarray, there: np.ndarray, height: float, fingers: float) -> np.ndarray:
    """Move up to a height first, then across, then down, to avoid what stands in between."""
    offset = there - here
    if np.linalg.norm(offset[:2]) < ALIGNED:
        return _move(offset, fingers)
    rise = height - float(here[2])
    ahead = 0.0 if rise > NEAR else 1.0
    return _move(np.array([*(ahead * offset[:2]), rise]), fingers)


def _move(offset: np.ndarray, fingers: float) -> np.ndarray:
    return np.clip([*(GAIN * offset), fingers], -1.0, 1.0)
