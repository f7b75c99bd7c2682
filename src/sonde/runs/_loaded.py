"""A run on disk as an object: its data, metrics, config and model, each read when it is first asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import jax
import numpy as np

from sonde._internal.errors import SondeError
from sonde._internal.lockstep import one_seed
from sonde.analysis import LearnedSystem, Linearisation
from sonde.control import Controller
from sonde.data import SystemSpec, Trajectory
from sonde.explorer import Explorer
from sonde.models import Posterior, Prediction
from sonde.runs._analysis import learned_system
from sonde.runs._callbacks import Row
from sonde.runs._config import RunConfig
from sonde.runs._export import Measured, gathered
from sonde.runs._folder import RunFolder
from sonde.runs._judgement import Judgement, judgement_of
from sonde.runs._run import restore_explorer
from sonde.runs._simulation import COVERAGE, PARTICLES, Simulation, predicted, simulated
from sonde.runs._solving import AnyTask, controller_for, setup_of
from sonde.runs._store import RunStore
from sonde.solvers import Solver


def load(folder: str | Path, allow_code: bool = False) -> "Run":
    """Load a run from its folder; nothing is computed yet.

    Args:
        folder: Folder of the run.
        allow_code: Whether code that its config names may run, even if the user never allowed it before. Measurements and
            metrics never need it.

    Returns:
        The run as it is now, after its last finished round; `Run.at` goes back to an earlier one.
    """
    found = RunFolder.open(Path(folder))
    return Run(found, max(found.checkpoints(), default=0), allow_code)


@dataclass(frozen=True)
class RunData:
    """All that a run has measured."""

    spec: SystemSpec
    """Names of states and actions."""
    seeds: tuple[int, ...]
    """The seeds, in the order of the leading axis of rounds."""
    rounds: tuple[Trajectory, ...]
    """The measurements of each finished round [S, T, ...]."""
    initial: Trajectory | None
    """The measurements that the run started from [N, ...], if any."""

    def transitions(self, seed: int | None = None) -> Measured:
        """All transitions of one seed as plain arrays [N, ...], those that the run started from first.

        Args:
            seed: The seed; by default the first.

        Returns:
            States, actions, next states, where the system ended an episode, and where an episode ended for any reason.
        """
        if seed is not None and seed not in self.seeds:
            raise SondeError(f"the run has no seed {seed}; it has {', '.join(map(str, self.seeds))}")
        return gathered(self.rounds, self.initial, 0 if seed is None else self.seeds.index(seed))


class Run:
    """A run on disk, as it was after a round. What is asked for is read then, and kept."""

    round: int
    """The round: its model, measurements and metrics are those after this one; 0 before any."""

    def __init__(self, folder: RunFolder, round_number: int, allow_code: bool = False):
        """Use `sonde.load`.

        Args:
            folder: The folder.
            round_number: The round.
            allow_code: Whether code that the config names may run.
        """
        self._read, self.round, self._allow_code = folder, round_number, allow_code

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, round {self.round} of {self._read.entries.get('rounds')}, seeds {list(self.seeds)})"

    @property
    def folder(self) -> Path:
        """Its folder."""
        return self._read.folder

    @property
    def seeds(self) -> tuple[int, ...]:
        """Its seeds."""
        return self._read.seeds

    # What needs no code of the run

    @property
    def rounds(self) -> tuple[int, ...]:
        """Rounds whose models are kept, oldest first: `at` goes back to them. 0 is what was fitted to initial data."""
        return tuple(self._read.checkpoints())

    @property
    def metrics(self) -> list[Row]:
        """The metrics of all rounds, one row per round and seed."""
        return self._metrics

    @cached_property
    def _metrics(self) -> list[Row]:
        return [row for row in self._read.load_metrics() if row["round"] <= self.round]

    def columns(self) -> dict[str, np.ndarray]:
        """The metrics as arrays.

        Returns:
            `round` [R], and each metric by its key [S, R]; NaN where a round has no number for it.
        """
        rounds = sorted({row["round"] for row in self.metrics})
        keys = dict.fromkeys(key for row in self.metrics for key in row if key not in ("seed", "round", "stopped"))
        found = {key: np.full((len(self.seeds), len(rounds)), np.nan) for key in keys}
        for row in self.metrics:
            if row["seed"] not in self.seeds:
                raise SondeError(f"{self._read.metrics_path}: expected the seeds {list(self.seeds)}, got {row['seed']}")
            place = self.seeds.index(row["seed"]), rounds.index(row["round"])
            for key in keys:
                if isinstance(value := row.get(key), int | float):
                    found[key][place] = value
        return {"round": np.array(rounds, int), **found}

    @property
    def data(self) -> RunData:
        """All that it has measured, checked against its checkpoints."""
        return self._data

    @cached_property
    def _data(self) -> RunData:
        read = self._read
        rounds = tuple(read.load_finished()[: self.round])
        return RunData(read.spec, read.seeds, rounds, read.load_initial_data())

    @property
    def judgement(self) -> Judgement | None:
        """How well its model predicted held-out measurements; None for runs that `fit` did not make."""
        return judgement_of(self.folder)

    # What does

    @cached_property
    def _store(self) -> RunStore:
        return RunStore.open(self.folder, self._allow_code)

    @property
    def config(self) -> RunConfig:
        """Its config, with all parts that it names."""
        return self._store.config

    @property
    def explorer(self) -> Explorer:
        """The explorer after the round, which holds what was learned."""
        return self._explorer

    @cached_property
    def _explorer(self) -> Explorer:
        if not self.round and not self.rounds and self._read.load_initial_data() is None:
            raise SondeError(f"{self.folder} has no finished round yet: run 'sonde resume {self.folder}' first")
        if self.round and self.round not in self.rounds:
            raise SondeError(f"{self.folder} went on since it was loaded: load it again")
        return restore_explorer(self._store, self.round)

    def at(self, round_number: int) -> "Run":
        """The same run with the model of an earlier round.

        Args:
            round_number: One of `rounds`.
        """
        if round_number not in self.rounds:
            kept = ", ".join(map(str, self.rounds)) or "none"
            raise SondeError(
                f"{self.folder} does not keep the model of round {round_number}; it keeps those of round {kept} ('sonde resume "
                "DIR --from-round' explores again from a round)"
            )
        return Run(self._read, round_number, self._allow_code)

    def _posterior(self, seed: int | None) -> Posterior:
        return one_seed(self.explorer.posterior, self._read.seed_index(seed))

    def predict(self, x: np.ndarray, u: np.ndarray, seed: int | None = None) -> Prediction:
        """Predict the next states of any number of points.

        Args:
            x: States [N, dx], or one state [dx].
            u: Actions [N, du] or [du]; where the past belongs to the state, it comes first (`SystemSpec.input_names`).
            seed: The seed whose model predicts; by default the first.

        Returns:
            A prediction of numpy arrays [N, ...], or without that axis: mean, epistemic and aleatoric std in state units.
        """
        spec = self.explorer.spec
        states, inputs = _numbers("x", x, (spec.state_dim,)), _numbers("u", u, (spec.input_dim,))
        if states.ndim > 2 or states.shape[:-1] != inputs.shape[:-1]:
            expected = f"x [N, {spec.state_dim}] and u [N, {spec.input_dim}] ({', '.join(spec.input_names)})"
            raise SondeError(f"predict: expected {expected}, got {list(states.shape)} and {list(inputs.shape)}")
        found = predicted(self._posterior(seed), np.atleast_2d(states), np.atleast_2d(inputs))
        return jax.tree.map(lambda leaf: leaf[0], found) if states.ndim == 1 else found

    def simulate(
        self,
        x0: np.ndarray,
        actions: np.ndarray,
        *,
        past: np.ndarray | None = None,
        seed: int | None = None,
        particles: int = PARTICLES,
        coverage: float = COVERAGE,
    ) -> Simulation:
        """Simulate what actions would do, with bands.

        Each particle is a plausible system: a member of an ensemble, or a Gaussian process that errs alike at all steps. The
        randomness is always the same.

        Args:
            x0: State before the first step [dx], or N of them [N, dx].
            actions: Actions of each step [T, du], or of N trajectories [N, T, du].
            past: What came before the first step [p] or [N, p], where the past belongs to the state; by default nothing: the
                system rested.
            seed: The seed whose model is simulated; by default the first.
            particles: Plausible trajectories from each start.
            coverage: Share of them that the bands contain.

        Returns:
            States after each step [T, dx] or [N, T, dx].
        """
        spec = self.explorer.spec
        starts, own = _numbers("x0", x0, (spec.state_dim,)), _numbers("actions", actions, (None, spec.action_dim))
        size = spec.input_dim - spec.action_dim
        before = np.zeros((*starts.shape[:-1], size)) if past is None else _numbers("past", past, (size,))
        if starts.ndim > 2 or not starts.shape[:-1] == own.shape[:-2] == before.shape[:-1] or own.shape[-2] == 0:
            expected = f"x0 [N, {spec.state_dim}], actions [N, T, {spec.action_dim}]" + (f", past [N, {size}]" if size else "")
            shapes = ", ".join(str(list(array.shape)) for array in ((starts, own, before) if size else (starts, own)))
            raise SondeError(f"simulate: expected {expected}, all with or without N; got {shapes}")
        repeated = np.broadcast_to(before[..., None, :], (*own.shape[:-1], size))
        inputs = np.concatenate([repeated, own], axis=-1)
        single = starts.ndim == 1
        given = (starts[None], inputs[None]) if single else (starts, inputs)
        found = simulated(self._posterior(seed), *given, spec.past, particles, coverage)
        if not single:
            return found
        return Simulation(found.mean[0], found.low[0], found.high[0], coverage)

    def system(self, seed: int | None = None, refit: bool = False) -> LearnedSystem:
        """The learned system, to be studied: equilibria, linearisations, sensitivity.

        Args:
            seed: The seed; by default the first.
            refit: Fit the hyper-parameters of a Gaussian process once more, to all measurements and under a wider prior.
        """
        return learned_system(self.explorer, self.config.world, self._read.seed_index(seed), refit)

    def linear(
        self, state: np.ndarray, action: Sequence[float] | np.ndarray | None = None, seed: int | None = None
    ) -> Linearisation:
        """The learned system near a point: q' = A q + B u, with stds.

        Args:
            state: State [dx].
            action: Action [du]; by default zeros.
            seed: The seed; by default the first.
        """
        return self.system(seed).linearise(state, action)

    def solve(
        self,
        task: AnyTask,
        solver: Solver | None = None,
        *,
        goal: np.ndarray | None = None,
        budget: float | None = None,
        rate: float | int | None = None,
    ) -> Controller:
        """Make a controller for a task from what was learned.

        A policy that needs no planner (solver `SAC`), of the newest round, is also saved in the folder, to be deployed.

        Args:
            task: A task of the world by name, FILE.py:NAME, a reward(x, u, x_next), a `Task` or a `GoalTask`.
            solver: What plans it, or trains a policy for it, such as `SAC()`; by default as in the run.
            goal: The goal [dg] of a `GoalTask`.
            budget: Most seconds per action; by default as many as it needs.
            rate: The same as a rate in Hz.

        Returns:
            The controller, called with states. With one seed, a state [dx] gives an action [du].
        """
        setup = setup_of(self.config, task, solver)
        controller = controller_for(setup, self.explorer, goal, budget, rate)
        if self.round == max(self.rounds, default=0):
            self._store.save_policies({setup.name: controller.policy})
        return controller


def _numbers(name: str, values: np.ndarray, last: tuple[int | None, ...]) -> np.ndarray:
    """An array of finite numbers whose last axes are as long as said."""
    array = np.asarray(values, np.float64)
    fits = array.ndim >= len(last) and all(
        want in (None, have) for want, have in zip(last, array.shape[array.ndim - len(last) :], strict=True)
    )
    if not fits or not np.isfinite(array).all():
        shape = ", ".join("T" if size is None else str(size) for size in last)
        raise SondeError(f"{name}: expected finite numbers [..., {shape}], got shape {list(array.shape)}")
    return array
