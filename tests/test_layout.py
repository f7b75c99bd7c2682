"""Layouts of states: features without jumps, changes the short way round, and their inverses, against SciPy's rotations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from sonde import SondeError
from sonde.data import Body, StateLayout, SystemSpec
from sonde.worlds import Delayed, FetchConstruction, OwnSystem, Pendulum

pytestmark = pytest.mark.usefixtures("x64")
TURNING = Body(5, position=(0,), angles=(1,), rotation=(2, 3, 4))
LAYOUT = StateLayout(Body(2, position=(0,)), TURNING, count=2)


def random_states(seed: int, spread: float = 1.0, rows: int = 40):
    return spread * jnp.asarray(np.random.default_rng(seed).normal(size=(rows, LAYOUT.state_dim)))


def rotations(x) -> Rotation:
    return Rotation.from_euler("XYZ", np.asarray(LAYOUT.split(x).objects)[..., 2:5].reshape(-1, 3))


def test_features_are_positions_numbers_cosines_sines_and_the_matrix():
    x = jnp.asarray([[0.1, 0.2, 0.3, 0.4, 0.5, -0.6, 0.7, 1.0, 2.0, 0.0, 0.0, 0.0]])
    agent, objects = LAYOUT.features(x)
    np.testing.assert_allclose(agent, [[0.1, 0.2]])
    matrices = rotations(x).as_matrix().reshape(2, 9)
    expected = [[0.3, np.cos(0.4), np.sin(0.4), *matrices[0]], [1.0, np.cos(2), np.sin(2), *matrices[1]]]
    np.testing.assert_allclose(objects[0], expected, atol=1e-12)


def test_features_of_entries_that_are_not_next_to_each_other():
    body = Body(4, position=(3, 1), angles=(0,))
    np.testing.assert_allclose(body.features(jnp.asarray([0.0, 1.0, 2.0, 3.0])), [3.0, 1.0, 2.0, 1.0, 0.0])


def test_features_do_not_jump_where_angles_do():
    below, above = (TURNING.features(jnp.asarray([0.0, turn, turn, 0.3, -0.2])) for turn in (np.pi - 1e-6, -np.pi + 1e-6))
    np.testing.assert_allclose(below, above, atol=1e-5)
    # the other angles of the same rotation
    twin = TURNING.features(jnp.asarray([0.0, np.pi, -1e-6, np.pi - 0.3, -0.2 + np.pi]))
    np.testing.assert_allclose(below, twin, atol=1e-5)


def test_changes_take_angles_the_short_way_round():
    x, after = jnp.asarray([0.0, 3.1, 0.0, 0.0, 0.0]), jnp.asarray([0.5, -3.1, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(TURNING.changes(x, after), [0.5, 2 * np.pi - 6.2, 0, 0, 0], atol=1e-12)


def test_a_rotation_changes_by_the_vector_that_scipy_finds():
    x, after = random_states(0), random_states(1)
    expected = (rotations(after) * rotations(x).inv()).as_rotvec()
    found = np.asarray(LAYOUT.split(LAYOUT.changes(x, after)).objects)[..., 2:5].reshape(-1, 3)
    np.testing.assert_allclose(found, expected, atol=1e-6)  # half a turn is the hardest


@pytest.mark.parametrize("spread", [1e-9, 1e-3, 0.3])
def test_moved_undoes_changes_and_stays_near(spread):
    x = random_states(2)
    after = x + random_states(3, spread)
    moved = LAYOUT.moved(x, LAYOUT.changes(x, after))
    plain = np.asarray(LAYOUT.split(moved - after).objects)[..., :2]
    np.testing.assert_allclose(plain, 0, atol=1e-12)
    turned = (rotations(moved) * rotations(after).inv()).magnitude()
    np.testing.assert_allclose(turned, 0, atol=1e-7)
    if spread < 0.01:  # angles do not jump; near a quarter turn of the second one they move fast
        steep = np.abs(np.cos(np.asarray(LAYOUT.split(x).objects)[..., 3])) < 0.1
        far = np.abs(np.asarray(LAYOUT.split(moved - x).objects)[..., 2:5]).max(axis=-1)
        assert far[~steep].max() < 100 * spread


def test_bounded_angles_are_brought_into_range_with_the_centre():
    centre = 3.0 * random_states(4)
    others = centre + random_states(5, 0.01)
    inside, moved = LAYOUT.in_range(centre, centre), LAYOUT.in_range(others, centre)
    objects = np.asarray(LAYOUT.split(inside).objects)
    assert np.abs(objects[..., [1, 2, 4]]).max() <= np.pi + 1e-12 and np.abs(objects[..., 3]).max() <= np.pi / 2 + 1e-12
    np.testing.assert_allclose((rotations(inside) * rotations(centre).inv()).magnitude(), 0, atol=1e-7)
    np.testing.assert_allclose(np.abs(moved - inside), np.abs(others - centre), atol=1e-12)  # distances stay
    free = LAYOUT.unbounded()
    np.testing.assert_array_equal(free.in_range(others, centre), others)


def test_stds_of_rotations_become_those_of_angles():
    """Against differences along each axis, far from a quarter turn."""
    angles, stds = np.array([0.4, 0.7, -1.1]), np.array([0.03, 0.01, 0.02])
    x = jnp.asarray([0.0, 0.0, *angles])
    found = np.asarray(TURNING.stds(x, jnp.asarray([0.5, 0.25, *stds])))
    np.testing.assert_allclose(found[:2], [0.5, 0.25])
    jacobian = []
    for axis in range(3):
        small = Rotation.from_rotvec(1e-6 * np.eye(3)[axis]) * Rotation.from_euler("XYZ", angles)
        jacobian.append((small.as_euler("XYZ") - angles) / 1e-6)
    np.testing.assert_allclose(found[2:], np.sqrt((np.asarray(jacobian).T ** 2) @ stds**2), rtol=1e-4)


def test_changes_have_finite_gradients_where_nothing_moves():
    x = random_states(6, rows=3)
    gradient = jax.grad(lambda after: jnp.sum(LAYOUT.changes(x, after) ** 2 + LAYOUT.changes(x, after)))(x)
    assert np.isfinite(gradient).all()
    still = jax.grad(lambda change: jnp.sum(LAYOUT.moved(x, change)))(jnp.zeros_like(x))
    assert np.isfinite(still).all()


def test_worlds_say_how_their_state_is_made():
    for angles, bounded in (("bounded", True), ("continuous", False)):
        layout = FetchConstruction(blocks=4, angles=angles).spec.layout
        assert layout is not None and layout.count == 4 and layout.state_dim == 58 and layout.object.bounded is bounded
    assert Pendulum().spec.layout is None
    own = OwnSystem(states=("a", "b", "c"), actions=("u",), objects=StateLayout(Body(1), Body(1), 2))
    assert own.spec.layout == own.objects
    assert Delayed(FetchConstruction(blocks=2), 1).spec.layout == FetchConstruction(blocks=2).layout


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: Body(2, position=(2,)), "from 0 to 1"),
        (lambda: Body(3, position=(0,), angles=(0,)), "once"),
        (lambda: Body(3, rotation=(0, 1)), "three angles"),
        (lambda: Body(-1), "width"),
        (lambda: StateLayout(Body(1), Body(1), 0), "count"),
        (lambda: StateLayout(Body(1), Body(0), 1), "at least one entry"),
        (lambda: StateLayout(Body(1, position=(0,)), Body(2, position=(0, 1)), 1), "same axes"),
        (lambda: SystemSpec(("a", "b"), ("u",), layout=StateLayout(Body(1), Body(1), 2)), "3 entries"),
    ],
)
def test_layouts_that_cannot_be_are_rejected(wrong, message):
    with pytest.raises(SondeError, match=message):
        wrong()
