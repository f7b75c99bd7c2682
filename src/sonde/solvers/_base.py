"""The optimal-control problem that a planner faces, and what a solver of it must offer.

`ControlProblem` puts posterior, imagination and objective together: it imagines plans and says what they are worth. A `Solver`
(configuration) turns it into a policy. A `Planner` is a solver that thinks at every step anew; its `state` lives for one
episode and ends with it. An `Anytime` planner does so in turns and has a plan after each of them.
"""

import abc
import functools
import itertools
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from sonde._internal.errors import SondeError
from sonde.data import Data
from sonde.imagination import NoiseDraws, Imagination, Pessimistic, Perturbed, draw_noise
from sonde.models._base import Prediction, Posterior
from sonde.objectives import Imagined, Objective, information_gain
from sonde.solvers._policy import Interruptible, Policy
from sonde.solvers.adversarial._search import worst_case


class ControlProblem(eqx.Module):
    """Choose controls in [-1, 1]: per step the action u, then what the imagination lets the planner choose (eta).

    Where it lets an adversary choose instead, a plan is worth what is left of it when the adversary has seen it.
    """

    posterior: Posterior
    imagination: Imagination = eqx.field(static=True)
    objective: Objective = eqx.field(static=True)
    state_dim: int = eqx.field(static=True)
    action_dim: int = eqx.field(static=True)
    particles: int = eqx.field(static=True)
    ensemble_size: int = eqx.field(static=True, default=0)
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
        return self.imagination.particles(self.particles, self.ensemble_size)

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
        perturbed = replace(self, imagination=Perturbed(noise=self.imagination.noise))
        worst_case_rewards = functools.partial(rewards, self)
        # a perturbation and an eta have slopes of the same sign, and the mean alone is much cheaper to ask for
        return worst_case(worst_case_rewards, nothing, self.imagination.adversary_steps, functools.partial(rewards, perturbed))


class Solver(abc.ABC):
    """Problem in, policy out."""

    one_particle: ClassVar[bool] = False
    """Whether it imagines steps of one particle, so that an objective cannot compare several."""

    @abc.abstractmethod
    def policy(self, problem: ControlProblem, data: Data, key: Key[Array, ""]) -> Policy:
        """A good policy. `data` is what was measured: where imagined trajectories may begin."""


class Planner(Solver):
    """A solver that plans anew at every step."""

    @abc.abstractmethod
    def start(self, problem: ControlProblem) -> Any:
        """The state at the beginning of an episode."""

    @abc.abstractmethod
    def plan(
        self, problem: ControlProblem, state: Any, x: Float[Array, " dx"], key: Key[Array, ""]
    ) -> tuple[Float[Array, "H dc"], Any]:
        """The best plan found from state `x`, and the next state of the planner."""

    def policy(self, problem: ControlProblem, data: Data, key: Key[Array, "*seeds"]) -> "PlanningPolicy":
        """All work is left to the steps, so this serves one run as well as many."""
        del data, key
        return PlanningPolicy(problem, self)


class Anytime(Planner):
    """A planner that works in turns and has a plan after each; what it carries from turn to turn is its `search`."""

    @abc.abstractmethod
    def turns(self, share: float = 1.0) -> tuple[int, ...]:
        """The size of each turn, if none is cut (samples, say): turns of one size share a compiled program.

        `share` asks for turns that are smaller by this factor, as far as that makes sense.
        """

    @abc.abstractmethod
    def begin(self, problem: ControlProblem, state: Any) -> Any:
        """The search before the first turn."""

    @abc.abstractmethod
    def improve(
        self,
        problem: ControlProblem,
        search: Any,
        x: Float[Array, " dx"],
        key: Key[Array, ""],
        turn: Int[Array, ""],
        last: Bool[Array, ""],
        size: int,
    ) -> Any:
        """The search after one more turn, counted from 0; `last`: none will follow. `key` is the same for all turns."""

    @abc.abstractmethod
    def finish(self, search: Any) -> tuple[Float[Array, "H dc"], Any]:
        """The best plan found, and the next state of the planner."""

    def plan(
        self, problem: ControlProblem, state: Any, x: Float[Array, " dx"], key: Key[Array, ""]
    ) -> tuple[Float[Array, "H dc"], Any]:
        """All turns: one scan per size, so that a constant size compiles a single turn."""
        sizes, search = self.turns(), self.begin(problem, state)

        def improve(size, search, turn):
            return self.improve(problem, search, x, key, turn, turn == len(sizes) - 1, size), None

        for size, numbered in itertools.groupby(enumerate(sizes), key=lambda pair: pair[1]):
            turns = jnp.asarray([turn for turn, _ in numbered])
            search, _ = jax.lax.scan(lambda s, turn, size=size: improve(size, s, turn), search, turns)
        return self.finish(search)


class PlanningPolicy(Interruptible):
    """Solves a control problem anew at every step."""

    problem: ControlProblem
    planner: Planner = eqx.field(static=True)
    informs: bool = eqx.field(static=True, default=True)
    """Whether `act` says what information it expects; that takes one more imagined plan, which a task has no use for."""

    def aimed_at(self, goal: Float[Array, "*seeds dg"] | None) -> "PlanningPolicy":
        """The goal becomes part of the problem; None leaves it as it is."""
        return self if goal is None else replace(self, problem=replace(self.problem, goal=goal))

    def start(self) -> Any:
        """The planner's."""
        return self.planner.start(self.problem)

    def act(self, state: Any, x: Float[Array, " dx"], key: Key[Array, ""]) -> tuple[Float[Array, " du"], Any, Float[Array, ""]]:
        """The first action of the best plan."""
        imagine_key = jax.random.split(key)[1]
        plan, state = self.planner.plan(self.problem, state, x, self.plan_key(key))
        action, expected = first_action(self.problem, plan), jnp.asarray(jnp.nan, x.dtype)
        if self.informs:
            expected = jnp.mean(information_gain(self.problem.imagine(x, plan, imagine_key).predictions))
        return action, state, expected

    def plan_key(self, key: Key[Array, ""]) -> Key[Array, ""]:
        """What the planner knows of a step's randomness."""
        return jax.random.split(key)[0]

    @property
    def _anytime(self) -> Anytime:
        if not isinstance(self.planner, Anytime):
            name = type(self.planner).__name__
            raise SondeError(f"{name} plans in one piece and cannot keep a budget; ask without one, or take the solver icem")
        return self.planner

    def turns(self, share: float = 1.0) -> tuple[int, ...]:
        """The planner's."""
        return self._anytime.turns(share)

    def begin(self, state: Any) -> Any:
        """The planner's search."""
        return self._anytime.begin(self.problem, state)

    def improve(
        self, search: Any, x: Float[Array, " dx"], key: Key[Array, ""], turn: Int[Array, ""], last: Bool[Array, ""], size: int
    ) -> Any:
        """A turn of the planner."""
        return self._anytime.improve(self.problem, search, x, self.plan_key(key), turn, last, size)

    def finish(self, search: Any) -> tuple[Float[Array, "H du"], Any]:
        """The actions of the best plan found so far; what it would tell is not imagined, since that takes time."""
        plan, state = self._anytime.finish(search)
        return planned_actions(self.problem, plan), state


def planned_actions(problem: ControlProblem, plan: Float[Array, "H dc"]) -> Float[Array, "H du"]:
    """What the plan does, now and later."""
    return jnp.clip(plan[:, : problem.action_dim], -1.0, 1.0)


def first_action(problem: ControlProblem, plan: Float[Array, "H dc"]) -> Float[Array, " du"]:
    """What the plan does now."""
    return planned_actions(problem, plan)[0]
