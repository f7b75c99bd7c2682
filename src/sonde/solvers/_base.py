"""What a solver of a control problem must offer.

A `Solver` (configuration) turns a `ControlProblem` into a policy. A `Planner` is a solver that plans again at every step; its
`state` lives for one episode. An `AnytimePlanner` does so in iterations and has a plan after each of them.
"""

import abc
import itertools
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from sonde._internal.errors import SondeError
from sonde.data import Data
from sonde.objectives import Objective, information_gain
from sonde.solvers._policy import AnytimePolicy, Policy
from sonde.solvers._problem import ControlProblem


class Solver(abc.ABC):
    """Problem in, policy out."""

    one_particle: ClassVar[bool] = False
    """Whether it imagines steps of one particle, so that an objective cannot compare several."""

    def check(self, objective: Objective | None) -> None:
        """Reject an objective that this solver cannot maximise.

        Args:
            objective: What plans are worth; None for a method that does not plan.

        """
        if self.one_particle and objective is not None and objective.compares_particles:
            raise SondeError(
                f"{type(self).__name__} imagines one particle at a time and cannot maximise {type(objective).__name__}, "
                "which compares several; use the solver icem"
            )

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


class AnytimePlanner(Planner):
    """A planner that works in turns and has a plan after each; what it carries from turn to turn is its `search`."""

    @abc.abstractmethod
    def iteration_sizes(self, share: float = 1.0) -> tuple[int, ...]:
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
        iteration: Int[Array, ""],
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
        sizes, search = self.iteration_sizes(), self.begin(problem, state)

        def improve(size, search, iteration):
            return self.improve(problem, search, x, key, iteration, iteration == len(sizes) - 1, size), None

        for size, numbered in itertools.groupby(enumerate(sizes), key=lambda pair: pair[1]):
            iteration_sizes = jnp.asarray([iteration for iteration, _ in numbered])
            search, _ = jax.lax.scan(lambda s, iteration, size=size: improve(size, s, iteration), search, iteration_sizes)
        return self.finish(search)


class PlanningPolicy(AnytimePolicy):
    """Solves a control problem anew at every step."""

    problem: ControlProblem
    planner: Planner = eqx.field(static=True)
    reports_information: bool = eqx.field(static=True, default=True)
    """Whether `act` says what information it expects; that takes one more imagined plan, which a task has no use for."""

    def with_goal(self, goal: Float[Array, "*seeds dg"] | None) -> "PlanningPolicy":
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
        if self.reports_information:
            expected = jnp.mean(information_gain(self.problem.imagine(x, plan, imagine_key).predictions))
        return action, state, expected

    def plan_key(self, key: Key[Array, ""]) -> Key[Array, ""]:
        """What the planner knows of a step's randomness."""
        return jax.random.split(key)[0]

    @property
    def _anytime(self) -> AnytimePlanner:
        if not isinstance(self.planner, AnytimePlanner):
            name = type(self.planner).__name__
            raise SondeError(f"{name} plans in one piece and cannot keep a budget; ask without one, or take the solver icem")
        return self.planner

    def iteration_sizes(self, share: float = 1.0) -> tuple[int, ...]:
        """The planner's."""
        return self._anytime.iteration_sizes(share)

    def begin(self, state: Any) -> Any:
        """The planner's search."""
        return self._anytime.begin(self.problem, state)

    def improve(
        self,
        search: Any,
        x: Float[Array, " dx"],
        key: Key[Array, ""],
        iteration: Int[Array, ""],
        last: Bool[Array, ""],
        size: int,
    ) -> Any:
        """A turn of the planner."""
        return self._anytime.improve(self.problem, search, x, self.plan_key(key), iteration, last, size)

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
