"""Algorithm 1 of the OpAx paper (Sukhija et al. 2023).

explorer = Explorer(METHODS["opax"], GaussianProcess(), ICEM(), world.spec, capacity=1000)
for _ in range(10):
    policy = explorer.ask()                       # prepare policy: argmax over policies and eta
    trajectory = rollout(world, policy, 100)      # collect measurements; on a real robot you do this yourself
    explorer.tell(trajectory)                     # update model
"""

import contextlib
import functools
import itertools
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from sonde._internal.blocks import in_blocks
from sonde._internal.compilation import compiled_meanwhile
from sonde._internal.errors import SondeError, whole
from sonde._internal.precision import double_precision
from sonde._internal.randomness import for_purpose, round_keys
from sonde.control import Controller
from sonde.control._deadline import seconds_per_action
from sonde.data import Data, SystemSpec, Trajectory
from sonde.data._initial import initial_inputs
from sonde.methods import Method
from sonde.models import Calibration, Confidence, Model, Posterior, Prediction
from sonde.models._drift import CHANGED, median_known_error
from sonde.models._programs import all_finite, condition_all, fit_program, init_all, predict_all
from sonde.solvers import CautiousPolicy, ControlProblem, RandomPolicy, Safety, Solver, solve
from sonde.solvers._round_problem import round_problem

NOTHING_KNOWN = (
    "constraints: before any measurement nothing is known, so no plan can be called safe: give initial data (--data FILE), a "
    "model that knows physics, or a cautious policy for the first round (--safety.start 0.1 for small random actions, brake, "
    "or FILE.py:FUNCTION, a feedback u = f(x))"
)


class Explorer:
    """Learns a system by asking for experiments and being told their outcome; S seeds advance in lockstep.

    What changes during a run is `data`, `forgotten`, `params` and `round`, and nothing else; `recent`, `posterior` and
    `calibration` follow from them.
    """

    data: Data
    """Measurements of all seeds, with a leading axis S; where the past belongs to the state, it is the first part of the
    actions (`SystemSpec.input_names`)."""
    recent: Data
    """Those of them that the model learns from: all, or those that are not `forgotten`, or the latest `window`."""
    forgotten: np.ndarray
    """How many measurements each seed forgot at an alarm [S] (`Confidence.forget_at_alarm`); they come first in `data`."""
    params: Any
    """The model's params, with a leading axis S."""
    posterior: Posterior
    """What has been learned, with a leading axis S."""
    calibration: Calibration | None
    """Coverage of the model's intervals on the held-out measurements; None if none are held out."""
    round: int
    """Number of rounds that were told."""
    initial: int
    """Number of initial measurements per seed; they come first in `data`."""
    safety: Safety | None
    """Constraints that every step must keep; None for none (`constrain`)."""

    @double_precision
    def __init__(
        self,
        method: Method,
        model: Model,
        solver: Solver,
        spec: SystemSpec,
        *,
        capacity: int,
        seeds: Sequence[int] = (0,),
        confidence: Confidence | None = None,
    ):
        """Start with no measurements.

        Args:
            method: How to explore, such as `METHODS["opax"]` or `Method(Optimistic(beta=2.0), InformationGain())`.
            model: What learns the system.
            solver: What plans on the model.
            spec: Names of states and actions (`World.spec`, or `SystemSpec.of_size(dx, du)`).
            capacity: Number of transitions that each seed may collect.
            seeds: Independent repetitions that advance in lockstep.
            confidence: Which measurements to learn from, which are held out, recalibration and the rule for beta.
        """
        whole("explorer", capacity=capacity)
        if len(seeds) == 0 or len(set(seeds)) != len(seeds):
            raise SondeError(f"explorer: seeds must be at least one and all different, got {list(seeds)}")
        if method.needs_task:
            raise SondeError(
                f"method {method.name!r} explores for one task: name it with --exploration-task "
                "(in Python: method.for_task(reward))"
            )
        self.confidence = confidence or Confidence()
        self.confidence.check(model, capacity)
        model.check_system(spec)
        method.check(model)
        solver.check(method.objective)
        model = model.for_system(spec)
        self.method, self.model, self.solver, self.spec = method, model, solver, spec
        self.seeds, self.capacity, self.initial, self.safety = tuple(seeds), capacity, 0, None
        self._fit_compiled = False
        self._warned: str | None = None  # Python's own filter forgets what it has shown whenever a library changes the filters
        self.round, self.forgotten = 0, np.zeros(len(seeds), int)
        self._set_state(self._empty(), self._new_params(), 0)

    def constrain(self, safety: Safety) -> "Explorer":
        """Keep constraints in all rounds from now on.

        Args:
            safety: The constraints, and how they are kept.

        Returns:
            The same explorer.
        """
        if self.method.objective is None:
            raise SondeError(f"method {self.method.name!r} does not plan, so it cannot keep constraints; use another method")
        self.solver.check_constraints()
        self.safety = safety
        return self

    @property
    def num_seeds(self) -> int:
        """Number of seeds S."""
        return len(self.seeds)

    @property
    def window(self) -> int | None:
        """How many of the latest measurements of each seed the model learns from; None for all."""
        return self.confidence.window

    @property
    def transitions(self) -> int:
        """Number of measurements per seed so far."""
        return int(self.data.count[0])

    @double_precision
    def keys(self) -> Key[Array, " seeds"]:
        """Keys of the current round, one per seed."""
        return round_keys(self.seeds, self.round)

    @double_precision
    def evaluation_keys(self) -> Key[Array, " seeds"]:
        """Keys of the starts and goals of evaluations, one per seed: the same in all rounds and for all methods."""
        return round_keys(self.seeds, 0)

    @double_precision
    def ask(self, budget: float | None = None, rate: float | int | None = None) -> Controller:
        """Plan the next round.

        Args:
            budget: Most seconds that the policy may take per action; by default as many as it needs.
            rate: The same as a rate in Hz: the policy takes at most nine tenths of each period.

        Returns:
            The policy to run, called with states.
        """
        budget = seconds_per_action(budget, rate)
        problem = self.problem()
        if problem is None:
            policy = RandomPolicy(self.spec.action_dim)
        elif self.safety is not None and not self.transitions and not self.model.informed:
            policy = self._cautious_policy(self.safety)
        else:
            purpose = "exploration_policy" if self.transitions else "first_policy"
            policy = solve(self.solver, problem, self.recent, for_purpose(self.keys(), "solve"), purpose)
        return Controller(policy, self.keys(), self.spec.state_dim, budget, spec=self.spec)

    def _cautious_policy(self, safety: Safety) -> CautiousPolicy:
        """The policy of a first round without any knowledge."""
        if not safety.starts_cautiously:
            raise SondeError(NOTHING_KNOWN)
        return CautiousPolicy(self.spec.state_dim, self.spec.action_dim, safety.amplitude or 0.0, safety.start_feedback)

    @double_precision
    def problem(self) -> ControlProblem | None:
        """The control problem of the next round, which depends on data, posterior and round only.

        Returns:
            The problem, with a leading axis S on its arrays; None if the method acts at random.
        """
        imagination, objective = self.method.imagination, self.method.objective
        if imagination is None or objective is None:
            return None
        posterior = self.posterior if self.safety is None else self.safety.searchable(self.posterior)
        sizes = self.spec.state_dim, self.spec.action_dim
        problem = ControlProblem(posterior, imagination, objective, *sizes, safety=self.safety, past=self.spec.past)
        return round_problem(problem, self.recent, self.keys(), self.round)

    @double_precision
    def predict(self, x: np.ndarray, u: np.ndarray) -> Prediction:
        """Predict next states.

        Args:
            x: States [S, dx], or N of them [S, N, dx]; [dx] with a single seed.
            u: Actions [S, du], or [S, N, du]; [du] with a single seed. Where the past belongs to the state, it comes first, as
                `Trajectory.with_past` puts it.

        Returns:
            A prediction of numpy arrays with the same leading axes.
        """
        x, u = np.asarray(x, dtype=np.float64), np.asarray(u, dtype=np.float64)
        single = x.ndim == 1 and self.num_seeds == 1
        x, u = (x[None], u[None]) if single else (x, u)
        points = x.shape[1:-1] if x.ndim == 3 and x.size else ()  # many states of each seed
        leading = self.num_seeds, *points
        expected = (*leading, self.spec.state_dim), (*leading, self.spec.input_dim)
        if (x.shape, u.shape) != expected:
            raise SondeError(
                f"explorer: expected states {list(expected[0])} and {'inputs (past, action)' if self.spec.past else 'actions'} "
                f"{list(expected[1])}, "
                f"got {list(x.shape)} and {list(u.shape)}"
            )
        prediction = predict_all(self.posterior, jnp.asarray(x), jnp.asarray(u))
        return jax.tree.map(lambda leaf: np.asarray(leaf)[0] if single else np.asarray(leaf), prediction)

    @double_precision
    def tell(self, trajectory: Trajectory) -> None:
        """Learn from the measurements of a round; measurements that cannot be used are rejected and change nothing.

        Args:
            trajectory: Measurements [S, T, ...], or [T, ...] with a single seed.
        """
        told = Told.of(self, trajectory)
        (params,) = fit_together([told])
        self._set_state(told.data, params, self.round + 1, told.forgotten)

    @double_precision
    def compiling_fit(self) -> contextlib.AbstractContextManager[None]:
        """Compile the first fit while a block runs, such as the rollout before it; later ones find it compiled.

        In a loop of your own::

            with explorer.compiling_fit():
                trajectory = rollout(world, policy, 100)
            explorer.tell(trajectory)
        """
        if self._fit_compiled:
            return contextlib.nullcontext()
        self._fit_compiled = True
        told = Told(self, self.data, for_purpose(self.keys(), "fit"), self.params, self.forgotten)
        return compiled_meanwhile(fit_program(self.model), *_fit_arguments([told]))

    @double_precision
    def start_from(self, measurements: Trajectory) -> None:
        """Learn from initial data, before the first round; all seeds start from the same measurements.

        Args:
            measurements: Transitions [N, ...].
        """
        if self.transitions:
            raise SondeError("explorer: give initial data before the first round is told")
        data = self._added(self.data, [self._for_all_seeds(measurements)])
        keys = for_purpose(self.keys(), "fit/existing")  # the name of the stream, which results depend on
        (params,) = fit_together([Told(self, data, keys, self.params, self.forgotten)])
        self._set_state(data, params, 0)
        self.initial = self.transitions

    def _for_all_seeds(self, measurements: Trajectory) -> Trajectory:
        checked = initial_inputs(measurements.checked(1, self.spec), self.spec)
        repeat = lambda array: np.broadcast_to(array, (self.num_seeds, *array.shape[1:]))
        return Trajectory(repeat(checked.states), repeat(checked.actions), repeat(checked.next_states))

    @double_precision
    def restore(
        self,
        trajectories: Sequence[Trajectory],
        params: Any,
        initial_data: Trajectory | None = None,
        forgotten: np.ndarray | None = None,
    ) -> None:
        """Continue a saved run.

        Args:
            trajectories: Its measurements, one trajectory per round.
            params: The params after the last round.
            initial_data: The measurements that the run started from, if any.
            forgotten: How many measurements each seed had forgotten at an alarm [S]; by default none.
        """
        data = self._empty()
        if initial_data is not None:
            data = self._added(data, [self._for_all_seeds(initial_data)])
        count = int(data.count[0])
        data = self._added(data, [self.inputs(trajectory) for trajectory in trajectories])
        forgotten = np.zeros(self.num_seeds, int) if forgotten is None else np.asarray(forgotten)
        known = int(data.count[0])
        if forgotten.shape != (self.num_seeds,) or not np.all((forgotten >= 0) & (forgotten <= known)):
            raise SondeError(
                f"explorer: forgotten must say for each of {self.num_seeds} seeds how many of its {known} measurements "
                f"no longer count, got {forgotten.tolist()}"
            )
        self._set_state(data, jax.tree.map(jnp.asarray, params), len(trajectories), forgotten)
        self.initial = count

    @double_precision
    def transferred(self, spec: SystemSpec, capacity: int | None = None) -> "Explorer":
        """Use what has been learned for a similar system, such as one with another number of objects (model relational).

        Args:
            spec: The other system.
            capacity: Number of transitions that each seed may collect there; by default as many as here.

        Returns:
            An explorer of that system that has no measurements yet and predicts as this one does. It has no constraints.
        """
        params = self.model.transferred(self.params, spec)
        room = self.capacity if capacity is None else capacity
        parts = self.method, self.model, self.solver, spec
        other = Explorer(*parts, capacity=room, seeds=self.seeds, confidence=self.confidence)
        other._set_state(other.data, params, 0)
        return other

    def _empty(self) -> Data:
        empty = Data.empty(self.capacity, self.spec.state_dim, self.spec.input_dim)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.num_seeds, *leaf.shape)), empty)

    def _new_params(self) -> Any:
        """Params of the model before any data."""
        return init_all(self.model, self.spec.state_dim, self.spec.input_dim, for_purpose(self.keys(), "init"))

    def inputs(self, trajectory: Trajectory) -> Trajectory:
        """Check measurements, and put the past before their actions if it belongs to the state.

        Args:
            trajectory: Measurements of a round [S, T, ...], or [T, ...] with a single seed.

        Returns:
            What the model is given [S, T, ...], named by `SystemSpec.input_names`.
        """
        return trajectory.checked(self.num_seeds, self.spec).with_past(self.spec.past)

    def _added(self, data: Data, checked: Sequence[Trajectory]) -> Data:
        if not checked:
            return data
        whole = checked[0].joined(*checked[1:])
        taken, steps = int(data.count[0]), whole.states.shape[1]
        if taken + steps > self.capacity:
            raise SondeError(
                f"explorer: {taken} of {self.capacity} transitions are taken and {steps} more do not fit; "
                "give the explorer a larger capacity"
            )
        return data.append(whole.states, whole.actions, whole.next_states)

    def _recent(self, data: Data, forgotten: np.ndarray) -> Data:
        kept = data.after(forgotten) if self.confidence.forget_at_alarm else data
        return kept if self.window is None else kept.latest(self.window)

    def _after_alarm(self, inputs: Trajectory) -> tuple[Any, np.ndarray]:
        """What the fit of a round starts from: params, and how many measurements are forgotten [S].

        Where the alarm of a change rings, they are those of a run that begins with this round.

        Args:
            inputs: The round, as the model is given it [S, T, ...].
        """
        if not self.confidence.forget_at_alarm or not self.transitions:
            return self.params, self.forgotten
        found = in_blocks(functools.partial(predict_all, self.posterior), inputs.states, inputs.actions)
        errors = np.abs(inputs.next_states - found.mean)
        rings = median_known_error(errors, found.epistemic_std, found.aleatoric_std) > CHANGED
        if not rings.any():
            return self.params, self.forgotten
        # in numpy: compiled code would be compiled when the alarm first rings
        start_over = lambda new, old: jnp.asarray(np.where(rings.reshape(-1, *[1] * (old.ndim - 1)), new, old))
        params = jax.tree.map(start_over, self._new_params(), self.params)
        return params, np.where(rings, self.transitions, self.forgotten)

    def _set_state(self, data: Data, params: Any, round_number: int, forgotten: np.ndarray | None = None) -> None:
        forgotten = self.forgotten if forgotten is None else forgotten
        recent = self._recent(data, forgotten)
        posterior, calibration = condition_all(self.model, params, recent, self.confidence)
        specialised = posterior.specialise()
        if not all_finite(specialised):
            raise SondeError(
                "explorer: the posterior is not finite after conditioning on the data; "
                "look for extreme values in the measurements, raise the model's noise_floor, or lower its learning_rate"
            )
        message = posterior.warning()
        if message is not None and message != self._warned:
            # not an error: the predictions are usable, and a long run should not end for them
            warnings.warn(message, stacklevel=4)  # at the line that called `tell`
        self._warned = message
        self.data, self.recent, self.params, self.round = data, recent, params, round_number
        self.forgotten = forgotten
        self.posterior, self.calibration = specialised, calibration


class Told(NamedTuple):
    """Measurements that an explorer was told and has not learned from yet; the explorer is as it was."""

    explorer: Explorer
    data: Data
    """All its measurements, with the new ones."""
    keys: Key[Array, " seeds"]
    """Randomness of the fit."""
    params: Any
    """What the fit starts from: the explorer's params, or new ones where the alarm of a change made a seed forget."""
    forgotten: np.ndarray
    """How many measurements each seed has forgotten [S]."""

    @property
    def recent(self) -> Data:
        """Those of the measurements that the model learns from."""
        return self.explorer._recent(self.data, self.forgotten)

    @property
    def filled(self) -> int:
        """Most measurements that a seed learns from; where it forgot some at an alarm, they count nevertheless.

        So what one seed learns does not depend on the alarms of others.
        """
        return self.explorer.confidence.in_window(int(self.data.count[0]))

    @classmethod
    @double_precision
    def of(cls, explorer: Explorer, trajectory: Trajectory) -> "Told":
        """Check the measurements of a round.

        Args:
            explorer: The explorer that is told.
            trajectory: As for `Explorer.tell`.
        """
        inputs = explorer.inputs(trajectory)
        data = explorer._added(explorer.data, [inputs])
        return cls(explorer, data, for_purpose(explorer.keys(), "fit"), *explorer._after_alarm(inputs))

    @double_precision
    def learn(self, params: Any) -> None:
        """Give the explorer what was fitted, after which it is as after `Explorer.tell`.

        Args:
            params: Params of its model after the fit.
        """
        self.explorer._set_state(self.data, params, self.explorer.round + 1, self.forgotten)

    @property
    def sizes(self) -> tuple[Any, ...]:
        """What decides by which program, and with how many gradient steps, these measurements are fitted."""
        data, confidence = self.recent, self.explorer.confidence
        shapes = data.states.shape[1:], data.actions.shape[1:], data.forgotten is None
        return self.explorer.model, confidence.holdout, *shapes, self.filled


@double_precision
def fit_together(told: Sequence[Told]) -> list[Any]:
    """Fit the models of several explorers in one compiled program, which an accelerator does faster than one after the other.

    Args:
        told: What each was told. They must have the same model, holdout, size of buffers, window and number of measurements;
            methods and solvers may differ.

    Returns:
        New params of each.
    """
    if any(each.sizes != told[0].sizes for each in told):
        raise SondeError("explorers that are fitted together need the same model, holdout, capacity, window and measurements")
    fitted = fit_program(told[0].explorer.model)(*_fit_arguments(told))
    if len(told) == 1:
        return [fitted]
    ends = list(itertools.accumulate(each.explorer.num_seeds for each in told))
    parts = [slice(start, end) for start, end in itertools.pairwise((0, *ends))]
    return [jax.tree.map(lambda leaf, part=part: leaf[part], fitted) for part in parts]


def _fit_arguments(told: Sequence[Told]) -> tuple[Any, ...]:
    """Arguments of the fit, with the seeds of all explorers along one axis."""
    trees = [(each.params, each.recent, each.keys) for each in told]
    params, data, keys = trees[0] if len(told) == 1 else jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trees)
    first = told[0].explorer
    filled = jnp.asarray(told[0].filled, data.count.dtype)
    return first.model, params, data, filled, keys, float(first.confidence.holdout)
