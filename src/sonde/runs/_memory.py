"""The memory that a run needs at its peak, computed from its config, and whether this machine has it.

A round goes through phases (fit, posterior, metrics, planning). What lasts through all of them is counted once, and beside it
the phase that needs most. `python -m benchmarks memory-check` compares the result with the memory of real runs.

Everything is whole numbers, so a config with absurd sizes is rejected like any other that does not fit.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from sonde._internal.errors import SondeError
from sonde._internal.lockstep import CHUNK_BYTES
from sonde._internal.machine import Memory, free_host_memory, free_memory
from sonde.evaluation._metrics import COMMON_RANK
from sonde.imagination import Imagination
from sonde.models import Auto
from sonde.models._base import ROWS
from sonde.models._beta import MAX_MEASUREMENTS, RKHSBeta
from sonde.models._calibration import calibration_bytes
from sonde.models._ensemble import Ensemble
from sonde.models._gaussian_process import GaussianProcess
from sonde.models._gp_posterior import low_rank_bytes
from sonde.models._known_physics import learner_of
from sonde.runs._config import RunConfig
from sonde.runs._theory_metrics import keeps_its_prior
from sonde.solvers import ICEM, SAC, Solver

DOUBLE, SINGLE = 8, 4
LARGEST_MACHINE = 2**60
REACHABLE = 2000  # points of a reachable set, about
PROGRAMS = 200_000_000  # compiled programs, and freed memory that the allocator keeps
DATA_COPIES = 4  # the buffers before and after a round, and inputs and targets in other units
IMAGINED = 3  # arrays [plans, particles, steps, dx] that live while plans are imagined
NETWORK_COPIES = 7  # of the weights of a network that is trained: optimiser, gradient, and the loop's own


class Part(NamedTuple):
    """Something that takes memory."""

    name: str
    """What it is, for the message."""
    bytes: int
    """How much it takes."""
    settings: str
    """The settings that it depends on most."""


@dataclass(frozen=True)
class MemoryNeed:
    """Peak memory of a run, beyond Python with JAX, and without simulators outside of JAX."""

    lasting: tuple[Part, ...]
    """What a run holds all the time."""
    phases: tuple[Part, ...]
    """What each phase holds beside it."""

    @property
    def bytes(self) -> int:
        """Bytes at the peak."""
        return sum(part.bytes for part in self.lasting) + max(part.bytes for part in self.phases)

    @property
    def largest(self) -> Part:
        """The part that takes most."""
        return max((*self.lasting, *self.phases), key=lambda part: part.bytes)


def memory_need(config: RunConfig, initial_rows: int = 0, accelerator: bool = False) -> MemoryNeed:
    """Compute the peak memory of a run.

    Args:
        config: The config of the run.
        initial_rows: Number of initial measurements.
        accelerator: Whether it runs on an accelerator, which computes more side by side than a CPU.
    """
    # known physics takes little beside what learns its errors
    config = replace(config, model=learner_of(config.model.for_system(config.spec)))
    sizes = _Sizes(config, config.data_capacity + initial_rows, accelerator)
    return MemoryNeed(tuple(sizes.lasting()), tuple(sizes.phases()))


def check_memory(config: RunConfig, initial_rows: int = 0, runs_here: bool = True) -> None:
    """Reject a run that does not fit into the memory that is free on this machine.

    Args:
        config: The config of the run.
        initial_rows: Number of initial measurements.
        runs_here: Whether this process will run it. If not, JAX's device is left to the process that will, and the run is
            compared with main memory.
    """
    # sizes that no machine has are rejected before a device is asked
    possible = memory_need(config, initial_rows).bytes < LARGEST_MACHINE
    memory = free_memory() if runs_here and possible else Memory(free_host_memory(), "this machine", False)
    need = memory_need(config, initial_rows, memory.accelerator)
    if need.bytes > memory.bytes:
        largest = need.largest
        raise SondeError(
            f"config: this run needs about {in_gigabytes(need.bytes)} of memory at its peak, and {memory.where} has "
            f"{in_gigabytes(memory.bytes)} free; most of it is for {largest.name} ({in_gigabytes(largest.bytes)}): "
            f"lower {largest.settings}"
        )


def in_gigabytes(count: int) -> str:
    """A number of bytes in words.

    Args:
        count: The number, of any size.
    """
    return f"{count / 1e9:,.1f} GB" if count < 10**21 else "more than a billion GB"  # beyond it, floats may overflow


@dataclass(frozen=True)
class _Sizes:
    """The numbers that the formula takes from a config."""

    config: RunConfig
    measured: int
    accelerator: bool

    @property
    def rows(self) -> int:
        return self.config.confidence.in_window(self.measured)

    @property
    def seeds(self) -> int:
        return self.config.seeds

    @property
    def state_dim(self) -> int:
        return self.config.world.state_dim

    @property
    def input_dim(self) -> int:
        return self.state_dim + self.config.spec.input_dim

    @property
    def full_dim(self) -> int:
        """Numbers in the states that a planner sees: with the past."""
        return self.input_dim - self.config.world.action_dim

    def candidates(self) -> list["_Sizes"]:
        """The same with each of the models that one is chosen from; none if the model is not chosen."""
        model = self.config.model
        return (
            [replace(self, config=replace(self.config, model=each)) for each in model.candidates]
            if isinstance(model, Auto)
            else []
        )

    def at_once(self, count: int, bytes_each: int) -> int:
        """Of `count` equal pieces of work, the bytes of those that are done side by side (`in_chunks`)."""
        return bytes_each * (min(count, max(1, CHUNK_BYTES // max(bytes_each, 1))) if self.accelerator else 1)

    # ---- what lasts

    def lasting(self) -> Iterator[Part]:
        columns = self.state_dim + self.input_dim
        yield Part("compiled programs", PROGRAMS, "what other programs take")
        measurements = DATA_COPIES * self.seeds * self.measured * DOUBLE * columns
        yield Part("the measurements", measurements, "capacity, horizon, rounds or seeds")
        # both before and after a round
        settings = "model.width, model.members, model.rank or seeds"
        yield Part("the model's parameters", 2 * self.seeds * self.params(), settings)
        yield Part("the model's posterior", 2 * self.seeds * self.posterior(), settings)

    def params(self) -> int:
        """Bytes of one seed's params."""
        model = self.config.model
        if not isinstance(model, Ensemble):
            return sum(each.params() for each in self.candidates())
        moments = 2 if model.keep_optimiser_state else 0
        return (1 + moments) * model.members * self.member()

    def member(self) -> int:
        """Bytes of one network of an ensemble."""
        model = self.config.model
        assert isinstance(model, Ensemble)
        return sum(map(_network, model.network_sizes(self.state_dim, self.config.spec.input_dim)))

    def centres(self) -> int:
        """Number of centres of each output of a Gaussian process."""
        model = self.config.model
        assert isinstance(model, GaussianProcess)
        return min(model.rank, self.rows) or self.rows

    def posterior(self) -> int:
        """Bytes of one seed's posterior."""
        model = self.config.model
        if isinstance(model, Ensemble):
            return model.members * self.member()
        if not isinstance(model, GaussianProcess):
            return sum(each.posterior() for each in self.candidates())
        return self.state_dim * DOUBLE * self.centres() * (self.centres() + self.input_dim + 1)

    # ---- phases

    def phases(self) -> Iterator[Part]:
        config, model = self.config, self.config.model
        for each in self.candidates():
            yield from each.phases()
        if isinstance(model, GaussianProcess):
            yield from self.gaussian_process(model)
        if isinstance(model, Ensemble):
            yield Part("the training", self.training(model), "model.width, model.batch_size, seeds, or capacity")
        if config.confidence.holdout:
            yield Part("the recalibration", self.recalibration(), "seeds, or capacity; or turn holdout off")
        common = low_rank_bytes(self.rows, min(COMMON_RANK, self.rows)) + ROWS * self.point() + self.posterior()
        yield Part("the metrics", self.at_once(self.seeds, common), "capacity, horizon, rounds or seeds")
        method = config.method
        if method.imagination is not None:
            yield self.planning(config.solver, method.imagination, config.rollouts, config.horizon)
        for task in config.task_names if config.evaluate_every else ():
            settings = config.settings_for(task)
            yield self.planning(
                settings.solver, config.evaluation_imagination, config.evaluation_rollouts, settings.horizon, "evaluation_"
            )

    def gaussian_process(self, model: GaussianProcess) -> Iterator[Part]:
        items = self.seeds * self.state_dim
        if model.hyperparameters == "learned":
            fit = model.fit_bytes(min(model.fit_points, self.rows))
            yield Part("the fit of the hyper-parameters", self.at_once(items, fit), "model.fit_points")
        factorisation = self.at_once(items, model.condition_bytes(self.rows))
        if isinstance(self.config.confidence.beta_rule, RKHSBeta):
            factorisation = max(factorisation, items * 3 * DOUBLE * self.rows**2)
        yield Part("the factorisation", factorisation, "capacity, horizon, rounds or model.rank (or set it, if it is 0)")
        if keeps_its_prior(self.config) and self.rows <= MAX_MEASUREMENTS:
            theory = DOUBLE * self.rows * (3 * self.rows + 3 * REACHABLE)
            yield Part("the theory's metrics", theory, "capacity, horizon or rounds")

    def training(self, model: Ensemble) -> int:
        """Bytes of the fit of an ensemble: the data in single precision and in random order, and the optimiser."""
        members = model.members if self.accelerator else 1
        activations = SINGLE * model.batch_size * model.live_units * (model.layers + 1) * 3
        seen = model.inputs_size(self.state_dim, self.config.spec.input_dim)
        per_row = 2 * SINGLE * (seen + self.state_dim) + members * 10 * DOUBLE
        return self.seeds * (self.rows * per_row + members * (NETWORK_COPIES * self.member() + activations))

    def recalibration(self) -> int:
        """Bytes of the posteriors with and without the held-out measurements, and of predictions of all of them."""
        model = self.config.model
        factorisation = model.condition_bytes(self.rows) if isinstance(model, GaussianProcess) else 0
        comparison = self.at_once(self.seeds, calibration_bytes(self.rows, self.state_dim))
        one_after_the_other = (
            self.at_once(self.seeds * self.state_dim, factorisation),
            comparison + ROWS * self.point() + self.posterior(),
        )
        return 2 * self.seeds * self.posterior() + max(one_after_the_other)

    def point(self) -> int:
        """Bytes of the prediction of one point."""
        model = self.config.model
        if isinstance(model, GaussianProcess):  # kernel rows; one output after the other on a CPU
            return 3 * DOUBLE * self.centres() * (self.state_dim if self.accelerator else 1)
        if isinstance(model, Ensemble):  # activations; one member after the other on a CPU
            return 3 * SINGLE * model.live_units * (model.members if self.accelerator else 1)
        return max((each.point() for each in self.candidates()), default=0)

    def planning(self, solver: Solver, imagination: Imagination, rollouts: int, horizon: int, prefix: str = "") -> Part:
        """What a policy needs while it is made and run."""
        config = self.config
        at_once = min(rollouts, max(1, config.max_copies // self.seeds))
        copies, particles = self.seeds * at_once, imagination.simulated_particles(config.model.ensemble_size)
        controls = config.world.action_dim + imagination.extra_controls(self.state_dim)
        rollout = 2 * self.seeds * rollouts * horizon * DOUBLE * (self.state_dim + self.input_dim + 1)
        name, length = ("the evaluation of tasks", "evaluation_horizon") if prefix else ("planning", "horizon")
        settings = f"seeds, max_copies, {prefix}rollouts, {length}"
        if isinstance(solver, ICEM):
            plans = solver.samples + solver.kept_elites
            objective = None if prefix else config.method.objective
            members = config.model.ensemble_size if objective is not None and objective.needs_members else 0
            particles += config.safety.particles if config.constraints else 0
            imagined = particles * (self.point() + solver.horizon * DOUBLE * self.full_dim * (IMAGINED + 2 * members))
            planning = copies * plans * (imagined + solver.horizon * controls * DOUBLE * 8)
            return Part(name, rollout + planning, f"{settings}, solver.samples, solver.horizon or the method's particles")
        if isinstance(solver, SAC):
            training = self.seeds * self.actor_critic(solver, controls)
            return Part(name, rollout + training, f"{settings}, solver.starts, solver.horizon or solver.buffer")
        return Part(name, rollout, settings)

    def actor_critic(self, solver: SAC, controls: int) -> int:
        """Bytes of one seed's training of soft actor-critic: the buffer, the batches and the networks."""
        slots = max(1, min(solver.training_steps, solver.buffer // solver.transitions_per_step))
        row = SINGLE * (2 * self.full_dim + controls + 1)
        batches = solver.gradient_steps * solver.batch_size * (row + 2 * SINGLE * controls)
        actor = _network((self.full_dim, *solver.actor, 2 * controls))
        critic = _network((self.full_dim + controls, *solver.critic, 1))
        imagine = solver.starts * (self.point() + solver.horizon * (row + DOUBLE * 3 * self.full_dim))
        return 2 * slots * solver.transitions_per_step * row + 2 * batches + NETWORK_COPIES * (actor + 3 * critic) + imagine


def _network(layers: tuple[int, ...]) -> int:
    """Bytes of the weights and biases of a network."""
    return SINGLE * sum((before + 1) * after for before, after in itertools.pairwise(layers))
