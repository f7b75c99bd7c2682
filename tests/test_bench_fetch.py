"""`sonde bench fetch-step`: a control step of the Fetch arm, with sizes that mean nothing."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.measuring import Plan
from benchmarks.table import in_short

from sonde.bench import free_play, runner
from sonde.imagination import MemberTrajectories
from sonde.runs._run import build_explorer, experiment
from sonde.solvers._base import PlanningPolicy


def test_a_control_step_has_two_parts():
    results = runner.Results()
    runner.run(["fetch-step"], Plan("tiny", num_seeds=(2,)), results)
    assert results.failures == {}
    assert [row.setting for row in results.rows] == ["opax-heuristic", "cee-us", "pick-place"]
    for row in results.rows:
        # two runs of two arms: 8 plans and a kept one of 2 steps, each asked of 2 members of (22 + 4) x 8 and 8 x 22 weights
        assert row.extra["transitions_per_run"] == 2 * 9 * 2
        assert row.flop == 2 * (2 * 9 * 2) * 2 * 2 * (26 * 8 + 8 * 22)
        simulators = row.extra["simulator_wall_seconds"]
        assert row.extra["simulator_share"] == pytest.approx(simulators / (simulators + row.wall_seconds))
        assert in_short(row).endswith(f"{row.extra['simulator_share']:.0%} of the step")


@pytest.mark.parametrize("method", free_play.METHODS)
def test_the_planning_call_is_that_of_free_play(x64, method):
    config = replace(free_play._config(Plan("tiny")), method=method, horizon=1)
    _, trajectory = experiment(config, build_explorer(config))
    _, controller, _ = free_play._playing(config, method)
    np.testing.assert_array_equal(controller.act(trajectory.states[0])[0], trajectory.actions[0])


def test_the_planning_call_of_a_task_asks_each_member_and_has_goals_of_its_own(x64):
    config = replace(free_play._config(Plan("tiny")), seeds=3)
    _, controller, _ = free_play._solving(config, free_play.TASK)
    policy = controller.policy
    assert isinstance(policy, PlanningPolicy) and not policy.reports_information
    assert isinstance(policy.problem.imagination, MemberTrajectories) and policy.problem.simulated_particles == 2
    assert controller.goals is not None and controller.goals.shape == (3, 2, 3)
    assert len(np.unique(np.asarray(controller.goals).reshape(-1, 3), axis=0)) == 6
