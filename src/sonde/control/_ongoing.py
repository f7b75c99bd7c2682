"""A system that is never put back: one long trajectory per seed, which rollouts cut into rounds.

A world written in JAX goes on from the last measured state. A host world goes on in simulators that stay open and are used for
nothing else. Where there are none, in a process that continues a run, they are brought to the same place: every measured action
is taken once more from the seeded start, and what is measured on the way must be what was measured before.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Array, Key

from sonde._internal.errors import SondeError
from sonde._internal.precision import double_precision
from sonde.control._controller import Controller
from sonde.control._rollout import OnStep, RolloutSettings, compiled_trajectories, reset_seeds, start_states, step_through
from sonde.control._simulators import SimulatorPool
from sonde.data import Trajectory
from sonde.worlds import HostWorld, JaxWorld, Simulators, World


class Ongoing:
    """A world whose next rollout starts where the last one ended; as a context manager it closes its simulators.

    With it, exploration is one long trajectory::

        with Ongoing(world, explorer.evaluation_keys()) as system:
            for _ in range(10):
                explorer.tell(system.rollout(explorer.ask(), 100))

    Where a host world ends an episode itself, it is restarted, as in any rollout.
    """

    pool: SimulatorPool
    """The open simulators of a host world."""

    def __init__(self, world: World, keys: Key[Array, " seeds"], past: Sequence[Trajectory] = ()):
        """Nothing is run yet.

        Args:
            world: The true system.
            keys: Randomness of the first start, one key per seed (`Explorer.evaluation_keys`).
            past: What it has done already [S, T, ...], one trajectory per rollout, to go on from there.
        """
        self.world, self.pool = world, SimulatorPool()
        self._keys, self._past, self._there = keys, list(past), False

    def __enter__(self) -> "Ongoing":
        """Open nothing yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the simulators."""
        self.pool.close()

    @double_precision
    def rollout(self, policy: Controller, horizon: int, *, on_step: OnStep | None = None) -> Trajectory:
        """Run a policy from where the last rollout ended.

        Args:
            policy: What `Explorer.ask` returned.
            horizon: Number of steps T.
            on_step: Called after each step of a host world.

        Returns:
            Measurements [S, T, ...].
        """
        if policy.copies != len(self._keys):
            raise SondeError(f"a system that is not put back has one rollout per seed, {len(self._keys)}, got {policy.copies}")
        if isinstance(self.world, HostWorld):
            there, self._there = self._there, False
            start = self._go_on if there else self._return
            try:
                (measured,) = step_through(self.world, policy, RolloutSettings(horizon), self.pool, on_step, start)
            except BaseException:
                self.pool.close()  # they are somewhere on the way
                raise
            self._there = True
        else:
            (measured,) = compiled_trajectories(self.world, policy, horizon, self._states(policy)[:, None])
        self._past.append(measured)
        return measured

    def _states(self, policy: Controller) -> np.ndarray:
        """Where a world written in JAX stands [S, dx]."""
        if self._past:
            return np.asarray(self._past[-1].next_states)[:, -1]
        if not isinstance(self.world, JaxWorld):
            raise SondeError(f"{type(self.world).__name__} has no simulator: run it yourself, with ask and tell")
        return np.asarray(start_states(self.world, self._keys[:, None]))[:, 0]

    def _go_on(self, copies: Simulators) -> np.ndarray:
        """States [S, dx] of simulators that stand where the last rollout ended."""
        last = self._past[-1]
        ended = None if last.ended is None else last.ended[:, -1]
        return np.array(last.next_states[:, -1] if ended is None or not ended.any() else copies.restart(ended))

    def _return(self, copies: Simulators) -> np.ndarray:
        """Bring new simulators to where the last rollout ended."""
        x = np.array(copies.reset(reset_seeds(self._keys)))
        for number, trajectory in enumerate(self._past, 1):
            states, actions, next_states = (
                np.asarray(each) for each in (trajectory.states, trajectory.actions, trajectory.next_states)
            )
            for t in range(states.shape[1]):
                self._check_same(x, states[:, t], f"before step {t} of round {number}")
                x = np.array(copies.step(actions[:, t].copy()).next_states)
                self._check_same(x, next_states[:, t], f"after step {t} of round {number}")
                ended = None if trajectory.ended is None else trajectory.ended[:, t]
                if ended is not None and ended.any():
                    x = np.array(copies.restart(ended))
        return x

    def _check_same(self, here: np.ndarray, measured: np.ndarray, when: str) -> None:
        if not np.array_equal(here, measured):
            seed = int(np.argmax((here != measured).any(axis=1)))
            raise SondeError(
                f"{type(self.world).__name__}: to go on without a reset, the measured actions were taken once more from the "
                f"seeded start, and {when} the state must be {measured[seed]} as measured, got {here[seed]}: the system does "
                "not repeat itself, or another version of it is installed; install the one that was used, or start over in "
                "another folder"
            )
