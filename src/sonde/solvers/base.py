"""The optimal-control problem that a planner faces, and what a solver of it must offer.

`ControlProblem` puts posterior, imagination and objective together: it imagines plans and says what they are worth. A `Solver`
(configuration) finds good plans; its `state` lives for one episode and ends with it.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sonde.imagination import Imagination, draw_chance
from sonde.models.base import Posterior
from sonde.objectives import Imagined, Objective


class ControlProblem(eqx.Module):
    """Choose controls in [-1, 1]: per step the action u, then what the imagination lets the planner choose (eta)."""

    posterior: Posterior
    imagination: Imagination = eqx.field(static=True)
    objective: Objective = eqx.field(static=True)
    state_dim: int = eqx.field(static=True)
    action_dim: int = eqx.field(static=True)
    particles: int = eqx.field(static=True)
    ensemble_size: int = eqx.field(static=True, default=0)

    @property
    def control_dim(self) -> int:
        """Numbers to choose per step."""
        return self.action_dim + self.imagination.extra_controls(self.state_dim)

    @property
    def simulated_particles(self) -> int:
        """Particles that can differ from each other."""
        return self.imagination.particles(self.particles, self.ensemble_size)

    def imagine(self, x: Float[Array, " dx"], controls: Float[Array, "H dc"], key: Key[Array, ""]) -> Imagined:
        """Run a plan in the mind, from state `x`."""
        horizon = controls.shape[0]
        actions, extras = controls[:, : self.action_dim], controls[:, self.action_dim :]

        def particle(index, key):
            adopted = self.imagination.adopt(self.posterior, index)

            def step(x, inputs):
                u, extra, chance = inputs
                belief = self.posterior.believe(x, u)
                held = belief if adopted is self.posterior else adopted.believe(x, u)
                x_next = self.imagination.next_state(held, extra, chance)
                return x_next, (x, x_next, belief)

            return jax.lax.scan(step, x, (actions, extras, draw_chance(key, horizon, self.state_dim)))[1]

        indices, keys = jnp.arange(self.simulated_particles), jax.random.split(key, self.simulated_particles)
        states, next_states, beliefs = jax.vmap(particle)(indices, keys)
        return Imagined(states, actions, next_states, beliefs)

    def rewards(self, x: Float[Array, " dx"], plans: Float[Array, "P H dc"], key: Key[Array, ""]) -> Float[Array, "P H"]:
        """What each of P plans is worth, step by step. Every plan meets chance of its own."""
        keys = jax.random.split(key, plans.shape[0])
        return jax.vmap(lambda plan, k: self.objective.rewards(self.imagine(x, plan, k)))(plans, keys)


class Solver(abc.ABC):
    """Turns a problem into actions."""

    @abc.abstractmethod
    def start(self, problem: ControlProblem) -> Any:
        """The state at the beginning of an episode."""

    @abc.abstractmethod
    def plan(
        self, problem: ControlProblem, state: Any, x: Float[Array, " dx"], key: Key[Array, ""]
    ) -> tuple[Float[Array, "H dc"], Any]:
        """The best plan found from state `x`, and the next state of the solver."""


def first_action(problem: ControlProblem, plan: Float[Array, "H dc"]) -> Float[Array, " du"]:
    """What the plan does now."""
    return jnp.clip(plan[0, : problem.action_dim], -1.0, 1.0)
