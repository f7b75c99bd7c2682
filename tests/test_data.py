"""Measurements: specs name the dimensions, and trajectories are checked where they enter."""

from dataclasses import replace

import numpy as np
import pytest

from sonde import SondeError, SystemSpec, Trajectory
from sonde.worlds import OwnSystem, Pendulum

SPEC = SystemSpec(("angle", "speed"), ("torque",))


def trajectory(steps: int, **flags) -> Trajectory:
    rng = np.random.default_rng(steps)
    states = rng.normal(size=(2, steps + 1, 2))
    return Trajectory(states[:, :-1], rng.uniform(-1, 1, (2, steps, 1)), states[:, 1:], **flags)


def test_spec_has_names_and_sizes():
    assert (SPEC.state_dim, SPEC.action_dim) == (2, 1)
    assert SystemSpec.of_size(2, 1) == SystemSpec(("x0", "x1"), ("u0",))
    assert Pendulum().spec == SystemSpec(("cos th", "sin th", "thdot"), ("torque",))
    assert OwnSystem(states=("angle", "speed"), actions=("torque",)).spec == SPEC
    assert hash(SPEC) == hash(SystemSpec(("angle", "speed"), ("torque",)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SystemSpec((), ("u",)), r"states must be names, at least one and all different, got \[\]"),
        (lambda: SystemSpec(("x",), ()), r"actions must be names, at least one"),
        (lambda: SystemSpec(("x", "x"), ("u",)), r"all different, got \['x', 'x'\]"),
        (lambda: SystemSpec(("x", ""), ("u",)), r"states must be names"),
        (lambda: SystemSpec.of_size(0, 1), "expected at least one state and one action, got 0 and 1"),
        (lambda: SystemSpec.of_size(2, 0), "expected at least one state and one action, got 2 and 0"),
    ],
)
def test_spec_with_missing_or_ambiguous_names_is_rejected(make, message):
    with pytest.raises(SondeError, match=message):
        make()


def test_checked_trajectory_has_float64_arrays_with_an_axis_for_seeds():
    given = trajectory(4)
    one = Trajectory(given.states[0].astype(np.float32), given.actions[0], given.next_states[0], terminated=np.zeros(4, int))
    checked = one.checked(1, SPEC)
    assert checked.states.shape == (1, 4, 2) and checked.states.dtype == np.float64
    assert checked.terminated.shape == (1, 4) and checked.terminated.dtype == bool
    assert checked.truncated is None and checked.planned_information is None
    with pytest.raises(SondeError, match=r"states must have shape \[seeds=2, steps >= 1, 2\], got \[4, 2\]"):
        one.checked(2, SPEC)


@pytest.mark.parametrize("name", ["planned_information", "terminated", "truncated"])
def test_flags_of_wrong_shape_are_rejected(name):
    with pytest.raises(SondeError, match=rf"{name} must have shape \[2, 4\], got \[2, 3\]"):
        trajectory(4, **{name: np.zeros((2, 3))}).checked(2, SPEC)


def test_an_episode_ends_where_it_is_terminated_or_truncated():
    flags = np.zeros((2, 4), bool)
    terminated, truncated = flags.copy(), flags.copy()
    terminated[0, 1] = truncated[1, 2] = True
    assert trajectory(4).ended is None
    np.testing.assert_array_equal(trajectory(4, terminated=terminated).ended, terminated)
    np.testing.assert_array_equal(trajectory(4, terminated=terminated, truncated=truncated).ended, terminated | truncated)


def test_joined_trajectories_are_truncated_where_each_part_ends_unless_it_terminated_there():
    terminated = np.zeros((2, 3), bool)
    terminated[0, 2] = True
    first, second = trajectory(3, terminated=terminated), trajectory(2)
    joined = first.joined(second)
    np.testing.assert_array_equal(joined.states, np.concatenate([first.states, second.states], axis=1))
    np.testing.assert_array_equal(joined.actions, np.concatenate([first.actions, second.actions], axis=1))
    assert joined.terminated.tolist() == [[False, False, True, False, False], [False] * 5]
    assert joined.truncated.tolist() == [[False] * 4 + [True], [False, False, True, False, True]]
    assert joined.planned_information is None and first.joined() is first
    planned = [replace(part, planned_information=np.ones(part.states.shape[:2])) for part in (first, second)]
    assert planned[0].joined(planned[1]).planned_information.shape == (2, 5)
    assert planned[0].joined(second).planned_information is None
