"""Algorithm 1 of the paper.

explorer = Explorer("opax", GaussianProcess(), ICEM(), state_dim=3, action_dim=1, capacity=1000)
for episode in range(10):
    policy = explorer.ask()                       # prepare policy: argmax over policies and eta
    trajectory = rollout(world, policy, 100)      # collect measurements; on a real robot, that is your part
    explorer.tell(trajectory)                     # update model
"""

from collections.abc import Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from sonde._internal.errors import SondeError, positive
from sonde._internal.lockstep import lockstep
from sonde._internal.precision import double_precision
from sonde._internal.randomness import round_keys, for_purpose
from sonde.control._controller import Controller
from sonde.control._deadline import seconds_per_action
from sonde.data import Data, Trajectory
from sonde.methods import check_solver, method_named
from sonde.models._base import Prediction, Model, Posterior
from sonde.models._beta import Confidence
from sonde.models._calibration import Calibrated, Calibration, Confident, calibrate, check_calibration
from sonde.solvers._base import ControlProblem, Solver
from sonde.solvers._policy import RandomPolicy
from sonde.solvers._solve import solve
from sonde.worlds._task import RewardFunction


@eqx.filter_jit
def _init(model: Model, state_dim: int, action_dim: int, keys):
    return jax.vmap(lambda key: model.init(state_dim, action_dim, key))(keys)


@eqx.filter_jit
def _append(data: Data, states, actions, next_states) -> Data:
    return jax.vmap(Data.append)(data, states, actions, next_states)


@eqx.filter_jit
def _fit(model: Model, params: Any, data: Data, filled, keys, holdout: float):
    fit = lambda params, data, key: model.fit(params, data.without(holdout), filled, key)
    return lockstep(fit)(params, data, keys)


def _with_and_without(model: Model, params: Any, data: Data, holdout: float) -> tuple[Posterior, Posterior]:
    """What is predicted after all measurements, and after those that are not held out."""
    if holdout == 0:
        posterior = model.condition(params, data)
        return posterior, posterior
    seen = lambda hidden: lambda: model.condition(params, data.without(hidden))
    # strictly one after the other: side by side, their batched decompositions can wait for each other forever on few cores
    both = jax.lax.map(lambda every: jax.lax.cond(every, seen(0.0), seen(holdout)), jnp.array([True, False]))
    return jax.tree.map(lambda leaf: leaf[0], both), jax.tree.map(lambda leaf: leaf[1], both)


@eqx.filter_jit
def _condition(
    model: Model, params: Any, data: Data, recalibrate: bool, holdout: float, confidence: Confidence
) -> tuple[Posterior, Calibration | None]:
    def one_seed(params: Any, data: Data) -> tuple[Posterior, Calibration | None]:
        plain, unseen = _with_and_without(model, params, data, holdout)
        posterior, calibration = plain, None
        if holdout > 0:
            calibration = calibrate(unseen, data, data.held_out(holdout))
            if recalibrate:
                posterior, unseen = (Calibrated(each, calibration.factors) for each in (plain, unseen))
        if confidence.kind != "constant":
            posterior = Confident(posterior, confidence.beta(plain, unseen, data, holdout))
        return posterior, calibration

    return lockstep(one_seed)(params, data)


@jax.jit
def _all_finite(tree: Any):
    # on the device: a posterior of many runs is large, and its way to the host long
    return jnp.all(jnp.stack([jnp.asarray(True), *(jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree))]))


@eqx.filter_jit
def _predict(posterior: Posterior, x, u) -> Prediction:
    return jax.vmap(lambda p, x, u: p.predict(x, u))(posterior, x, u)


class Explorer:
    """Learns a system by asking for experiments and being told their outcome; S runs (seeds) advance in lockstep.

    What changes during a run is `data`, `params` and `episode`, and nothing else; `posterior` and `calibration` follow.
    """

    data: Data
    params: Any
    posterior: Posterior
    calibration: Calibration | None
    """How the model's intervals did on the measurements that were held out; None if there are none."""
    existing: int
    """Measurements per run that it started from; they come first in `data`."""

    @double_precision
    def __init__(
        self,
        method: str,
        model: Model,
        solver: Solver,
        *,
        state_dim: int,
        action_dim: int,
        capacity: int,
        seeds: Sequence[int] = (0,),
        beta: float = 2.0,
        confidence: Literal["constant", "rkhs", "calibrated"] = "constant",
        delta: float = 0.1,
        norm_bound: float | None = None,
        particles: int = 10,
        imagine_noise: bool = False,
        holdout: float = 0.0,
        recalibrate: bool = False,
        reward: RewardFunction | None = None,
    ):
        """`method` is a name of `METHODS`; `capacity` is the number of transitions a run may collect.

        `beta` is the width of the confidence region, unless `confidence`, with `delta` and `norm_bound`, has a rule for it;
        `particles` and `imagine_noise` say how draws enters a plan; `holdout` is
        the fraction of the measurements that fits do not see, by which the model is judged and, if `calibrated`, recalibrated;
        `reward` is what a method that explores for one task (h-ucrl) maximises.
        """
        positive("explorer", state_dim=state_dim, action_dim=action_dim, capacity=capacity, particles=particles)
        if len(seeds) == 0 or len(set(seeds)) != len(seeds):
            raise SondeError(f"explorer: seeds must be at least one and all different, got {list(seeds)}")
        check_calibration("explorer", holdout, recalibrate)
        self.method = method_named(method, None if reward is None else "reward", model)
        check_solver(self.method, solver)
        self.model, self.solver, self.seeds = model, solver, tuple(seeds)
        self.state_dim, self.action_dim, self.capacity = state_dim, action_dim, capacity
        self.round, self.existing = 0, 0
        self._confidence = Confidence(confidence, float(beta), float(delta), norm_bound)
        self._confidence.check("explorer", model, holdout, recalibrate, capacity)
        if self.method.imagination is not None:
            self._imagination = self.method.imagination(beta=beta, noise=imagine_noise)
            self._objective = self.method.build_objective(reward)
        # plain Python values: those of numpy would not be static for the compiler
        self._particles, self._holdout, self._calibrated = particles, float(holdout), bool(recalibrate)
        keys = for_purpose(round_keys(self.seeds, 0), "init")
        self._set_state(self._empty(), _init(model, state_dim, action_dim, keys), 0)

    @property
    def num_seeds(self) -> int:
        """How many runs are in lockstep."""
        return len(self.seeds)

    @property
    def transitions(self) -> int:
        """Measurements per run so far."""
        return int(self.data.count[0])

    @double_precision
    def keys(self) -> Key[Array, " seeds"]:
        """The keys of the current episode, one per run."""
        return round_keys(self.seeds, self.round)

    @double_precision
    def ask(self, budget: float | None = None, rate: float | int | None = None) -> Controller:
        """The policy for the next experiment; with a `budget`, it takes at most so many seconds per action.

        With a `rate` in Hz it takes at most nine tenths of each period, and leaves the rest to the caller.
        """
        budget = seconds_per_action(budget, rate)
        if self.method.imagination is None:
            policy = RandomPolicy(self.action_dim)
        else:
            problem = ControlProblem(
                self.posterior,
                self._imagination,
                self._objective,
                self.state_dim,
                self.action_dim,
                self._particles,
                self.model.ensemble_size,
            )
            policy = solve(self.solver, problem, self.data, for_purpose(self.keys(), "solve"))
        return Controller(policy, self.keys(), self.state_dim, budget)

    @double_precision
    def predict(self, x: np.ndarray, u: np.ndarray) -> Prediction:
        """What is predicted of the next state: for states [S, dx] (or [dx] with a single run) and actions, as numpy arrays."""
        x, u = np.asarray(x, dtype=np.float64), np.asarray(u, dtype=np.float64)
        single = x.ndim == 1 and self.num_seeds == 1
        x, u = (x[None], u[None]) if single else (x, u)
        if x.shape != (self.num_seeds, self.state_dim) or u.shape != (self.num_seeds, self.action_dim):
            raise SondeError(
                f"explorer: expected states [{self.num_seeds}, {self.state_dim}] and actions [{self.num_seeds}, {self.action_dim}], "
                f"got {list(x.shape)} and {list(u.shape)}"
            )
        prediction = _predict(self.posterior, jnp.asarray(x), jnp.asarray(u))
        return jax.tree.map(lambda leaf: np.asarray(leaf)[0] if single else np.asarray(leaf), prediction)

    @double_precision
    def tell(self, trajectory: Trajectory) -> None:
        """Learn from what was measured. A trajectory that cannot be used is refused and changes nothing."""
        data = self._with(self.data, trajectory)
        filled, keys = jnp.max(data.count), for_purpose(self.keys(), "fit")
        params = _fit(self.model, self.params, data, filled, keys, self._holdout)
        self._set_state(data, params, self.round + 1)

    @double_precision
    def start_from(self, measurements: Trajectory) -> None:
        """Learn from measurements that exist already, before the first episode; all runs start from the same ones."""
        if self.transitions:
            raise SondeError("explorer: existing measurements come first, before any episode is told")
        data = self._with(self.data, self._for_all_seeds(measurements))
        keys = for_purpose(self.keys(), "fit/existing")
        params = _fit(self.model, self.params, data, jnp.max(data.count), keys, self._holdout)
        self._set_state(data, params, 0)
        self.existing = self.transitions

    def _for_all_seeds(self, measurements: Trajectory) -> Trajectory:
        checked = measurements.checked(1, self.state_dim, self.action_dim)
        repeat = lambda array: np.broadcast_to(array, (self.num_seeds, *array.shape[1:]))
        return Trajectory(repeat(checked.states), repeat(checked.actions), repeat(checked.next_states))

    @double_precision
    def restore(self, trajectories: Sequence[Trajectory], params: Any, existing: Trajectory | None = None) -> None:
        """Continue a saved run: its measurements, one trajectory per episode, and the params after the last of them.

        `existing` are those that the run started from.
        """
        data = self._empty()
        if existing is not None:
            data = self._with(data, self._for_all_seeds(existing))
        count = int(data.count[0])
        for trajectory in trajectories:
            data = self._with(data, trajectory)
        self._set_state(data, jax.tree.map(jnp.asarray, params), len(trajectories))
        self.existing = count

    def _empty(self) -> Data:
        empty = Data.empty(self.capacity, self.state_dim, self.action_dim)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.num_seeds, *leaf.shape)), empty)

    def _with(self, data: Data, trajectory: Trajectory) -> Data:
        checked = trajectory.checked(self.num_seeds, self.state_dim, self.action_dim)
        taken, steps = int(data.count[0]), checked.states.shape[1]
        if taken + steps > self.capacity:
            raise SondeError(
                f"explorer: {taken} of {self.capacity} transitions are taken and {steps} more do not fit; "
                "give the explorer a larger capacity"
            )
        return _append(data, *(jnp.asarray(array) for array in (checked.states, checked.actions, checked.next_states)))

    def _set_state(self, data: Data, params: Any, round_number: int) -> None:
        posterior, calibration = _condition(self.model, params, data, self._calibrated, self._holdout, self._confidence)
        if not _all_finite(posterior):
            raise SondeError(
                "explorer: the posterior is not finite after conditioning on the data; "
                "look for extreme values in the measurements, raise the model's noise_floor, or lower its learning_rate"
            )
        posterior = posterior.specialise()
        self.data, self.params, self.posterior, self.calibration, self.round = (
            data,
            params,
            posterior,
            calibration,
            round_number,
        )
