"""The least work of each algorithm, counted from its sizes alone, whatever a program really does.

A multiplication and an addition are two operations. What is symmetric or triangular counts half. Element-wise functions
(exponentials, swish) are not counted: they vanish beside the products.
"""

import itertools
from collections.abc import Sequence

from sonde.models._ensemble import ProbabilisticEnsemble
from sonde.solvers import ICEM, SAC

CACHE = 64 * 2**20
"""Bytes that caches may hold: smaller data need not come from main memory, and their bytes are not counted."""


def layers(sizes: Sequence[int]) -> list[int]:
    """Multiplications of each layer of a network, per point."""
    return [n * m for n, m in itertools.pairwise(sizes)]


def member_layers(model: ProbabilisticEnsemble, state_dim: int, action_dim: int) -> list[int]:
    """The same for one member of an ensemble, with its mean and noise heads."""
    outputs = state_dim * (2 if model.noise == "learned" else 1)
    return layers([state_dim + action_dim, *[model.width] * model.layers, outputs])


def imagined_transitions(solver: ICEM, particles: int) -> int:
    """Of one planning step: all plans of all iterations, the kept ones included."""
    plans = sum(solver.sample_counts()) + solver.kept_elites * solver.iterations
    return plans * solver.horizon * particles


def ensemble_queries(model: ProbabilisticEnsemble, state_dim: int, action_dim: int, queries: int) -> int:
    """Operations of asking all members."""
    return 2 * queries * model.members * sum(member_layers(model, state_dim, action_dim))


def ensemble_training(model: ProbabilisticEnsemble, state_dim: int, action_dim: int, steps: int) -> int:
    """Operations of gradient steps: forward, by the weights, and by the inputs of all layers but the first."""
    products = member_layers(model, state_dim, action_dim)
    return 2 * steps * model.batch_size * model.members * (3 * sum(products) - products[0])


def ensemble_training_bytes(
    model: ProbabilisticEnsemble, state_dim: int, action_dim: int, steps: int, num_seeds: int
) -> int | None:
    """Weights and the optimiser's two moments, read and written at each step, unless caches hold them."""
    state = 3 * 4 * num_seeds * model.members * sum(member_layers(model, state_dim, action_dim))
    return 2 * steps * state if state > CACHE else None


def gp_query(inputs: int, centres: Sequence[int]) -> int:
    """Operations of a mean and a variance per output, from so many centres each.

    Squared distances as one product (with two columns for the squares), the mean, and a quadratic form, whose matrix is
    symmetric.
    """
    return sum(2 * m * (inputs + 2) + 2 * m + m * (m + 1) for m in centres)


def gp_fit(points: int, inputs: int, outputs: int, steps: int) -> int:
    """Operations of gradient steps on the exact marginal likelihood.

    Per output and step: the kernel matrix and the sums against its derivatives (both symmetric), and n^3 for the inverse.
    """
    return outputs * steps * (points**3 + 2 * points**2 * (inputs + 2))


def gp_condition(points: int, centres: Sequence[int]) -> int:
    """Operations of the low-rank posterior: the greedy choice of centres, what all data say about them, and m^3 to invert."""
    return sum(2 * points * m**2 + m**3 for m in centres)


def gp_condition_bytes(points: int, centres: Sequence[int], num_seeds: int) -> int | None:
    """Each choice of a centre reads what the earlier ones explain of all data, in double precision, unless caches hold it."""
    state = 8 * points * num_seeds * sum(centres)
    return sum(8 * num_seeds * points * m * (m - 1) // 2 for m in centres) if state > CACHE else None


def sac_gradient_step(solver: SAC, state_dim: int, control_dim: int) -> int:
    """Operations of one gradient step."""
    critic = layers([state_dim + control_dim, *solver.critic, 1])
    actor = layers([state_dim, *solver.actor, 2 * control_dim])
    # per pair of critics: targets forward; loss forward, by weights, by inputs of all layers but the first; for the actor
    # forward and by inputs. The actor: forward twice, by weights, by inputs of all layers but the first
    per_row = 2 * (6 * sum(critic) - critic[0]) + 4 * sum(actor) - actor[0]
    return 2 * solver.batch_size * per_row


def sac_training(solver: SAC, model: ProbabilisticEnsemble, state_dim: int, action_dim: int, control_dim: int) -> int:
    """Operations of a whole policy optimisation: gradient steps, and the transitions that are imagined for them."""
    gradient_steps = solver.training_steps * solver.gradient_steps * sac_gradient_step(solver, state_dim, control_dim)
    imagined = solver.training_steps * solver.round_size
    acting = 2 * imagined * sum(layers([state_dim, *solver.actor, 2 * control_dim]))
    return gradient_steps + acting + ensemble_queries(model, state_dim, action_dim, imagined)
