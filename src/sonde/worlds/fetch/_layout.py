"""Numbers of the Fetch scene, and where its state has what. No MuJoCo here: tasks are planned on models that never saw it.

State x = (grip position 3, right and left finger, grip velocity 3, the fingers' velocities; then of each block its position 3,
angles 3, velocity 3, angular velocity 3). Lengths in m, angles in rad, velocities per step of 0.04 s, all in the world's frame.
"""

from typing import Any

SECONDS_PER_STEP = 0.04
GRIP_HOME = (1.3414, 0.7491, 0.5354)
"""Where the grip is when an episode starts, to within a millimetre."""
TABLE_TOP = 0.4
REST_HEIGHT = 0.42463
"""Height of a block's middle when an episode starts, and of goals on the table."""
HALF_SIZE = 0.025
"""Half the edge of a block."""
PLAYGROUND = 0.15
"""Blocks start, and most goals lie, within so much of the grip's home in x and in y."""
MOST_BLOCKS = 6

ROBOT_NUMBERS, BLOCK_NUMBERS = 10, 12
AXES = ("x", "y", "z")


def robot_names() -> tuple[str, ...]:
    """What the first ten numbers of a state are."""
    fingers = ("right finger", "left finger")
    places, speeds = (f"grip {axis}" for axis in AXES), (f"grip v{axis}" for axis in AXES)
    return (*places, *fingers, *speeds, *(f"{finger} speed" for finger in fingers))


def block_names(block: int) -> tuple[str, ...]:
    """What the twelve numbers of a block are."""
    return tuple(f"block {block} {what}{axis}" for what in ("", "angle ", "v", "spin ") for axis in AXES)


def block_parts(x: Any) -> Any:
    """The blocks' part of states [..., dx], as [..., blocks, 12]; of numpy or JAX arrays."""
    return x[..., ROBOT_NUMBERS:].reshape(*x.shape[:-1], -1, BLOCK_NUMBERS)


def block_positions(x: Any) -> Any:
    """[..., blocks, 3] out of states [..., dx]."""
    return block_parts(x)[..., :3]


def block_angles(x: Any) -> Any:
    """[..., blocks, 3] out of states [..., dx]: e with R = Rx(e0) Ry(e1) Rz(e2)."""
    return block_parts(x)[..., 3:6]


def first_angles(x: Any, library: Any) -> Any:
    """e0 of each block, within pi, whichever angles say where it is; `library` is that of the arrays."""
    first, second, _ = library.moveaxis(block_angles(x), -1, 0)
    towards = library.sign(library.cos(second))
    return library.arctan2(towards * library.sin(first), towards * library.cos(first))


def grip_position(x: Any) -> Any:
    """[..., 3] out of states [..., dx]."""
    return x[..., :3]


def finger_positions(x: Any) -> Any:
    """[..., 2] out of states [..., dx]: how far the right and the left finger are from the middle."""
    return x[..., 3:5]
