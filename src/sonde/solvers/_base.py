"""What a solver of a control problem must offer.

A `Solver` (configuration) turns a `ControlProblem` into a policy. A `Planner` is a solver that plans while the system runs,
in general at every step; its own state lives for one episode. An `AnytimePlanner` does so in iterations and has a plan after
each of them.
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
from sonde.solvers._fallback import (
    Checked,
    SafeSearch,
    SafeState,
    admissible_or_fallback,
    begin_safe_search,
    initial_safe_state,
)
from sonde.solvers._policy import AnytimePolicy, Policy
from sonde.solvers._problem import ControlProblem


class Solver(abc.ABC):
    """Control problem in, policy out."""

    single_particle: ClassVar[bool] = False
    """Whether it simulates one particle at a time, so that an objective cannot compare several."""
    keeps_constraints: ClassVar[bool] = False
    """Whether it takes the constraints of a control problem (`ControlProblem.safety`) into account."""

    def check(self, objective: Objective | None) -> None:
        """Reject an objective that this solver cannot maximise.

        Args:
            objective: The objective of plans; None for a method that does not plan.
        """
        if self.single_particle and objective is not None and objective.compares_particles:
            raise SondeError(
                f"solver: {type(self).__name__} simulates one particle at a time and cannot maximise "
                f"{type(objective).__name__}, which compares several; use the solver icem"
            )

    def check_constraints(self) -> None:
        """Reject a solver that would ignore constraints."""
        if not self.keeps_constraints:
            raise SondeError(f"solver: {type(self).__name__} cannot keep constraints; use the solver icem or sac")

    @abc.abstractmethod
    def policy(self, problem: ControlProblem, data: Data, key: Key[Array, ""]) -> Policy:
        """Make a policy for one seed.

        Args:
            problem: The control problem.
            data: The measurements so far; imagined trajectories may start at visited states.
            key: Randomness.
        """

    def exploration_policy(self, problem: ControlProblem, data: Data, key: Key[Array, ""]) -> Policy:
        """Make a policy for one seed that collects measurements; by default as for a task.

        Args:
            problem: The control problem of exploration.
            data: The measurements so far.
            key: Randomness.
        """
        return self.policy(problem, data, key)

    def first_policy(self, problem: ControlProblem, data: Data, key: Key[Array, ""]) -> Policy:
        """Make the policy for one seed that collects the first measurements; by default as for the later ones.

        Args:
            problem: The control problem of exploration.
            data: A buffer without measurements.
            key: Randomness.
        """
        return self.exploration_policy(problem, data, key)


class Planner(Solver):
    """A solver that plans while the system runs: at every step, or when a plan is `due`."""

    keeps_constraints: ClassVar[bool] = True

    @abc.abstractmethod
    def initial_state(self, problem: ControlProblem) -> Any:
        """The planner's own state at the start of an episode.

        Args:
            problem: The control problem.

        Returns:
            Any pytree of arrays.
        """

    @abc.abstractmethod
    def plan(
        self, problem: ControlProblem, state: Any, x: Float[Array, " dx"], key: Key[Array, ""]
    ) -> tuple[Float[Array, "H dc"], Any]:
        """Plan from a state of the system.

        Args:
            problem: The control problem.
            state: The planner's own state.
            x: State of the system.
            key: Randomness of this step.

        Returns:
            The best plan found, and the planner's next state.
        """

    def due(self, state: Any) -> Bool[Array, "*copies"] | None:
        """Where `plan` searches, if it does not always do so; elsewhere it does the same as `follow`.

        Args:
            state: The planner's own state, of one copy of the system or of many.

        Returns:
            Whether a search is due; None if every step is planned.
        """
        del state
        return None

    def follow(self, state: Any) -> tuple[Float[Array, "H dc"], Any]:
        """Carry on the last plan, where no search is due.

        Args:
            state: The planner's own state.

        Returns:
            The plan from this step on, and the planner's next state.
        """
        raise NotImplementedError(f"{type(self).__name__} plans at every step")

    def policy(self, problem: ControlProblem, data: Data, key: Key[Array, "*seeds"]) -> "PlanningPolicy":
        """A policy that plans when it acts; the same for one seed and for a leading axis S."""
        del data, key
        return PlanningPolicy(problem, self)

    def exploration_policy(self, problem: ControlProblem, data: Data, key: Key[Array, "*seeds"]) -> Policy:
        """The same as for a task."""
        return self.policy(problem, data, key)

    def first_policy(self, problem: ControlProblem, data: Data, key: Key[Array, "*seeds"]) -> Policy:
        """The same as in later rounds."""
        return self.exploration_policy(problem, data, key)


class AnytimePlanner(Planner):
    """A planner that works in iterations and has a plan after each; between them it carries a `search`."""

    @abc.abstractmethod
    def iteration_sizes(self, share: float = 1.0) -> tuple[int, ...]:
        """The size of each iteration, such as its number of samples; iterations of one size share a compiled program.

        Args:
            share: Factor in (0, 1] on the sizes; they shrink only as far as is reasonable.

        Returns:
            One size per iteration, for planning that is not interrupted.
        """

    @abc.abstractmethod
    def begin(self, problem: ControlProblem, state: Any) -> Any:
        """Start the search of one step.

        Args:
            problem: The control problem.
            state: The planner's own state.

        Returns:
            The search before its first iteration: any pytree of arrays.
        """

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
        """Run one more iteration.

        Args:
            problem: The control problem.
            search: The search so far.
            x: State of the system.
            key: Randomness of this step; the same for all its iterations.
            iteration: Number of the iteration, from 0.
            last: Whether no other iteration follows.
            size: Size of the iteration.

        Returns:
            The search after this iteration.
        """

    @abc.abstractmethod
    def finish(self, search: Any) -> tuple[Float[Array, "H dc"], Any]:
        """End the search of one step.

        Args:
            search: The search after any number of iterations.

        Returns:
            The best plan found, and the planner's next state.
        """

    def plan(
        self, problem: ControlProblem, state: Any, x: Float[Array, " dx"], key: Key[Array, ""]
    ) -> tuple[Float[Array, "H dc"], Any]:
        """Run all iterations: one scan per size, so that a constant size compiles a single iteration."""
        sizes, search = self.iteration_sizes(), self.begin(problem, state)

        def improve(size, search, iteration):
            return self.improve(problem, search, x, key, iteration, iteration == len(sizes) - 1, size), None

        for size, numbered in itertools.groupby(enumerate(sizes), key=lambda pair: pair[1]):
            numbers = jnp.asarray([iteration for iteration, _ in numbered])
            search, _ = jax.lax.scan(lambda s, iteration, size=size: improve(size, s, iteration), search, numbers)
        return self.finish(search)


class PlanningPolicy(AnytimePolicy):
    """Plans at every step, or when a plan is due, and takes the next action of the plan."""

    problem: ControlProblem
    planner: Planner = eqx.field(static=True)
    reports_information: bool = eqx.field(static=True, default=True)
    """Whether `act` returns the expected information gain; that takes one more imagined plan, which a task does not need."""

    def with_goal(self, goal: Float[Array, "*seeds dg"] | None) -> "PlanningPolicy":
        """The same policy with the goal in its control problem."""
        return self if goal is None else replace(self, problem=replace(self.problem, goal=goal))

    def without_report(self) -> "PlanningPolicy":
        """The same policy without the last imagined plan."""
        return replace(self, reports_information=False)

    def initial_state(self) -> Any:
        """The planner's initial state; with constraints, also what the fallback needs."""
        state = self.planner.initial_state(self.problem)
        if self.problem.safety is None:
            return state
        return initial_safe_state(self.problem, state, self._plan_steps(state))

    def _plan_steps(self, state: Any) -> int:
        """Steps of a plan; nothing is computed."""
        planner = self.planner
        if isinstance(planner, AnytimePlanner):
            plan = lambda: planner.finish(planner.begin(self.problem, state))
        else:
            plan = lambda: planner.plan(self.problem, state, jnp.zeros(self.problem.state_dim), jax.random.key(0))
        return jax.eval_shape(plan)[0].shape[0]

    def checked(self, state: Any) -> Checked | None:
        """What the check of constraints said about the last action."""
        return state.checked if isinstance(state, SafeState) else None

    def plan(
        self, state: Any, x: Float[Array, " dx"], key: Key[Array, ""]
    ) -> tuple[Float[Array, "H du"], Any, Float[Array, "H dc"]]:
        """Plan from a state of the system.

        Args:
            state: The policy's own state.
            x: State of the system.
            key: Randomness of the step, as `act` takes it.

        Returns:
            The actions to take in this step and the following ones, the policy's next state, and the planner's best plan.
        """
        return self._acted_on(state, *self.planner.plan(self.problem, self._of_planner(state), x, self.plan_key(key)), x)

    def _of_planner(self, state: Any) -> Any:
        """The planner's own state."""
        return state.planner if isinstance(state, SafeState) else state

    def _acted_on(
        self, state: Any, plan: Float[Array, "H dc"], planner_state: Any, x: Float[Array, " dx"]
    ) -> tuple[Float[Array, "H du"], Any, Float[Array, "H dc"]]:
        """The actions of a plan, or those of the fallback; the policy's next state, and the plan."""
        if self.problem.safety is None:
            return planned_actions(self.problem, plan), planner_state, plan
        actions, state = admissible_or_fallback(self.problem, state, planner_state, x, plan)
        return actions, state, plan

    def act(self, state: Any, x: Float[Array, " dx"], key: Key[Array, ""]) -> tuple[Float[Array, " du"], Any, Float[Array, ""]]:
        """Take the first action of the best plan."""
        return self._first_of(*self.plan(state, x, key), x, key)

    def due(self, state: Any) -> Bool[Array, "*copies"] | None:
        """Where the planner searches."""
        return self.planner.due(self._of_planner(state))

    def follow(
        self, state: Any, x: Float[Array, " dx"], key: Key[Array, ""]
    ) -> tuple[Float[Array, " du"], Any, Float[Array, ""]]:
        """Take the next action of the last plan."""
        return self._first_of(*self._acted_on(state, *self.planner.follow(self._of_planner(state)), x), x, key)

    def _first_of(
        self, actions: Float[Array, "H du"], state: Any, plan: Float[Array, "H dc"], x: Float[Array, " dx"], key: Key[Array, ""]
    ) -> tuple[Float[Array, " du"], Any, Float[Array, ""]]:
        """The first action, the policy's state, and the expected information of the plan."""
        imagine_key = jax.random.split(key)[1]
        expected = jnp.asarray(jnp.nan, x.dtype)
        if self.reports_information:
            expected = jnp.mean(information_gain(self.problem.imagine(x, plan, imagine_key).predictions))
        return actions[0], state, expected

    def plan_key(self, key: Key[Array, ""]) -> Key[Array, ""]:
        """The planner's part of a step's randomness.

        Args:
            key: Randomness of the step, as `act` takes it.
        """
        return jax.random.split(key)[0]

    @property
    def _anytime(self) -> AnytimePlanner:
        if not isinstance(self.planner, AnytimePlanner):
            raise SondeError(
                f"policy: a budget needs an AnytimePlanner, and {type(self.planner).__name__} cannot be interrupted; "
                "ask without a budget or rate, or use the solver icem"
            )
        return self.planner

    def iteration_sizes(self, share: float = 1.0) -> tuple[int, ...]:
        """The planner's iteration sizes."""
        return self._anytime.iteration_sizes(share)

    def begin(self, state: Any) -> Any:
        """Start the planner's search."""
        if self.problem.safety is None:
            return self._anytime.begin(self.problem, state)
        return begin_safe_search(self.problem, self._anytime.begin(self.problem, state.planner), state)

    def improve(
        self,
        search: Any,
        x: Float[Array, " dx"],
        key: Key[Array, ""],
        iteration: Int[Array, ""],
        last: Bool[Array, ""],
        size: int,
    ) -> Any:
        """Run one more iteration of the planner."""
        better = lambda search: self._anytime.improve(self.problem, search, x, self.plan_key(key), iteration, last, size)
        if self.problem.safety is None:
            return better(search)
        return SafeSearch(better(search.planner), search.before, x, jnp.asarray(True))

    def finish(self, search: Any) -> tuple[Float[Array, "H du"], Any]:
        """Return the actions of the best plan so far; the expected information is left out because it takes time."""
        if self.problem.safety is None:
            plan, state = self._anytime.finish(search)
            return planned_actions(self.problem, plan), state
        plan, state = self._anytime.finish(search.planner)
        return admissible_or_fallback(self.problem, search.before, state, search.x, plan, search.searched)


def planned_actions(problem: ControlProblem, plan: Float[Array, "H dc"]) -> Float[Array, "H du"]:
    """The actions of a plan, clipped to [-1, 1].

    Args:
        problem: The control problem.
        plan: Controls of each step.
    """
    return jnp.clip(plan[:, : problem.action_dim], -1.0, 1.0)
