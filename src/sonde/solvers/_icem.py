"""iCEM: the improved cross-entropy method (Pinneri et al. 2021), planning anew at every step with a receding horizon.

Per step: the last plan's mean, shifted by one, is the centre of the search and its spread is reset. Each iteration draws plans
of coloured noise around the mean, adds the better ones of the last iteration (the first iteration: of the last step, shifted),
keeps the elite, and moves mean and spread towards it. The best plan ever seen at this step wins.
"""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int, Key

from sonde._internal.coloured_noise import coloured_noise
from sonde._internal.errors import SondeError, one_of, positive
from sonde.solvers._base import AnytimePlanner
from sonde.solvers._problem import ControlProblem


class ICEMState(eqx.Module):
    """What one step hands to the next: the mean plan and the elites that are kept."""

    mean: Float[Array, "H dc"]
    kept: Float[Array, "keep H dc"]


class ICEMSearch(eqx.Module):
    """What one iteration hands to the next: where to draw, the elites that are kept, and the best plan of this step."""

    mean: Float[Array, "H dc"]
    std: Float[Array, "H dc"]
    kept: Float[Array, "keep H dc"]
    best: Float[Array, "H dc"]
    best_value: Float32[Array, ""]


@dataclass(frozen=True)
class ICEM(AnytimePlanner):
    """Sampling-based planner with a receding horizon."""

    horizon: int = 20
    """Steps that a plan looks ahead."""
    samples: int = 500
    """Plans drawn per iteration (the first one, when they decay)."""
    elites: int = 50
    """Plans that shape the next iteration."""
    iterations: int = 10
    """Iterations per step."""
    exponent: float = 0.25
    """Colour of the noise: power falls with frequency as f^-exponent."""
    keep_fraction: float = 0.3
    """Fraction of the elites that joins the next iteration, and, shifted, the next step."""
    initial_std: float = 0.5
    """Spread of the controls at the first iteration of each step."""
    momentum: float = 0.1
    """How much of the old mean and spread each iteration retains."""
    decay: float = 1.0
    """Each iteration draws this factor fewer plans than the one before, though never fewer than twice the elites."""
    aggregate: Literal["sum", "best"] = "sum"
    """What a plan is worth: the sum of its steps' rewards, or its best step's; the mean over particles of that."""
    use_mean: bool = True
    """Also try the mean itself, in the last iteration."""

    def __post_init__(self):
        """Refuse settings that cannot work."""
        positive(
            "solver",
            horizon=self.horizon,
            samples=self.samples,
            elites=self.elites,
            iterations=self.iterations,
            initial_std=self.initial_std,
        )
        one_of("solver aggregate", self.aggregate, ("sum", "best"))
        if self.elites > self.samples:
            raise SondeError(f"solver: elites must not exceed samples, got {self.elites} and {self.samples}")
        if not 0 <= self.keep_fraction <= 1:
            raise SondeError(f"solver: keep_fraction must lie in [0, 1], got {self.keep_fraction}")
        if not 0 <= self.momentum < 1:
            raise SondeError(f"solver: momentum must lie in [0, 1), got {self.momentum}")
        if not 1 <= self.decay <= 100:
            raise SondeError(f"solver: decay must lie in [1 (none), 100], got {self.decay}")
        if not self.exponent >= 0:
            raise SondeError(f"solver: exponent must be 0 (white) or above, got {self.exponent}")

    @property
    def kept_elites(self) -> int:
        """How many elites are handed on."""
        return round(self.keep_fraction * self.elites)

    def sample_counts(self) -> list[int]:
        """Plans drawn in each iteration."""
        least = min(2 * self.elites, self.samples)
        return [max(int(self.samples / self.decay**i), least) for i in range(self.iterations)]

    def iteration_sizes(self, share: float = 1.0) -> tuple[int, ...]:
        """A turn is an iteration; its size is how many plans it draws, no fewer than twice the elites."""
        least = min(2 * self.elites, self.samples)
        return tuple(max(int(share * count), least) for count in self.sample_counts())

    def start(self, problem: ControlProblem) -> ICEMState:
        """Nothing planned: the mean is to do nothing, and no plans are kept from before (NaN; never chosen)."""
        mean = jnp.zeros((self.horizon, problem.control_dim))
        return ICEMState(mean, jnp.full((self.kept_elites, *mean.shape), jnp.nan, mean.dtype))

    def begin(self, problem: ControlProblem, state: ICEMState) -> ICEMSearch:
        """The mean of the last step, with its spread reset."""
        worst = jnp.asarray(-jnp.inf, jnp.float32)
        return ICEMSearch(state.mean, jnp.full_like(state.mean, self.initial_std), state.kept, state.mean, worst)

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
        """One iteration with `size` draws."""
        worth = jnp.sum if self.aggregate == "sum" else jnp.max
        noise_key, draws_key = jax.random.split(jax.random.fold_in(key, iteration))
        noise = coloured_noise(noise_key, size, *search.mean.shape, self.exponent)
        drawn = jnp.clip(search.mean + search.std * noise, -1.0, 1.0)
        if self.use_mean:  # in the last iteration it takes the place of one draw
            drawn = drawn.at[0].set(jnp.where(last, search.mean, drawn[0]))
        plans = jnp.concatenate([drawn, search.kept])
        # of each particle first: the best moment of a plan is another one in each of its futures
        values = jnp.mean(worth(problem.rewards(x, plans, draws_key), axis=-1), axis=-1)
        # ranked in single precision: plans that agree to it are ties and go by their order, so that the last digits of a
        # double, which depend on how many runs are in lockstep, decide nothing
        # a plan that is none may still have a value: many rewards compare, and NaN compares as false
        usable = jnp.isfinite(values) & jnp.all(jnp.isfinite(plans), axis=(1, 2))
        ranks = jnp.where(usable, values, -jnp.inf).astype(jnp.float32)
        top_values, top = jax.lax.top_k(ranks, self.elites)
        elite = plans[top]
        better = top_values[0] > search.best_value
        return ICEMSearch(
            mean=self.momentum * search.mean + (1 - self.momentum) * jnp.mean(elite, axis=0),
            std=self.momentum * search.std + (1 - self.momentum) * jnp.std(elite, axis=0),
            kept=elite[: self.kept_elites],
            best=jnp.where(better, elite[0], search.best),
            best_value=jnp.where(better, top_values[0], search.best_value),
        )

    def finish(self, search: ICEMSearch) -> tuple[Float[Array, "H dc"], ICEMState]:
        """The best plan seen, and the shifted mean and elites for the next step."""

        def shift(plan):  # the last step is repeated
            return jnp.concatenate([plan[..., 1:, :], plan[..., -1:, :]], axis=-2)

        return search.best, ICEMState(shift(search.mean), shift(search.kept))
