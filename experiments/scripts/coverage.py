"""How small the pendulum's model error can be after four rounds of 100 steps, whatever chooses them.

    python -m experiments.scripts.coverage

Two ways to choose the measurements, both of which know the true system. `scattered`: transitions drawn from the reachable set
at random (up to a fifth of it, so part of the points on which the error is measured has been seen). `pumped`: rollouts from the
world's own start that pump energy, to random levels and with random torques in between. What a planner leaves above the second
is a matter of where it went, and not of the model.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from sonde.data import Trajectory
from sonde.evaluation._metrics import model_metrics, reachable_set
from sonde.explorer import Explorer
from sonde.models import GaussianProcess
from sonde.runs import RunConfig, preset
from sonde.runs._run import build_explorer
from sonde.worlds import Pendulum

SEEDS, FIRST_SEED = 5, 100
LEVELS = ((-0.6, -0.1), (0.2, 1.0), (2.0, 2.0), (2.0, 2.0))
"""Range of the wanted energy in each round: 0 is upright at rest, -1 hanging at rest, 2 more than the speed limit allows."""
FIRST_PUSH = (1.0, 1.0, 1.0, -1.0)
"""Direction of the first torque in each round."""
Choice = Callable[[RunConfig, list[np.random.Generator], int], Trajectory]
"""(config, a generator per seed, round from 0) -> measurements [S, T, ...]."""


def _step(x: np.ndarray, torque: float) -> np.ndarray:
    """Next state of Gymnasium's pendulum with its usual parameters."""
    theta = np.arctan2(x[1], x[0])
    speed = np.clip(x[2] + (15.0 * np.sin(theta) + 6.0 * torque) * 0.05, -8.0, 8.0)
    theta += 0.05 * speed
    return np.array([np.cos(theta), np.sin(theta), speed])


def _pumped_rollout(rng: np.random.Generator, number: int, steps: int) -> tuple[list, list, list]:
    """States, actions and next states of one rollout; the nearer to the top, the more torques are random."""
    x, level, rows = np.array([-1.0, 0.0, 0.0]), rng.uniform(*LEVELS[number]), []
    for t in range(steps):
        energy = x[2] ** 2 / 60 + (x[0] - 1) / 2
        along = (1.0 if x[2] >= 0 else -1.0) if t else FIRST_PUSH[number]
        torque = np.sign(level - energy) * along
        if rng.random() < (0.35 if energy > -0.1 else 0.1):
            torque = rng.uniform(-1.0, 1.0)
        x_next = _step(x, torque)
        rows.append((x, [torque], x_next))
        x = x_next
    states, actions, next_states = map(list, zip(*rows, strict=True))
    return states, actions, next_states


def pumped(config: RunConfig, rngs: list[np.random.Generator], number: int) -> Trajectory:
    """Rollouts from the start that pump energy.

    Args:
        config: The config, for the length of the rollouts.
        rngs: A generator per seed.
        number: Number of the round, from 0.

    Returns:
        Measurements [S, T, ...].
    """
    columns = zip(*(_pumped_rollout(rng, number, config.horizon) for rng in rngs), strict=True)
    return Trajectory(*(np.array(column) for column in columns))


def scattered(config: RunConfig, rngs: list[np.random.Generator], number: int) -> Trajectory:
    """Transitions drawn from the reachable set at random.

    Args:
        config: The config, for the world and the number of transitions.
        rngs: A generator per seed.
        number: Number of the round, from 0; not used.

    Returns:
        Measurements [S, T, ...].
    """
    del number
    points = reachable_set(config.world)
    assert points is not None
    arrays = [np.asarray(array) for array in (points.states, points.actions, points.next_states)]
    rows = [rng.choice(len(arrays[0]), config.horizon, replace=False) for rng in rngs]
    return Trajectory(*(np.stack([array[row] for row in rows]) for array in arrays))


def error_per_round(config: RunConfig, choose: Choice) -> list[np.ndarray]:
    """Learn from four rounds of measurements.

    Args:
        config: The config.
        choose: How measurements are chosen.

    Returns:
        The model error in reach after each round [S].
    """
    explorer: Explorer = build_explorer(config)
    rngs, errors = [np.random.default_rng(seed) for seed in range(config.seeds)], []
    for number in range(len(LEVELS)):
        explorer.tell(choose(config, rngs, number))
        errors.append(np.sort(model_metrics(explorer.posterior, explorer.data, config.world)["model_rmse"]))
    return errors


def main() -> None:
    """Print the errors of all seeds after each round, for the preset's model and for the default one."""
    config = replace(preset("pendulum-gp-lite"), seeds=SEEDS, first_seed=FIRST_SEED)
    assert config.world == Pendulum()  # whose equations `_step` has
    for name, model in (("preset", config.model), ("default", GaussianProcess())):
        for choose in (pumped, scattered):
            for number, errors in enumerate(error_per_round(replace(config, model=model), choose), start=1):
                values = " ".join(f"{error:.3f}" for error in errors)
                print(f"{name:8} {choose.__name__:10} round {number}: median {np.median(errors):.3f} [{values}]", flush=True)


if __name__ == "__main__":
    main()
