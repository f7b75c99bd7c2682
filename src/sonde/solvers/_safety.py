"""Constraints on a system, and how a plan is checked against everything that the model considers plausible.

A constraint is a function g(x, u, x') >= 0. A plan is admissible if every constraint holds, with a margin, at every step and
for every plausible next state mean + beta epistemic_std eta, eta in [-1, 1]^dx. The worst eta is searched, not found with
certainty:

- `particles`: extreme particles follow a plan, each at a corner of [-1, 1]^dx that is constant, or changes sides once. They
  find the worst case of a constraint on one coordinate while uncertainty adds up along the plan, and may miss others.
- `adversary`: the best plan is also attacked along the gradient of its smallest margin (`sonde.solvers._worst_case`).

If the confidence region contains the truth, an admissible plan violates nothing unless a worse eta was missed.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sonde._internal.errors import SondeError, not_negative, one_of, positive, whole
from sonde._internal.user_code import is_in_file
from sonde.models import Posterior

ConstraintFunction = Callable[[Array, Array, Array], Array]
"""constraint(x, u, x_next) -> scalar that must not be negative, written for one transition in JAX."""
Feedback = Callable[[Array], Array]
"""feedback(x) -> u [du] in [-1, 1], written for one state in JAX."""
FALLBACKS = ("last-plan", "hold", "zero", "brake")
"""Names of fallbacks, beside FILE.py:FUNCTION."""


@dataclass(frozen=True)
class Constraint:
    """What must hold at every step."""

    name: str
    """Name in tables and figures."""
    function: ConstraintFunction
    """Its margin g(x, u, x_next) in JAX; negative where it is violated. JAX caches compiled programs by its identity."""


@dataclass(frozen=True)
class SafetySettings:
    """How constraints are kept."""

    beta: float = 2.0
    """Half-width of the plausible region in epistemic stds; a beta rule of the run wins."""
    margin: float = 0.0
    """Smallest margin that an admissible plan has at every step, in units of the constraints."""
    particles: int = 2
    """Extreme particles of each sampled plan, in pairs at opposite corners; each costs as much as imagining the plan.
    Plans that are among the worse half at the first corner of each pair are not checked at the other."""
    corners: int = 16
    """Extreme particles of the plan that is acted on: half of them at constant corners, half changing sides once."""
    search: Literal["particles", "adversary"] = "particles"
    """What else looks for the worst case of the plan that is acted on: nothing, or a gradient search."""
    horizon: int = 0
    """Steps of a plan that must be admissible; 0 for all. Uncertainty adds up along a plan: a shorter one forbids less, and
    sees less far."""
    fallback: str = "last-plan"
    """What to do where no plan is admissible: last-plan (the rest of the last admissible one, then the plan of least
    violation), hold (the last action again), zero, brake (of the world), or a feedback u = f(x) as FILE.py:FUNCTION."""
    start: str | None = None
    """Cautious policy of the first round, before anything is known: the largest magnitude of its random actions, such as 0.1;
    brake; or a feedback u = f(x) as FILE.py:FUNCTION."""

    def __post_init__(self):
        """Reject settings that cannot work."""
        not_negative("safety", beta=self.beta, margin=self.margin)
        positive("safety", particles=self.particles, corners=self.corners)
        whole("safety", particles=self.particles, corners=self.corners)
        one_of("safety search", self.search, ("particles", "adversary"))
        if self.particles % 2 or self.corners % 2:
            raise SondeError(f"safety: particles and corners come in pairs, got {self.particles} and {self.corners}")
        if self.horizon < 0:
            raise SondeError(f"safety: horizon must be 0 (the whole plan) or above, got {self.horizon}")
        if not is_in_file(self.fallback):
            one_of("fallback", self.fallback, FALLBACKS)
        if self.start is not None and not is_in_file(self.start) and self.start != "brake":
            _ = self.amplitude

    @property
    def amplitude(self) -> float | None:
        """Largest magnitude of the first round's random actions; None if a feedback acts then, or nothing was named."""
        if self.start is None or is_in_file(self.start) or self.start == "brake":
            return None
        try:
            value = float(self.start)
        except ValueError:
            value = float("nan")
        if not 0 <= value <= 1:
            raise SondeError(
                f"safety: start must be a largest action in [0, 1] such as 0.1, brake, or FILE.py:FUNCTION, got {self.start!r}"
            )
        return value


@dataclass(frozen=True)
class Safety(SafetySettings):
    """Constraints with how they are kept, and the functions that settings name."""

    constraints: tuple[Constraint, ...] = ()
    """What must hold at every step; at least one."""
    fallback_feedback: Feedback | None = None
    """The feedback of the fallback, where it is one."""
    start_feedback: Feedback | None = None
    """The feedback of the first round, if it is one; it wins over `start`."""
    project: Callable[[Array], Array] | None = None
    """Maps a state to one that the system can have, where more is known than the model knows (`World.project`)."""

    def __post_init__(self):
        """Reject settings that cannot work."""
        super().__post_init__()
        names = [constraint.name for constraint in self.constraints]
        if not names or len(set(names)) != len(names):
            raise SondeError(f"safety: constraints must be at least one, with different names, got {names}")
        needs_function = self.fallback == "brake" or is_in_file(self.fallback)
        if needs_function and self.fallback_feedback is None:
            raise SondeError(f"safety: the fallback {self.fallback!r} needs a function u = f(x): give fallback_feedback")

    @property
    def starts_cautiously(self) -> bool:
        """Whether there is a policy for a first round without any knowledge."""
        return self.start_feedback is not None or self.amplitude is not None

    def searchable(self, posterior: Posterior) -> Posterior:
        """A posterior in the form that the search for the worst case needs; called between compiled calls.

        Args:
            posterior: What was learned.
        """
        return posterior.differentiable() if self.search == "adversary" else posterior

    def smallest_margin(self, x: Float[Array, " dx"], u: Float[Array, " du"], x_next: Float[Array, " dx"]) -> Float[Array, ""]:
        """The smallest margin of all constraints at one transition.

        Args:
            x: State.
            u: Action.
            x_next: Next state.
        """
        margins = [jnp.asarray(constraint.function(x, u, x_next)) for constraint in self.constraints]
        return jnp.min(jnp.stack([margin.astype(x.dtype) for margin in margins]))

    def checked_steps(self, horizon: int) -> int:
        """How many steps of a plan must be admissible.

        Args:
            horizon: Steps of the plan.
        """
        return min(self.horizon, horizon) if self.horizon else horizon


def corner_sequences(count: int, horizon: int, state_dim: int) -> Float[np.ndarray, "count H dx"]:
    """Sequences of corners of [-1, 1]^dx: pairs of opposite constant ones, then pairs that change sides once.

    Args:
        count: Number of sequences, even.
        horizon: Steps H.
        state_dim: Number of state dimensions dx.
    """
    rng = np.random.default_rng(0)
    pairs = count // 2
    half = [np.array((1.0, *rest)) for rest in itertools.product((1.0, -1.0), repeat=min(state_dim - 1, 12))]
    if state_dim > 13 or len(half) > pairs:
        corners = rng.choice([-1.0, 1.0], (pairs, state_dim))
    else:
        corners = np.array([half[number % len(half)] for number in range(pairs)])
    constant = np.broadcast_to(corners[:, None], (pairs, horizon, state_dim)).copy()
    whole_pairs = -(-pairs // 2)  # these stay as they are, the others change sides, evenly spread over the plan
    for number in range(whole_pairs, pairs):
        at = 1 + (number - whole_pairs) * max(horizon - 1, 1) // max(pairs - whole_pairs, 1)
        constant[number, at:] *= -1
    return np.concatenate([constant, -constant])
