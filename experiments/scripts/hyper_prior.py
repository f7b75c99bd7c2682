"""Compare hyper-priors of the Gaussian process by the likelihood of trajectories that it has not seen.

    python -m experiments.scripts.hyper_prior

Each prior learns from random measurements of the development plants, with inputs of full size and of a fifth of it, and is
judged on windows with inputs of full size: negative log-likelihood of one step, error after 20 steps, and coverage of 90 %
intervals.
"""

import itertools
from collections import defaultdict
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from benchmarks.systems.development import DEVELOPMENT
from benchmarks.systems.plant import NOISE, Plant, excite, rollouts, simulate
from benchmarks.systems.scoring import HALF_WIDTH
from sonde import ICEM, METHODS, Explorer, GaussianProcess, Trajectory
from sonde._internal.precision import double_precision
from sonde.models import Posterior
from sonde.models._base import predict_many

PRIORS = {
    "6 (0.7), 1 (1.0)": ((6.0, 0.7), (1.0, 1.0)),
    "10 (1.0), 3 (0.3)": ((10.0, 1.0), (3.0, 0.3)),
    "10 (1.0), 3 (0.6)": ((10.0, 1.0), (3.0, 0.6)),
    "10 (0.7), 3 (0.3)": ((10.0, 0.7), (3.0, 0.3)),
    "15 (1.0), 5 (0.3)": ((15.0, 1.0), (5.0, 0.3)),
    "10 (0.7), 2 (0.6)": ((10.0, 0.7), (2.0, 0.6)),
}
"""Priors on length-scales and signal std: median, and std of the logarithm in brackets."""
WINDOWS, STEPS = 40, 20
LARGEST = 20.0
"""Nats at which the squared error of a step is cut off: beyond it, how wrong a model is does not matter."""


@dataclass
class Arguments:
    """Compare hyper-priors of the Gaussian process on development plants."""

    measurements: int = 100
    """Measurements to learn from."""
    seed: int = 100
    """Randomness of data and windows; 100 and above are development seeds."""


@eqx.filter_jit
def _predict(posterior: Posterior, states, actions):
    found = predict_many(jax.tree.map(lambda leaf: leaf[0], posterior), states, actions)
    return found.mean, jnp.sqrt(found.epistemic_std**2 + found.aleatoric_std**2)


def learned(plant: Plant, size: float, given: Arguments, model: GaussianProcess) -> Posterior:
    """What a model learns from random inputs of a size."""
    episodes = -(-given.measurements // plant.episode)
    shape = (episodes, plant.episode, plant.action_dim)
    actions = size * excite("random", shape, np.random.default_rng([given.seed, 0]))
    states, next_states = simulate(plant, actions, given.seed)
    flat = (array.reshape(-1, array.shape[-1])[: given.measurements] for array in (states, actions, next_states))
    explorer = Explorer(METHODS["random"], model, ICEM(), plant.spec, capacity=given.measurements)
    explorer.start_from(Trajectory(*flat))
    return explorer.posterior


@double_precision
def scores(posterior: Posterior, plant: Plant, seed: int) -> tuple[float, float, float]:
    """Negative log-likelihood per output, 20-step error in spreads, and coverage, on windows."""
    windows = rollouts(plant, WINDOWS, STEPS, seed)
    flat = lambda array: jnp.asarray(array.reshape(-1, array.shape[-1]))
    spread = windows.states.reshape(-1, plant.state_dim).std(axis=0)
    mean, std = map(np.asarray, _predict(posterior, flat(windows.states), flat(windows.actions)))
    off = (np.asarray(flat(windows.next_states)) - mean) / std
    likelihood = np.mean(np.minimum(0.5 * off**2, LARGEST) + np.log(std / spread))
    x, truth = windows.states[:, 0], windows.states[:, 0]
    exact = jax.jit(jax.vmap(plant.dynamics))
    for step in range(STEPS):
        x, _ = _predict(posterior, jnp.asarray(x), jnp.asarray(windows.actions[:, step]))
        truth = exact(jnp.asarray(truth), jnp.asarray(windows.actions[:, step]))
    error = np.sqrt(np.mean(((np.asarray(x) - np.asarray(truth)) / spread) ** 2))
    return float(likelihood), float(error), float(np.mean(np.abs(off) < HALF_WIDTH))


def main(given: Arguments) -> None:
    """Compare the priors and print a table.

    Args:
        given: Settings of the comparison.
    """
    found: dict[tuple[float, float], dict[str, list[tuple[float, float, float]]]] = defaultdict(lambda: defaultdict(list))
    for (size, noise), plant in itertools.product(itertools.product((1.0, 0.2), (NOISE, 0.0)), DEVELOPMENT.values()):
        for name, (lengthscale, signal) in PRIORS.items():
            noisy = replace(plant, process_noise=noise)
            model = GaussianProcess(lengthscale_prior=lengthscale, signal_prior=signal)
            found[size, noise][name].append(scores(learned(noisy, size, given, model), noisy, given.seed))
    table = Table("prior", *(f"inputs x{size:g}, {'noisy' if noise else 'clean'}" for size, noise in found))
    for name in PRIORS:
        cells = []
        for of_case in found.values():
            each = np.array([of_case[other] for other in PRIORS])  # [priors, plants, 3]
            own = np.array(of_case[name])
            behind = np.mean(own[:, 0] - each[..., 0].min(axis=0))
            error = np.exp(np.mean(np.log(own[:, 1] / each[..., 1].min(axis=0))))
            cells.append(f"{behind:.2f} nats, error x{error:.2f}, cover {own[:, 2].mean():.2f}")
        table.add_row(name, *cells)
    Console().print(table)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
