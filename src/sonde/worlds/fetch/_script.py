"""Hand-written control of the Fetch arm: what the scene allows, whatever a learned model can do.

A script has no memory: it sees in the state how far it has come. It only fetches blocks that stand straight, as they do at the
start, since the gripper cannot turn.
"""

import numpy as np
from jaxtyping import Float

from sonde.worlds.fetch._layout import (
    GRIP_HOME,
    HALF_SIZE,
    REST_HEIGHT,
    SECONDS_PER_STEP,
    TABLE_TOP,
    block_parts,
    block_positions,
    finger_positions,
    first_angles,
    grip_position,
)

GAIN = 20.0
"""Action per metre that the grip is away from where it should be."""
ABOVE = 0.09
"""How far above a block, or a place for one, to travel: fingers and a held block then clear what stands on the table."""
ALIGNED, WITHIN = 0.006, 0.02
"""How well the grip must be over a block to go down, and how near to its middle to hold it."""
CLOSED = 2 * HALF_SIZE + 0.001
"""Sum of the fingers' positions when a block is between them."""
OPEN, CLOSE = 1.0, -1.0
PLACED, THROWN, TURNED = 0.03, 0.08, 0.08
"""A block is done when it is so near to its place in m, as seen from above where it is thrown; or so nearly turned, in rad."""
BESIDE = (0.045, 0.1)
"""Blocks so near in x and y may be in the way of the open fingers."""
FLIGHT_HEIGHT, FALL = 0.15, 9.81 * SECONDS_PER_STEP**2
"""How far above the table to swing a block that is thrown; what falls gains so much speed, in m per step, in each step."""
LANDS = 0.05
"""A throw is let go when the block would come down so near to its goal."""
BEHIND, TIP, LEVER, AT_LEVER = 0.06, 0.0185, 0.03, 0.05
"""To tip a block over, the closed fingers, which end so far below the grip, begin so far behind it and so far above the
table; they are at the block when they are nearer to it than the last."""
PUSH, RISE = -0.5, 0.3
"""Action along y and z that tips it."""


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


def toss(x: Float[np.ndarray, " dx"], block: int, place: Float[np.ndarray, "3"]) -> Float[np.ndarray, "4"]:
    """The action that comes next in fetching a block and letting it fly to a place."""
    position, velocity = block_positions(x)[block], block_parts(x)[block, 6:9]
    if holds(x, block):
        height = REST_HEIGHT + FLIGHT_HEIGHT
        action = _travel(position, np.append(place[:2], height), height, CLOSE)
        drop = max(float(position[2]) - REST_HEIGHT, 0.0)
        lands = position[:2] + velocity[:2] * np.sqrt(2 * drop / FALL)
        action[3] = OPEN if np.linalg.norm(lands - place[:2]) < LANDS else CLOSE
        return action
    if position[2] > REST_HEIGHT + HALF_SIZE:  # it flies, or is let go
        return np.array([0.0, 0.0, 0.0, OPEN])
    return carry(x, block, place)


def throw(x: Float[np.ndarray, " dx"], goals: Float[np.ndarray, "blocks 3"]) -> Float[np.ndarray, "4"]:
    """The action that comes next in throwing all blocks to their goals, one after the other."""
    missed = (np.abs(block_positions(x) - goals)[:, :2] > THROWN).any(axis=-1)
    block = max(range(len(goals)), key=lambda block: (holds(x, block), bool(missed[block]), not _cramped(x, block)))
    return toss(x, block, goals[block])


def tip(x: Float[np.ndarray, " dx"], block: int) -> Float[np.ndarray, "4"]:
    """The action that comes next in tipping a block over, its top towards -y: the closed fingers perturbation there, and up."""
    offset = grip_position(x) - block_positions(x)[block]
    low = TABLE_TOP + LEVER + TIP
    above = float(grip_position(x)[2]) - low
    behind = abs(offset[0]) < WITHIN and 0.0 < offset[1] < BEHIND + ALIGNED
    if behind and (above < ALIGNED or (offset[1] < AT_LEVER and above < 2 * HALF_SIZE)):
        return np.array([float(np.clip(-GAIN * offset[0], -1.0, 1.0)), PUSH, RISE, CLOSE])
    start = np.append(block_positions(x)[block, :2] + [0.0, BEHIND], low)
    return _travel(grip_position(x), start, REST_HEIGHT + ABOVE, CLOSE)


def turn(x: Float[np.ndarray, " dx"]) -> Float[np.ndarray, "4"]:
    """The action that comes next in tipping all blocks over, one after the other."""
    lying = np.abs(first_angles(x, np) - np.pi / 2) < TURNED
    if lying.all():
        return _towards(GRIP_HOME - grip_position(x), CLOSE)
    offsets = grip_position(x) - block_positions(x)
    begun = (np.abs(offsets[:, :2]) < [WITHIN, BEHIND + WITHIN]).all(axis=-1)
    block = max(range(len(lying)), key=lambda block: (not lying[block], bool(begun[block]), not _cramped(x, block)))
    return tip(x, block)


def arrange(x: Float[np.ndarray, " dx"], goals: Float[np.ndarray, "blocks 3"]) -> Float[np.ndarray, "4"]:
    """The action that comes next in bringing all blocks to their goals, one after the other.

    Goals on the table come first, and of those blocks one with room for the fingers.
    """
    positions = block_positions(x)
    away = np.linalg.norm(positions - goals, axis=-1) > PLACED

    def urgency(block: int) -> tuple[bool, ...]:
        high = goals[block, 2] > goals[:, 2].min() + HALF_SIZE
        return bool(away[block]) and holds(x, block), bool(away[block]), not high, not _cramped(x, block)

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


def _cramped(x: np.ndarray, block: int) -> bool:
    """Whether other blocks may be in the way of the fingers."""
    positions = block_positions(x)
    apart = np.abs(np.delete(positions, block, axis=0) - positions[block])
    return bool(((apart[:, 0] < BESIDE[0]) & (apart[:, 1] < BESIDE[1])).any())


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
