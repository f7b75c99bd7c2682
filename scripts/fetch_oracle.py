"""The Fetch arm's tasks by a planner that knows the scene: iCEM as in `fetch-construction`, on MuJoCo, not on a learned model.

    python scripts/fetch_oracle.py pick-place [--blocks 4] [--steps 100] [--seed 1]

Shows what the tasks' rewards and planners are capable of, whatever a model has learned. All of the 393 plans of each step are
simulated: some seconds per step on two cores.
"""

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sonde import FetchConstruction, preset
from sonde.solvers import ICEM
from sonde.worlds.fetch._layout import block_positions, grip_position
from sonde.worlds.fetch._tasks import FETCH_TASKS, Flip, PickPlace, Throw


class Simulated:
    """What iCEM asks of a problem, answered by the simulator: every plan is run from the state that a copy was saved in."""

    def __init__(self, world: FetchConstruction, task: PickPlace | Throw | Flip, goal: np.ndarray, plans: int):
        """`plans` are run side by side."""
        self.control_dim = world.action_dim
        self.saved = np.empty(0)
        self._copies = world.open(plans)
        self._copies.reset(range(plans))
        self._reward = jax.jit(jax.vmap(lambda x, u, x_next: task.reward(x, u, x_next, jnp.asarray(goal))))

    def rewards(self, x: Float[Array, " dx"], plans: Float[Array, "P H dc"], key: Key[Array, ""]) -> Float[Array, "P 1 H"]:
        """What each plan is worth, step by step."""
        del x, key
        actions = np.nan_to_num(np.asarray(plans, np.float64))  # plans that are none; iCEM passes over them whatever they get
        states = np.stack([self._copies.restore(copy, self.saved) for copy in range(len(actions))])
        found = []
        for u in actions.swapaxes(0, 1):
            next_states = self._copies.step(u).next_states
            found.append(self._reward(states, u, next_states))
            states = next_states
        return jnp.stack(found, axis=-1)[:, None]


def main() -> None:
    """Solve, and say how it goes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("pick-place", "throw", "flip"))
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()

    world = FetchConstruction(blocks=chosen.blocks).for_task(chosen.task)
    task, solver = FETCH_TASKS[chosen.task](chosen.blocks), preset("fetch-construction").settings_for(chosen.task).solver
    assert isinstance(solver, ICEM)
    goal = task.sample_goal(np.random.default_rng([chosen.seed, 1]))  # not the stream that scatters the blocks
    problem: Any = Simulated(world, task, goal, solver.samples + solver.kept_elites)
    copies = world.open(1)
    x, state, key, states = copies.reset([chosen.seed]), solver.start(problem), jax.random.key(chosen.seed), []
    for step in range(1, chosen.steps + 1):
        problem.saved = copies.save(0)
        key, step_key = jax.random.split(key)
        search = solver.begin(problem, state)
        for turn, size in enumerate(solver.turns()):
            last = jnp.asarray(turn == solver.iterations - 1)
            search = solver.improve(problem, search, jnp.asarray(x[0]), step_key, jnp.asarray(turn), last, size)
        plan, state = solver.finish(search)
        x = copies.step(np.asarray(plan[:1], np.float64)).next_states
        states.append(x[0])
        near = np.linalg.norm(block_positions(x[0]) - grip_position(x[0]), axis=-1).min()
        print(
            f"step {step}: the best plan is worth {float(search.best_value):.3f}; "
            f"a block is {near:.3f} m from the grip; success {task.success(np.array(states), goal):.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
