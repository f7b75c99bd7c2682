"""Controllers without JAX: trained policies and linear feedbacks; this module needs only numpy and safetensors.

policy = load_policy("runs/mountain-car-lite-opax/policies/reach-goal.safetensors")
u = policy(x)                                     # x [dx] -> u [du] in [-1, 1]

A file has, for each of S seeds, a network with swish between its layers that maps the normalised state to the mean and the
log-std of the controls; the action is tanh of the first entries of the mean:

    action_dim        [1]            du
    shift, scale      [S, dx]        the input is (x - shift) / scale
    weight0, bias0    [S, dx, h], [S, h]
    ...
    weightN, biasN    [S, h, 2 dc], [S, 2 dc]
    past              [2]            delay and history, if the past belongs to the state; it then follows the observation in x

Gains that `LinearFeedback.save` and `GainSchedule.save` wrote are read too; their arrays have the names of the fields.
"""

from pathlib import Path

import numpy as np

from sonde._internal.errors import SondeError
from sonde._internal.past import NO_PAST, Memory, Past
from sonde._internal.policy_file import FORMAT, read, to_bytes
from sonde.control import _gain_schedule, _linear_feedback
from sonde.control._gain_schedule import GainSchedule
from sonde.control._linear_feedback import LinearFeedback


class DeployedPolicy:
    """A trained policy: call it with a state, get the action.

    It has no state of its own, unless the past belongs to the state: then call it once per step, and `reset` it where an
    episode begins.
    """

    state_dim: int
    """Number of state dimensions dx."""
    action_dim: int
    """Number of action dimensions du."""
    shift: np.ndarray
    """What is subtracted from states [dx], with the past if it belongs to them."""
    scale: np.ndarray
    """What they are then divided by."""
    layers: list[tuple[np.ndarray, np.ndarray]]
    """Weight [in, out] and bias [out] of each layer."""
    past: Past
    """What of the past belongs to the state."""

    def __init__(
        self,
        shift: np.ndarray,
        scale: np.ndarray,
        layers: list[tuple[np.ndarray, np.ndarray]],
        action_dim: int,
        past: Past = NO_PAST,
    ):
        """Make a policy from arrays; `load_policy` makes one from a file.

        Args:
            shift: What is subtracted from states [dx], with the past if it belongs to them.
            scale: What they are then divided by [dx].
            layers: Weight [in, out] and bias [out] of each layer.
            action_dim: Number of action dimensions du.
            past: What of the past belongs to the state.
        """
        self.shift, self.scale, self.layers, self.past = shift, scale, layers, past
        self.state_dim, self.action_dim = past.observed_dim(len(shift), action_dim), action_dim
        self._memory = Memory(past, 1, self.state_dim, action_dim)

    def reset(self) -> None:
        """Forget the past: a new episode begins."""
        self._memory.reset()

    def to_bytes(self) -> bytes:
        """Content of a file that `load_policy` reads, with this one policy."""
        arrays = {"action_dim": np.asarray([self.action_dim]), "shift": self.shift[None], "scale": self.scale[None]}
        if self.past:
            arrays["past"] = np.asarray([self.past.delay, self.past.history])
        for i, (weight, bias) in enumerate(self.layers):
            arrays |= {f"weight{i}": weight[None], f"bias{i}": bias[None]}
        return to_bytes(arrays)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Choose an action.

        Args:
            x: State [dx].

        Returns:
            The action [du] in [-1, 1].
        """
        x = np.asarray(x, dtype=np.float64)
        if x.shape != (self.state_dim,):
            raise SondeError(f"policy: the state must have shape [{self.state_dim}], got {list(x.shape)}")
        if not np.isfinite(x).all():
            raise SondeError("policy: the state must be finite, got NaN or infinity; check the sensor that delivered it")
        past = self._memory.recall(x[None])
        h = ((np.append(x, past) - self.shift) / self.scale).astype(np.float32)
        for weight, bias in self.layers[:-1]:
            h = _swish(h @ weight + bias)
        weight, bias = self.layers[-1]
        action = np.tanh(h @ weight + bias)[: self.action_dim].astype(np.float64)
        self._memory.acted(past, x[None], action[None])
        return action


def _swish(h: np.ndarray) -> np.ndarray:
    """h * sigmoid(h), in a form without overflow."""
    return h * np.exp(-np.logaddexp(np.float32(0), -h))


def load_policy(path: str | Path, seed_index: int = 0) -> DeployedPolicy | LinearFeedback | GainSchedule:
    """Load a controller from a file.

    Args:
        path: A file in the folder policies/ of a run, or a file of gains.
        seed_index: Position of the seed among those of the run, from 0; gains are those of one.

    Returns:
        The controller: call it with states.
    """
    path = Path(path)
    kind, arrays = read(path, (FORMAT, _linear_feedback.FORMAT, _gain_schedule.FORMAT))
    if kind == FORMAT:
        return _network(path, arrays, seed_index)
    if seed_index != 0:
        raise SondeError(f"{path} has the gains of one seed: seed_index must be 0, got {seed_index!r}")
    return LinearFeedback.load(path) if kind == _linear_feedback.FORMAT else GainSchedule.load(path)


def _network(path: Path, arrays: dict[str, np.ndarray], seed_index: int) -> DeployedPolicy:
    count = sum(name.startswith("weight") for name in arrays)
    extra = ["past"] if "past" in arrays else []
    names = ["action_dim", "shift", "scale", *extra, *(f"{kind}{i}" for kind in ("weight", "bias") for i in range(count))]
    if count == 0 or set(arrays) != set(names):
        raise SondeError(f"{path} is damaged: it has the arrays {', '.join(sorted(arrays))}; save the policy again")
    if arrays["action_dim"].shape != (1,) or arrays["shift"].ndim != 2:
        raise SondeError(f"{path} is damaged: action_dim must have one entry and shift two axes; save the policy again")
    (num_seeds, full_dim), action_dim = arrays["shift"].shape, int(arrays["action_dim"][0])
    _check(path, arrays, num_seeds, count, full_dim, action_dim)
    past = _past(path, arrays, full_dim, action_dim)
    if not isinstance(seed_index, int) or not 0 <= seed_index < num_seeds:
        raise SondeError(
            f"{path} has policies of {num_seeds} seed(s): seed_index must be 0 to {num_seeds - 1}, got {seed_index!r}"
        )
    single = lambda name: arrays[name][seed_index].astype(np.float32)
    double = lambda name: arrays[name][seed_index].astype(np.float64)
    layers = [(single(f"weight{i}"), single(f"bias{i}")) for i in range(count)]
    return DeployedPolicy(double("shift"), double("scale"), layers, action_dim, past)


def _past(path: Path, arrays: dict[str, np.ndarray], full_dim: int, action_dim: int) -> Past:
    """What of the past belongs to the state."""
    if "past" not in arrays:
        return NO_PAST
    given = arrays["past"]
    if given.shape == (2,) and given.dtype.kind in "iu" and (given >= (0, 1)).all() and (given <= full_dim).all():
        past = Past(*map(int, given))
        seen = past.observed_dim(full_dim, action_dim)
        if seen > 0 and seen + past.size(seen, action_dim) == full_dim:
            return past
    raise SondeError(f"{path} is damaged: past {given.tolist()} does not fit {full_dim} inputs; save the policy again")


def _check(path: Path, arrays: dict[str, np.ndarray], num_seeds: int, count: int, state_dim: int, action_dim: int) -> None:
    """Reject arrays that do not form a network."""
    expected: dict[str, tuple[int, ...]] = {"shift": (num_seeds, state_dim), "scale": (num_seeds, state_dim)}
    width = state_dim
    for i in range(count):
        weight = arrays[f"weight{i}"]
        out = weight.shape[-1] if weight.ndim == 3 else 0
        expected |= {f"weight{i}": (num_seeds, width, out), f"bias{i}": (num_seeds, out)}
        width = out
    for name, shape in expected.items():
        if arrays[name].shape != shape or 0 in shape:
            raise SondeError(
                f"{path} is damaged: {name} has shape {list(arrays[name].shape)}, expected {list(shape)}; save the policy again"
            )
        if not np.isfinite(arrays[name]).all():
            raise SondeError(f"{path} is damaged: {name} is not finite; save the policy again")
    if width % 2 or not 0 < action_dim <= width // 2:
        raise SondeError(
            f"{path} is damaged: {width} outputs cannot be the mean and log-std of {action_dim} or more controls; "
            "save the policy again"
        )
    if not (arrays["scale"] > 0).all():
        raise SondeError(f"{path} is damaged: scale must be above 0; save the policy again")
