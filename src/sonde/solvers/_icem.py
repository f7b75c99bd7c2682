"""iCEM: the improved cross-entropy method (Pinneri et al. 2021), a sampling-based planner with a receding horizon.

At each step, the search starts at the mean of the previous step, shifted by one, with its standard deviation reset. Each
iteration samples plans with coloured noise around the mean, adds the best plans of the previous iteration (in the first
iteration: of the previous step, shifted), selects the elites, and moves mean and standard deviation towards them. The plan is
the best one of all iterations of the step.
"""

import functools
from dataclasses import dataclass, replace
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int, Key

from sonde._internal.coloured_noise import coloured_noise
from sonde._internal.errors import SondeError, one_of, positive
from sonde._internal.platforms import by_platform
from sonde.solvers._base import AnytimePlanner
from sonde.solvers._problem import ControlProblem


class CarriedPlan(eqx.Module):
    """A plan that is carried on, shifted to the next step, and how many of its steps are left until the next search."""

    plan: Float[Array, "H dc"]
    left: Int[Array, "*copies"]


class ICEMState(eqx.Module):
    """What one step passes to the next: the mean plan and the elites that are kept (NaN where there are none yet)."""

    mean: Float[Array, "H dc"]
    kept: Float[Array, "keep H dc"]
    carried: CarriedPlan | None = None
    """None where every step is planned."""


class ICEMSearch(eqx.Module):
    """What one iteration passes to the next: the sampling distribution, the elites that are kept, and the best plan so far."""

    mean: Float[Array, "H dc"]
    std: Float[Array, "H dc"]
    kept: Float[Array, "keep H dc"]
    best: Float[Array, "H dc"]
    best_value: Float32[Array, ""]
    best_violation: Float32[Array, ""]
    """How far the best plan violates the constraints; 0 where there are none."""


SCREENED = 2
"""One in this many plans, those that are best at random corners, is also checked at the opposite corners."""
FINALISTS = 2
"""Plans that are checked as thoroughly as the one that is acted on, after the last iteration, where there are constraints."""


@dataclass(frozen=True)
class ICEM(AnytimePlanner):
    """Improved cross-entropy method: sampling-based planning with a receding horizon."""

    horizon: int = 20
    """Steps of a plan."""
    samples: int = 500
    """Plans sampled per iteration; with decay, in the first iteration."""
    elites: int = 50
    """Best plans of an iteration, which set the mean and the standard deviation of the next."""
    iterations: int = 10
    """Iterations per step."""
    exponent: float = 0.25
    """Colour of the noise: its power falls with frequency as f^-exponent."""
    keep_fraction: float = 0.3
    """Fraction of the elites that is added to the samples of the next iteration and, shifted, of the next step."""
    initial_std: float = 0.5
    """Standard deviation of the controls in the first iteration of each step."""
    momentum: float = 0.1
    """Weight of the old mean and standard deviation in the update after each iteration."""
    decay: float = 1.0
    """Factor by which the number of samples shrinks from one iteration to the next; at least twice the elites are sampled."""
    aggregate: Literal["sum", "best"] = "sum"
    """Value of a plan: the sum of its rewards, or its largest reward, for each particle; then the mean over particles."""
    use_mean: bool = True
    """Also evaluate the mean itself, in the last iteration."""
    hold: int = 1
    """Steps for which the noise of a sampled plan stays as it is. Plans of controls that are held are fewer numbers to search
    for, and go further from the last plan: for long horizons, and where a single step has little effect."""
    replan_every: int = 1
    """Steps of a plan that are carried out before the next search, which leaves more computation for each search; disturbances
    and errors of the model are seen as late. With a budget or rate every step is planned, since the time for it is there."""

    def __post_init__(self):
        """Reject settings that cannot work."""
        positive(
            "solver",
            horizon=self.horizon,
            samples=self.samples,
            elites=self.elites,
            iterations=self.iterations,
            initial_std=self.initial_std,
        )
        for name, steps in (("hold", self.hold), ("replan_every", self.replan_every)):
            if not 1 <= steps <= self.horizon:
                raise SondeError(f"solver: {name} must lie in [1, horizon], and the horizon is {self.horizon}; got {steps}")
        one_of("solver aggregate", self.aggregate, ("sum", "best"))
        if self.elites > self.samples:
            raise SondeError(f"solver: elites must not exceed samples, got {self.elites} and {self.samples}")
        if not 0 <= self.keep_fraction <= 1:
            raise SondeError(f"solver: keep_fraction must lie in [0, 1], got {self.keep_fraction}")
        if not 0 <= self.momentum < 1:
            raise SondeError(f"solver: momentum must lie in [0, 1), got {self.momentum}")
        if not 1 <= self.decay <= 100:
            raise SondeError(f"solver: decay must lie in [1 (none), 100], got {self.decay}")
        if not 0 <= self.exponent < float("inf"):
            raise SondeError(f"solver: exponent must be 0 (white) or above and finite, got {self.exponent}")

    @property
    def kept_elites(self) -> int:
        """Number of elites that are passed on."""
        return round(self.keep_fraction * self.elites)

    def sample_counts(self) -> list[int]:
        """Number of plans sampled in each iteration."""
        least = min(2 * self.elites, self.samples)
        return [max(int(self.samples / self.decay**i), least) for i in range(self.iterations)]

    def iteration_sizes(self, share: float = 1.0) -> tuple[int, ...]:
        """Number of plans sampled in each iteration, times `share`, but at least twice the elites."""
        least = min(2 * self.elites, self.samples)
        return tuple(max(int(share * count), least) for count in self.sample_counts())

    def initial_state(self, problem: ControlProblem) -> ICEMState:
        """A mean of zeros, and no elites from before (NaN, which is never chosen)."""
        mean = jnp.zeros((self.horizon, problem.control_dim))
        carried = CarriedPlan(mean, jnp.asarray(0, jnp.int32)) if self.replan_every > 1 else None
        return ICEMState(mean, jnp.full((self.kept_elites, *mean.shape), jnp.nan, mean.dtype), carried)

    def due(self, state: ICEMState) -> Bool[Array, "*copies"] | None:
        """Where no step of the last plan is left."""
        return None if state.carried is None else state.carried.left == 0

    def follow(self, state: ICEMState) -> tuple[Float[Array, "H dc"], ICEMState]:
        """Carry the last plan on."""
        carried = state.carried
        assert carried is not None
        left = CarriedPlan(_shifted(carried.plan), carried.left - 1)
        return carried.plan, ICEMState(_shifted(state.mean), _shifted(state.kept), left)

    def plan(
        self, problem: ControlProblem, state: ICEMState, x: Float[Array, " dx"], key: Key[Array, ""]
    ) -> tuple[Float[Array, "H dc"], ICEMState]:
        """Search where a new plan is due, and carry on the last one otherwise."""
        search, due = super().plan, self.due(state)
        if due is None:
            return search(problem, state, x, key)

        def new() -> tuple[Float[Array, "H dc"], ICEMState]:
            plan, after = search(problem, state, x, key)
            left = jnp.asarray(self.replan_every - 1, jnp.int32)
            return plan, ICEMState(after.mean, after.kept, CarriedPlan(_shifted(plan), left))

        # in lockstep all copies are at the same step, whose number has no batch axis, so that only one branch is computed
        return jax.lax.cond(due, new, lambda: self.follow(state))

    def begin(self, problem: ControlProblem, state: ICEMState) -> ICEMSearch:
        """Start at the mean of the previous step, with the standard deviation reset."""
        no_value = jnp.asarray(-jnp.inf, jnp.float32)
        std = jnp.full_like(state.mean, self.initial_std)
        violation = -no_value if problem.safety is not None else jnp.zeros_like(no_value)
        return ICEMSearch(state.mean, std, state.kept, state.mean, no_value, violation)

    def improve(
        self,
        problem: ControlProblem,
        search: ICEMSearch,
        x: Float[Array, " dx"],
        key: Key[Array, ""],
        iteration: Int[Array, ""],
        last: Bool[Array, ""],
        size: int,
    ) -> ICEMSearch:
        """Run one iteration with `size` samples."""
        over_steps = jnp.sum if self.aggregate == "sum" else jnp.max
        noise_key, draws_key = jax.random.split(jax.random.fold_in(key, iteration))
        horizon, controls = search.mean.shape
        noise = coloured_noise(noise_key, size, -(-horizon // self.hold), controls, self.exponent)
        if self.hold > 1:
            noise = jnp.repeat(noise, self.hold, axis=1)[:, :horizon]
        sampled = jnp.clip(search.mean + search.std * noise, -1.0, 1.0)
        if self.use_mean:  # in the last iteration it replaces one sample
            sampled = sampled.at[0].set(jnp.where(last, search.mean, sampled[0]))
        plans = jnp.concatenate([sampled, search.kept])
        # over the steps first: the largest reward of a plan comes at another step for each particle
        values = jnp.mean(over_steps(problem.rewards(x, plans, draws_key), axis=-1), axis=-1)
        # a plan of NaN may have a finite value: a reward that compares numbers treats NaN as false
        usable = jnp.isfinite(values) & jnp.all(jnp.isfinite(plans), axis=(1, 2))
        # ranked in single precision, where nearly equal values are ties and keep their order: the last digits of a double
        # depend on the number of seeds in lockstep, and must not decide
        ranks = jnp.where(usable, values, -jnp.inf).astype(jnp.float32)
        top, violations = self._elites_of(problem, x, plans, ranks, draws_key)
        elite, top_values = plans[top], ranks[top]
        as_safe = violations[0] == search.best_violation
        better = (violations[0] < search.best_violation) | (as_safe & (top_values[0] > search.best_value))
        after = ICEMSearch(
            mean=self.momentum * search.mean + (1 - self.momentum) * jnp.mean(elite, axis=0),
            std=self.momentum * search.std + (1 - self.momentum) * jnp.std(elite, axis=0),
            kept=elite[: self.kept_elites],
            best=jnp.where(better, elite[0], search.best),
            best_value=jnp.where(better, top_values[0], search.best_value),
            best_violation=jnp.where(better, violations[0], search.best_violation),
        )
        if problem.safety is None:
            return after
        others = tuple(column[: FINALISTS - 1] for column in (elite, top_values, violations))
        return jax.lax.cond(last, lambda: _best_of(problem, x, after, others), lambda: after)

    def _elites_of(
        self,
        problem: ControlProblem,
        x: Float[Array, " dx"],
        plans: Float[Array, "P H dc"],
        ranks: Float32[Array, " P"],
        key: Key[Array, ""],
    ) -> tuple[Int[Array, " elites"], Float32[Array, " elites"]]:
        """The best plans, and how far they violate the constraints: admissible ones by value, then others by violation."""
        if problem.safety is None:
            return jax.lax.top_k(ranks, self.elites)[1], jnp.zeros(self.elites, jnp.float32)
        corners = problem.random_corners(len(plans), jax.random.fold_in(key, 1))
        size = max(self.elites, len(plans) // SCREENED)
        screen = lambda check: functools.partial(check, problem, x, size)
        pool, violations = by_platform(plans, ranks, corners, cpu=screen(_in_turn), default=screen(_at_once))
        top = _order(ranks[pool], violations)[: self.elites]
        return pool[top], violations[top]

    def finish(self, search: ICEMSearch) -> tuple[Float[Array, "H dc"], ICEMState]:
        """Return the best plan, and the shifted mean and elites for the next step."""
        return search.best, ICEMState(_shifted(search.mean), _shifted(search.kept))


def _shifted(plan: Float[Array, "*plans H dc"]) -> Float[Array, "*plans H dc"]:
    """Plans for the next step; their last step is repeated."""
    return jnp.concatenate([plan[..., 1:, :], plan[..., -1:, :]], axis=-2)


def _order(ranks: Float32[Array, " P"], violations: Float32[Array, " P"]) -> Int[Array, " P"]:
    """Admissible plans by value, then the others by violation."""
    return jnp.lexsort((-ranks, violations))


def _violations(problem: ControlProblem, x: Array, plans: Array, ranks: Array, corners: Array) -> Float32[Array, " P"]:
    """How far plans violate the constraints at these corners; infinity for those without a value."""
    found = problem.violations(x, plans, corners)
    return jnp.where(jnp.isfinite(ranks), found, jnp.inf).astype(jnp.float32)


def _in_turn(problem: ControlProblem, x: Array, size: int, plans: Array, ranks: Array, corners: Array) -> tuple[Array, Array]:
    """The plans that are best at some corners, and how far they violate the constraints there and at the opposite ones."""
    first = _violations(problem, x, plans, ranks, corners)
    pool = _order(ranks, first)[:size]
    return pool, jnp.maximum(first[pool], _violations(problem, x, plans[pool], ranks[pool], -corners[pool]))


def _at_once(problem: ControlProblem, x: Array, size: int, plans: Array, ranks: Array, corners: Array) -> tuple[Array, Array]:
    """The same for accelerators, which check all plans at both corners sooner than one after the other."""
    check = lambda corners: _violations(problem, x, plans, ranks, corners)
    first, second = jax.vmap(check)(jnp.stack([corners, -corners]))
    pool = _order(ranks, first)[:size]
    return pool, jnp.maximum(first[pool], second[pool])


def _best_of(problem: ControlProblem, x: Float[Array, " dx"], search: ICEMSearch, others: tuple[Array, ...]) -> ICEMSearch:
    """The search with the best of the finalists by a thorough check: its best plan so far, and others of its last iteration."""
    best = search.best, search.best_value, search.best_violation
    plans, values, violations = (jnp.concatenate([one[None], some]) for one, some in zip(best, others, strict=True))
    found = jax.vmap(lambda plan: problem.worst_violation(x, plan))(plans)
    thorough = jnp.maximum(violations, found.astype(jnp.float32))
    first = jnp.lexsort((-values, thorough))[0]
    return replace(search, best=plans[first], best_value=values[first], best_violation=thorough[first])
