"""Solve the Fetch arm's tasks with a planner that knows the scene: iCEM as in `fetch-construction`, on MuJoCo itself.

    python -m experiments.scripts.fetch_oracle pick-place [--blocks 4] [--steps 100] [--seed 1]

This shows what the tasks' rewards and planners are capable of, independently of what a model has learned. All 393 plans of
each step are simulated, which takes some seconds per step on two cores.
"""

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sonde.runs import preset
from sonde.solvers import ICEM
from sonde.worlds import FetchConstruction
from sonde.worlds.fetch._layout import block_positions, grip_position
from sonde.worlds.fetch._tasks import FETCH_TASKS, BlockTask


class SimulatedProblem:
    """The control problem as iCEM needs it, on the simulator: every plan is run from a saved state."""

    def __init__(self, world: FetchConstruction, task: BlockTask, goal: np.ndarray, plans: int):
        """Open a copy of the world for each plan.

        Args:
            world: The Fetch scene.
            task: The task to plan for.
            goal: Its goal [dg].
            plans: Largest number of plans that are evaluated at once.
        """
        self.control_dim = world.action_dim
        self.saved = np.empty(0)
        """The state that plans start from, as `MujocoSimulators.save` returned it."""
        self._copies = world.open(plans)
        self._copies.reset(range(plans))
        self._reward = jax.jit(jax.vmap(lambda x, u, x_next: task.reward(x, u, x_next, jnp.asarray(goal))))

    def rewards(self, x: Float[Array, " dx"], plans: Float[Array, "P H dc"], key: Key[Array, ""]) -> Float[Array, "P 1 H"]:
        """Compute the rewards of plans.

        Args:
            x: Not used; plans start from `saved`.
            plans: Plans to evaluate.
            key: Not used.
        """
        del x, key
        actions = np.nan_to_num(np.asarray(plans, np.float64))  # iCEM ignores plans of NaN, whatever their rewards are
        states = np.stack([self._copies.restore(copy, self.saved) for copy in range(len(actions))])
        found = []
        for u in actions.swapaxes(0, 1):
            next_states = self._copies.step(u).next_states
            found.append(self._reward(states, u, next_states))
            states = next_states
        return jnp.stack(found, axis=-1)[:, None]


def main() -> None:
    """Solve a task and print the progress."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=tuple(FETCH_TASKS))
    parser.add_argument("--blocks", type=int, default=4, help="number of blocks")
    parser.add_argument("--steps", type=int, default=100, help="number of steps")
    parser.add_argument("--seed", type=int, default=1, help="seed of start, goal and planner")
    options = parser.parse_args()

    world = FetchConstruction(blocks=options.blocks).for_task(options.task)
    task, solver = FETCH_TASKS[options.task](options.blocks), preset("fetch-construction").settings_for(options.task).solver
    assert isinstance(solver, ICEM)
    goal = task.sample_goal(np.random.default_rng([options.seed, 1]))  # another stream than the one that scatters the blocks
    problem: Any = SimulatedProblem(world, task, goal, solver.samples + solver.kept_elites)
    copies = world.open(1)
    x, state, key, states = copies.reset([options.seed]), solver.initial_state(problem), jax.random.key(options.seed), []
    for step in range(1, options.steps + 1):
        problem.saved = copies.save(0)
        key, step_key = jax.random.split(key)
        search = solver.begin(problem, state)
        for i, size in enumerate(solver.iteration_sizes()):
            last = jnp.asarray(i == solver.iterations - 1)
            search = solver.improve(problem, search, jnp.asarray(x[0]), step_key, jnp.asarray(i), last, size)
        plan, state = solver.finish(search)
        x = copies.step(np.asarray(plan[:1], np.float64)).next_states
        states.append(x[0])
        near = np.linalg.norm(block_positions(x[0]) - grip_position(x[0]), axis=-1).min()
        print(
            f"step {step}: value of the best plan {float(search.best_value):.3f}; "
            f"nearest block {near:.3f} m from the grip; success {task.success(np.array(states), goal):.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
