"""The benchmark path `fetch-step`: a control step of the Fetch arm, with sizes that mean nothing."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import free_play, runner
from benchmarks.measuring import Plan
from benchmarks.table import in_short
from sonde.imagination import MemberTrajectories
from sonde.runs._run import build_explorer, collect
from sonde.solvers import PlanningPolicy

pytestmark = pytest.mark.slow


def test_a_control_step_is_planned_and_simulated():
    results = runner.Results()
    runner.run(["fetch-step"], Plan("tiny", seeds=(2,)), results)
    assert results.failures == {}
    assert [row.setting for row in results.rows] == ["opax-heuristic", "cee-us", "pick-place"]
    for row in results.rows:
        # two seeds with two arms each; 8 plans and a kept one of 2 steps; 2 members of (22 + 4) x 8 and 8 x 22 weights
        assert row.extra["transitions_per_seed"] == 2 * 9 * 2
        assert row.flop == 2 * (2 * 9 * 2) * 2 * 2 * (26 * 8 + 8 * 22)
        simulators = row.extra["simulator_wall_seconds"]
        assert row.extra["simulator_share"] == pytest.approx(simulators / (simulators + row.wall_seconds))
        assert in_short(row).endswith(f"{row.extra['simulator_share']:.0%} of the step")


@pytest.mark.parametrize("method", free_play.METHODS)
def test_the_measured_planning_call_is_that_of_exploration(x64, method):
    config = replace(free_play._config(Plan("tiny")).with_method(method), seeds=2)  # the sizes that are measured above
    _, trajectory = collect(config, build_explorer(config))
    first_steps = lambda array: array[:, :: config.horizon].reshape(-1, array.shape[-1])  # of each rollout
    _, controller, _ = free_play._playing(config, method)
    np.testing.assert_array_equal(controller.act(first_steps(trajectory.states))[0], first_steps(trajectory.actions))


def test_the_measured_planning_call_of_a_task_asks_each_member_and_has_a_goal_per_rollout(x64):
    config = replace(free_play._config(Plan("tiny")), seeds=2)
    _, controller, _ = free_play._solving(config, free_play.TASK)
    policy = controller.policy
    assert isinstance(policy, PlanningPolicy) and not policy.reports_information
    assert isinstance(policy.problem.imagination, MemberTrajectories) and policy.problem.simulated_particles == 2
    assert controller.goals is not None and controller.goals.shape == (2, 2, 3)
    assert len(np.unique(np.asarray(controller.goals).reshape(-1, 3), axis=0)) == 4
