"""The optimal-control problem that a solver is given."""

import functools
from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from sonde._internal.past import NO_PAST, Past
from sonde.data import Data
from sonde.imagination import Imagination, NoiseDraws, Perturbed, Pessimistic, draw_noise
from sonde.models import Posterior, Prediction
from sonde.objectives import Imagined, Objective
from sonde.solvers._safety import Safety, corner_sequences
from sonde.solvers._worst_case import worst_case

ADVERSARY_STEPS = 3
"""Steps of the gradient search for the worst case of a plan."""


class ControlProblem(eqx.Module):
    """Choose controls in [-1, 1]^dc per step: the action u, then the imagination's extra controls (eta).

    Where the imagination has an adversary, the adversary sees the plan and chooses its own controls in [-1, 1]^da; the rewards
    of the plan are those that remain.
    """

    posterior: Posterior
    """What was learned about the system."""
    imagination: Imagination = eqx.field(static=True)
    """How next states are imagined."""
    objective: Objective = eqx.field(static=True)
    """What is maximised."""
    state_dim: int = eqx.field(static=True)
    """Number of state dimensions dx."""
    action_dim: int = eqx.field(static=True)
    """Number of action dimensions du."""
    goal: Float[Array, "*seeds dg"] | None = None
    """Goal of the task, if it has one; an array, so that another goal does not recompile."""
    bonus_weight: Float[Array, "*seeds"] | None = None
    """Weight of the bonus in this round, for objectives that add one to the reward of a task; an array for the same reason."""
    safety: Safety | None = eqx.field(static=True, default=None)
    """Constraints that every step must keep, if there are any."""
    past: Past = eqx.field(static=True, default=NO_PAST)
    """What of the past belongs to the state: it follows the observation [dx] in all states that planners see, and is known
    exactly, so that only the observation is predicted, imagined and rewarded."""

    @property
    def full_dim(self) -> int:
        """Numbers in a state: the observation and the past."""
        return self.state_dim + self.past.size(self.state_dim, self.action_dim)

    @property
    def control_dim(self) -> int:
        """Numbers dc that the planner chooses per step."""
        return self.action_dim + self.imagination.extra_controls(self.state_dim)

    @property
    def adversary_dim(self) -> int:
        """Numbers da that an adversary chooses per step; they follow the planner's own."""
        return self.imagination.adversary_controls(self.state_dim)

    @property
    def simulated_particles(self) -> int:
        """Number of particles K that are simulated per plan."""
        return self.imagination.simulated_particles(self.posterior.ensemble_size)

    def imagine(self, x: Float[Array, " dx"], controls: Float[Array, "H dc"], key: Key[Array, ""]) -> Imagined:
        """Simulate a plan on the model.

        Args:
            x: First state, with the past.
            controls: Controls of each step, with or without the adversary's; without them the adversary does nothing.
            key: Randomness of all particles.
        """
        horizon = controls.shape[0]
        if controls.shape[1] == self.control_dim:
            controls = jnp.pad(controls, ((0, 0), (0, self.adversary_dim)))
        actions, extras = controls[:, : self.action_dim], controls[:, self.action_dim :]

        def particle(index, key):
            adopted = self.imagination.adopt(self.posterior, index)

            def step(x, inputs):
                x_next, prediction = self._advance(adopted, x, *inputs)
                return x_next, (self.observed(x), self.observed(x_next), prediction)

            inputs = actions, extras, draw_noise(key, horizon, self.state_dim)
            return jax.lax.scan(step, x, inputs, unroll=min(self.posterior.unroll, horizon))[1]

        indices, keys = jnp.arange(self.simulated_particles), jax.random.split(key, self.simulated_particles)
        states, next_states, predictions = jax.vmap(particle)(indices, keys)
        return Imagined(states, actions, next_states, predictions, self.goal, self.bonus_weight)

    def step(
        self, x: Float[Array, " dx"], control: Float[Array, " dc"], particle: Int[Array, ""], draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Float[Array, ""]]:
        """Simulate one step of one particle on the model.

        Args:
            x: State.
            control: Controls, followed by the adversary's if there is one.
            particle: Number of the particle.
            draws: Random numbers of this step.

        Returns:
            The next state and the reward.
        """
        u, extra = control[: self.action_dim], control[self.action_dim :]
        x_next, prediction = self._advance(self.imagination.adopt(self.posterior, particle), x, u, extra, draws)
        return x_next, self.step_reward(x, u, x_next, prediction)

    def step_reward(
        self, x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"], prediction: Prediction
    ) -> Float[Array, ""]:
        """The reward of a single step of one particle.

        Args:
            x: State.
            u: Action.
            x_next: Imagined next state.
            prediction: The model's prediction of the next state.
        """
        x, x_next = self.observed(x), self.observed(x_next)
        predictions = jax.tree.map(lambda leaf: leaf[None, None], prediction)
        imagined = Imagined(x[None, None], u[None], x_next[None, None], predictions, self.goal, self.bonus_weight)
        return self.objective.rewards(imagined)[0, 0]

    def start(self, x: Float[Array, "*n dx"]) -> Float[Array, "*n full"]:
        """The states of systems that have just started: nothing came before.

        Args:
            x: Observations.
        """
        return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, self.full_dim - self.state_dim)]) if self.past else x

    def observed(self, x: Float[Array, "*n full"]) -> Float[Array, "*n dx"]:
        """The present observation of a state.

        Args:
            x: States with the past.
        """
        return x[..., : self.state_dim] if self.past else x

    def predict(self, posterior: Posterior, x: Float[Array, " full"], u: Float[Array, " du"]) -> Prediction:
        """Predict the next observation.

        Args:
            posterior: A posterior, such as that of one member.
            x: State with the past.
            u: Action.
        """
        if not self.past:
            return posterior.predict(x, u)
        return posterior.predict(self.observed(x), jnp.concatenate([x[self.state_dim :], u]))

    def moved(self, x: Float[Array, " full"], u: Float[Array, " du"], x_next: Float[Array, " dx"]) -> Float[Array, " full"]:
        """The next state with the past, which follows exactly from the next observation.

        Args:
            x: State with the past.
            u: Action.
            x_next: The next observation.
        """
        if not self.past:
            return x_next
        return jnp.concatenate([x_next, self.past.moved(x[self.state_dim :], self.observed(x), u, x_next)])

    def visited(self, data: Data) -> Data:
        """Measurements with the past as a part of the states, which planners start from, instead of the actions.

        Args:
            data: What models learn from, with any leading axes.
        """
        if not self.past:
            return data
        past, actions = jnp.split(data.actions, [self.full_dim - self.state_dim], axis=-1)
        after = self.past.moved(past, data.states, actions, data.next_states)
        join = lambda observed, past: jnp.concatenate([observed, past], axis=-1)
        return replace(data, states=join(data.states, past), actions=actions, next_states=join(data.next_states, after))

    def _advance(
        self, adopted: Posterior, x: Array, u: Array, extra: Array, draws: NoiseDraws
    ) -> tuple[Float[Array, " dx"], Prediction]:
        """The next state that a particle with the posterior `adopted` imagines, and the prediction of the whole posterior."""
        prediction = self.predict(self.posterior, x, u)
        own = prediction if adopted is self.posterior else self.predict(adopted, x, u)
        return self.moved(x, u, self.imagination.next_state(own, extra, draws)), prediction

    def rewards(self, x: Float[Array, " dx"], plans: Float[Array, "P H dc"], key: Key[Array, ""]) -> Float[Array, "P K H"]:
        """The rewards of plans, in the worst case if there is an adversary; each plan has noise draws of its own.

        Args:
            x: First state.
            plans: P plans of H steps.
            key: Randomness.

        Returns:
            Rewards of each plan, particle and step.
        """
        keys = jax.random.split(key, plans.shape[0])
        return jax.vmap(lambda plan, k: self.worst_case_rewards(x, plan, k)[1])(plans, keys)

    def worst_case_rewards(
        self, x: Float[Array, " dx"], plan: Float[Array, "H dc"], key: Key[Array, ""]
    ) -> tuple[Float[Array, "H da"], Float[Array, "K H"]]:
        """Let the adversary, if there is one, choose its controls against a plan.

        Args:
            x: First state.
            plan: The plan.
            key: Randomness of all particles.

        Returns:
            The adversary's controls, and the rewards of the plan under them.
        """

        def rewards(problem: ControlProblem, eta: Array) -> Float[Array, "K H"]:
            return self.objective.rewards(problem.imagine(x, jnp.concatenate([plan, eta], axis=1), key))

        zero = jnp.zeros((plan.shape[0], self.adversary_dim), plan.dtype)
        if not isinstance(self.imagination, Pessimistic):
            return zero, rewards(self, zero)
        perturbed = replace(self, imagination=Perturbed(self.imagination.noise, self.imagination.particles))
        # at zero, the gradients with respect to a perturbation and to eta have the same sign, and the first needs only the
        # mean, which is much cheaper
        near_zero = functools.partial(rewards, perturbed)
        return worst_case(functools.partial(rewards, self), zero, self.imagination.adversary_steps, near_zero)

    def random_corners(self, plans: int, key: Key[Array, ""]) -> Float[Array, "P C dx"]:
        """Corners of [-1, 1]^dx for `violations`: half of the extreme particles; the others are at the opposite corners.

        Args:
            plans: Number of plans P.
            key: Randomness.
        """
        assert self.safety is not None
        return jax.random.rademacher(key, (plans, self.safety.particles // 2, self.state_dim), float)

    def violations(
        self, x: Float[Array, " full"], plans: Float[Array, "P H dc"], corners: Float[Array, "P C dx"]
    ) -> Float[Array, " P"]:
        """How far plans violate the constraints in the worst case among a few extreme particles.

        Args:
            x: First state.
            plans: P plans of H steps.
            corners: Where in the plausible region each particle of a plan is throughout.

        Returns:
            By how much the margins of all steps fall short of the one that is needed, in sum: of two plans that end in the same
            violation, the one that gets there later is better. 0 for plans that look admissible.
        """
        assert self.safety is not None
        plans, etas = plans[:, : self.safety.checked_steps(plans.shape[1])], corners.astype(plans.dtype)[:, :, None]
        return jax.vmap(lambda plan, eta: self._shortfall(self._extreme_margins(x, plan, eta)))(plans, etas)

    def worst_margin(self, x: Float[Array, " dx"], plan: Float[Array, "H dc"]) -> Float[Array, ""]:
        """The smallest margin of a plan that a thorough search among everything plausible finds.

        Args:
            x: First state.
            plan: The plan.

        Returns:
            The smallest margin over constraints, steps and plausible next states; minus infinity for a plan that is not finite.
        """
        return jnp.where(jnp.all(jnp.isfinite(plan)), jnp.min(self._thorough_margins(x, plan)), -jnp.inf)

    def worst_violation(self, x: Float[Array, " dx"], plan: Float[Array, "H dc"]) -> Float[Array, ""]:
        """How far a plan violates the constraints in the worst case that a thorough search finds.

        Args:
            x: First state.
            plan: The plan.

        Returns:
            As `violations`; infinity for a plan that is not finite.
        """
        return jnp.where(jnp.all(jnp.isfinite(plan)), self._shortfall(self._thorough_margins(x, plan)), jnp.inf)

    def _shortfall(self, margins: Float[Array, "C H"]) -> Float[Array, ""]:
        """What the margins of a plan lack, summed over its steps, in the worst of C cases."""
        assert self.safety is not None
        return jnp.max(jnp.sum(jnp.maximum(self.safety.margin - margins, 0.0), axis=-1))

    def _thorough_margins(self, x: Array, plan: Array) -> Float[Array, "C H"]:
        """The margins of the checked steps of a plan in all cases that the thorough search tries."""
        assert self.safety is not None
        checked = plan[: self.safety.checked_steps(plan.shape[0])]
        etas = jnp.asarray(corner_sequences(self.safety.corners, checked.shape[0], self.state_dim), plan.dtype)
        margins = [self._extreme_margins(x, checked, etas)]
        if self.posterior.ensemble_size:
            margins.append(self._member_margins(x, checked))
        if self.safety.search == "adversary":
            margins.append(self._attacked_margins(x, checked)[None])
        return jnp.concatenate(margins)

    def is_risky(self, x: Float[Array, " dx"], u: Float[Array, " du"]) -> Bool[Array, ""]:
        """Whether some plausible next state of a single step is not admissible.

        Args:
            x: State.
            u: Action.
        """
        safety = self.safety
        assert safety is not None
        prediction, corners = self.predict(self.posterior, x, u), corner_sequences(safety.corners, 1, self.state_dim)[:, 0]
        observed = self.observed(x)
        margin = lambda eta: safety.smallest_margin(observed, u, self.plausible(prediction, eta).astype(x.dtype))
        return ~(jnp.min(jax.vmap(margin)(jnp.asarray(corners, x.dtype))) >= safety.margin)

    def plausible(self, prediction: Prediction, eta: Float[Array, " dx"]) -> Float[Array, " dx"]:
        """The next state at a point of the region in which constraints must hold.

        Args:
            prediction: The model's prediction.
            eta: Point of [-1, 1]^dx. Where the imagination has the system's noise, the region is as wide as both stds together.
        """
        assert self.safety is not None
        beta = self.safety.beta if prediction.beta is None else prediction.beta
        std = prediction.epistemic_std
        if self.imagination.noise:
            std = jnp.hypot(std, prediction.aleatoric_std)
        x_next = prediction.mean + beta * std * eta
        return x_next if self.safety.project is None else self.safety.project(x_next)

    def _extreme_margins(self, x: Array, plan: Array, etas: Float[Array, "C #H dx"]) -> Float[Array, "C H"]:
        """The margins of a plan along each sequence of corners; they share the prediction of the first step."""
        first = self.predict(self.posterior, x, self._actions(plan)[0])
        return jax.vmap(lambda eta: self._margins(x, plan, eta, self.plausible, first))(etas)

    def _member_margins(self, x: Array, plan: Array) -> Float[Array, "E H"]:
        """The margins of a plan if one member of the ensemble were the truth, for each of them."""

        def one(number):
            mean = lambda prediction, _: prediction.mean
            problem = replace(self, posterior=self.posterior.member(number))
            return problem._margins(x, plan, jnp.zeros((1, self.state_dim), plan.dtype), mean)

        return jax.vmap(one)(jnp.arange(self.posterior.ensemble_size))

    def _margins(
        self,
        x: Array,
        plan: Array,
        eta: Float[Array, "#H dx"],
        choose: Callable[[Prediction, Array], Array],
        first: Prediction | None = None,
    ) -> Float[Array, " H"]:
        """The margin of each step, NaN as the worst, where `choose` takes the next state at a point of the plausible region."""
        safety = self.safety
        assert safety is not None
        etas, actions = jnp.broadcast_to(eta, (plan.shape[0], self.state_dim)), self._actions(plan)

        def step(x: Array, inputs: tuple[Array, Array], known: Prediction | None = None):
            u, eta = inputs
            x_next = choose(self.predict(self.posterior, x, u) if known is None else known, eta).astype(x.dtype)
            return self.moved(x, u, x_next), safety.smallest_margin(self.observed(x), u, x_next)

        x, margin = step(x, (actions[0], etas[0]), first)
        unroll = max(1, min(self.posterior.unroll, len(actions) - 1))
        margins = jnp.concatenate([margin[None], jax.lax.scan(step, x, (actions[1:], etas[1:]), unroll=unroll)[1]])
        return jnp.where(jnp.isnan(margins), -jnp.inf, margins)

    def _actions(self, plan: Array) -> Float[Array, "H du"]:
        return jnp.clip(plan[:, : self.action_dim], -1.0, 1.0)

    def _attacked_margins(self, x: Array, plan: Array) -> Float[Array, " H"]:
        """The margins in the worst case that a search along gradients finds."""

        def rewards(eta):
            margins = self._margins(x, plan, eta, self.plausible)
            scale = jax.lax.stop_gradient(jnp.maximum(0.05 * (jnp.max(margins) - jnp.min(margins)), 1e-6))
            soft_minimum = -scale * jax.nn.logsumexp(-margins / scale)
            return jnp.broadcast_to(soft_minimum / plan.shape[0], (1, plan.shape[0]))  # its sum over the steps is attacked

        zero = jnp.zeros((plan.shape[0], self.state_dim), plan.dtype)
        eta, _ = worst_case(rewards, zero, ADVERSARY_STEPS)
        return self._margins(x, plan, eta, self.plausible)
