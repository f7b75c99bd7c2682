"""The optimal-control problem that a planner faces."""

import functools
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from sonde.imagination import Imagination, NoiseDraws, Perturbed, Pessimistic, draw_noise
from sonde.models import Posterior, Prediction
from sonde.objectives import Imagined, Objective
from sonde.solvers._worst_case import worst_case


class ControlProblem(eqx.Module):
    """Choose controls in [-1, 1]: per step the action u, then what the imagination lets the planner choose (eta).

    Where it lets an adversary choose instead, a plan is worth what is left of it when the adversary has seen it.
    """

    posterior: Posterior
    imagination: Imagination = eqx.field(static=True)
    objective: Objective = eqx.field(static=True)
    state_dim: int = eqx.field(static=True)
    action_dim: int = eqx.field(static=True)
    goal: Float[Array, "*seeds dg"] | None = None
    """What the objective is told of, where a task has a goal; it is data, so that another goal compiles nothing."""

    @property
    def control_dim(self) -> int:
        """Numbers to choose per step."""
        return self.action_dim + self.imagination.extra_controls(self.state_dim)

    @property
    def adversary_dim(self) -> int:
        """Numbers that an adversary chooses per step; they stand behind the plan's own."""
        return self.imagination.adversary_controls(self.state_dim)

    @property
    def simulated_particles(self) -> int:
        """Particles that can differ from each other."""
        return self.imagination.simulated_particles(self.posterior.ensemble_size)

    def imagine(self, x: Float[Array, " dx"], controls: Float[Array, "H dc"], key: Key[Array, ""]) -> Imagined:
        """Run a plan in the mind, from state `x`; one that comes without the adversary's part is not opposed."""
        horizon = controls.shape[0]
        if controls.shape[1] == self.control_dim:
            controls = jnp.pad(controls, ((0, 0), (0, self.adversary_dim)))
        actions, extras = controls[:, : self.action_dim], controls[:, self.action_dim :]

        def particle(index, key):
            adopted = self.imagination.adopt(self.posterior, index)

            def step(x, inputs):
                x_next, prediction = self._advance(adopted, x, *inputs)
                return x_next, (x, x_next, prediction)

            return jax.lax.scan(step, x, (actions, extras, draw_noise(key, horizon, self.state_dim)))[1]

        indices, keys = jnp.arange(self.simulated_particles), jax.random.split(key, self.simulated_particles)
        states, next_states, predictions = jax.vmap(particle)(indices, keys)
        return Imagined(states, actions, next_states, predictions, self.goal)

    def step(
        self, x: Float[Array, " dx"], control: Float[Array, " dc"], particle: Int[Array, ""], draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Float[Array, ""]]:
        """One imagined step of one particle: the next state, and what the step is worth."""
        u, extra = control[: self.action_dim], control[self.action_dim :]
        x_next, prediction = self._advance(self.imagination.adopt(self.posterior, particle), x, u, extra, draws)
        return x_next, self.worth(x, u, x_next, prediction)

    def worth(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"], prediction: Prediction
    ) -> Float[Array, ""]:
        """What a single step is worth, of which this was predicted."""
        predictions = jax.tree.map(lambda leaf: leaf[None, None], prediction)
        return self.objective.rewards(Imagined(x[None, None], u[None], x_next[None, None], predictions, self.goal))[0, 0]

    def _advance(
        self, adopted: Posterior, x: Array, u: Array, extra: Array, draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Prediction]:
        """The next state as one particle imagines it, and what the posterior predicts of it."""
        prediction = self.posterior.predict(x, u)
        held = prediction if adopted is self.posterior else adopted.predict(x, u)
        return self.imagination.next_state(held, extra, draws), prediction

    def rewards(self, x: Float[Array, " dx"], plans: Float[Array, "P H dc"], key: Key[Array, ""]) -> Float[Array, "P K H"]:
        """What each of P plans is worth, for each particle and step by step. Every plan meets draws of its own."""
        keys = jax.random.split(key, plans.shape[0])
        return jax.vmap(lambda plan, k: self.worst_case_rewards(x, plan, k)[1])(plans, keys)

    def worst_case_rewards(
        self, x: Float[Array, " dx"], plan: Float[Array, "H dc"], key: Key[Array, ""]
    ) -> tuple[Float[Array, "H do"], Float[Array, "K H"]]:
        """What the adversary, if there is one, answers to the plan, and what the plan is worth then."""

        def rewards(problem: ControlProblem, eta: Array) -> Float[Array, "K H"]:
            return self.objective.rewards(problem.imagine(x, jnp.concatenate([plan, eta], axis=1), key))

        nothing = jnp.zeros((plan.shape[0], self.adversary_dim), plan.dtype)
        if not isinstance(self.imagination, Pessimistic):
            return nothing, rewards(self, nothing)
        perturbed = replace(self, imagination=Perturbed(self.imagination.noise, self.imagination.particles))
        adversarial = functools.partial(rewards, self)
        # a perturbation and an eta have slopes of the same sign, and the mean alone is much cheaper to ask for
        return worst_case(adversarial, nothing, self.imagination.adversary_steps, functools.partial(rewards, perturbed))
