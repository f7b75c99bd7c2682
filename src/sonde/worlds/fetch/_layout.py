"""Layout of the Fetch scene's state, and its dimensions. It does not import MuJoCo, since planners on learned models use it.

State x = (grip position 3, right and left finger, grip velocity 3, finger velocities 2; then for each block position 3,
angles 3, velocity 3, angular velocity 3). Lengths in m, angles in rad, velocities per step of 0.04 s, in the world frame.
Functions work on numpy and JAX arrays.
"""

from typing import Any

from sonde.data import Body, StateLayout

SECONDS_PER_STEP = 0.04
GRIP_HOME = (1.3414, 0.7491, 0.5354)
"""Position of the grip at the start of an episode, to within a millimetre."""
TABLE_TOP = 0.4
REST_HEIGHT = 0.42463
"""Height of a block's centre at the start of an episode, and of goals on the table."""
HALF_SIZE = 0.025
"""Half of a block's edge."""
PLAYGROUND = 0.15
"""Largest distance in x and in y from the grip's home at which blocks start and most goals lie."""
MAX_BLOCKS = 6

ROBOT_DIM, BLOCK_DIM = 10, 12
"""Numbers in the state that describe the robot, and each block."""
AXES = ("x", "y", "z")


def robot_names() -> tuple[str, ...]:
    """Return the names of the first ten state dimensions."""
    fingers = ("right finger", "left finger")
    positions, velocities = (f"grip {axis}" for axis in AXES), (f"grip v{axis}" for axis in AXES)
    return (*positions, *fingers, *velocities, *(f"{finger} speed" for finger in fingers))


def block_names(block: int) -> tuple[str, ...]:
    """Return the names of a block's twelve state dimensions.

    Args:
        block: Index of the block.
    """
    return tuple(f"block {block} {what}{axis}" for what in ("", "angle ", "v", "spin ") for axis in AXES)


def layout(blocks: int, bounded: bool) -> StateLayout:
    """Return how the state is made of the robot and the blocks.

    Args:
        blocks: Number of blocks.
        bounded: Whether angles lie in [-pi, pi].
    """
    robot = Body(ROBOT_DIM, position=(0, 1, 2))
    return StateLayout(robot, Body(BLOCK_DIM, position=(0, 1, 2), rotation=(3, 4, 5), bounded=bounded), blocks)


def block_states(x: Any) -> Any:
    """Return the part of states that describes the blocks.

    Args:
        x: States [..., dx].

    Returns:
        Array [..., blocks, 12].
    """
    return x[..., ROBOT_DIM:].reshape(*x.shape[:-1], -1, BLOCK_DIM)


def block_positions(x: Any) -> Any:
    """Return the positions of the blocks.

    Args:
        x: States [..., dx].

    Returns:
        Array [..., blocks, 3].
    """
    return block_states(x)[..., :3]


def block_angles(x: Any) -> Any:
    """Return the angles e of the blocks, whose rotations are R = Rx(e0) Ry(e1) Rz(e2).

    Args:
        x: States [..., dx].

    Returns:
        Array [..., blocks, 3].
    """
    return block_states(x)[..., 3:6]


def roll_angles(x: Any, library: Any) -> Any:
    """Return the first angle e0 of the blocks in [-pi, pi], independent of which angles represent the rotation.

    Args:
        x: States [..., dx].
        library: The library of the array: numpy or jax.numpy.

    Returns:
        Array [..., blocks].
    """
    first, second, _ = library.moveaxis(block_angles(x), -1, 0)
    sign = library.sign(library.cos(second))
    return library.arctan2(sign * library.sin(first), sign * library.cos(first))


def grip_position(x: Any) -> Any:
    """Return the position of the grip.

    Args:
        x: States [..., dx].

    Returns:
        Array [..., 3].
    """
    return x[..., :3]


def finger_positions(x: Any) -> Any:
    """Return the distances of the right and the left finger from the middle.

    Args:
        x: States [..., dx].

    Returns:
        Array [..., 2].
    """
    return x[..., 3:5]
