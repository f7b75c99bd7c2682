"""The least work of each algorithm, counted from its sizes, independent of what a program really does.

A multiplication and an addition are two operations. What is symmetric or triangular counts half. Element-wise functions
(exponentials, swish) are not counted: they are negligible beside the products.
"""

import itertools
from collections.abc import Sequence

from sonde.models import RelationalEnsemble
from sonde.models._ensemble import Ensemble
from sonde.solvers import ICEM, SAC

CACHE = 64 * 2**20
"""Bytes that caches may hold; smaller data are not counted as bytes from main memory."""


def layers(sizes: Sequence[int]) -> list[int]:
    """Multiplications of each layer of a network, per point.

    Args:
        sizes: Widths of all layers, inputs and outputs included.
    """
    return [n * m for n, m in itertools.pairwise(sizes)]


def member_layers(model: Ensemble, state_dim: int, action_dim: int) -> list[int]:
    """Multiplications of each layer of one ensemble member, with its mean and noise heads, per point.

    Args:
        model: The ensemble.
        state_dim: Number of state dimensions.
        action_dim: Number of action dimensions.
    """
    sizes = model.network_sizes(state_dim, action_dim)
    if isinstance(model, RelationalEnsemble):
        return relational_layers(model, sizes, action_dim)
    return layers(list(sizes[0]))


def relational_layers(model: RelationalEnsemble, sizes: Sequence[tuple[int, ...]], action_dim: int) -> list[int]:
    """Multiplications of each layer of one relational member, for all objects and pairs of objects of a point.

    Args:
        model: The ensemble.
        sizes: Sizes of its networks (`RelationalEnsemble.network_sizes`).
        action_dim: Number of action dimensions.
    """
    graph, found = model.graph(action_dim), list[int]()
    pairs, of_agent = graph.count * (graph.count - 1), (2 * model.passes + 1, 2 * model.passes + 3)
    for number, own in enumerate(sizes):
        each = layers(list(own))
        if number < model.passes:  # the first layer takes what both objects are once for each of them, and the way between them
            one = graph.count * (own[0] - graph.relative) * own[1] + pairs * graph.relative * own[1]
            found += [one, *(pairs * products for products in each[1:])]
        else:
            found += [(1 if number in of_agent else graph.count) * products for products in each]
    return found


def imagined_transitions(solver: ICEM, particles: int) -> int:
    """Imagined transitions of one planning step: all plans of all iterations, kept ones included.

    Args:
        solver: The planner.
        particles: Copies of each plan.
    """
    plans = sum(solver.sample_counts()) + solver.kept_elites * solver.iterations
    return plans * solver.horizon * particles


def ensemble_queries(model: Ensemble, state_dim: int, action_dim: int, queries: int) -> int:
    """Operations of predictions by all members.

    Args:
        model: The ensemble.
        state_dim: Number of state dimensions.
        action_dim: Number of action dimensions.
        queries: Number of predictions.
    """
    return 2 * queries * model.members * sum(member_layers(model, state_dim, action_dim))


def ensemble_training(model: Ensemble, state_dim: int, action_dim: int, steps: int) -> int:
    """Operations of training: forward, gradients of the weights, and gradients of the inputs of all layers but the first.

    Args:
        model: The ensemble.
        state_dim: Number of state dimensions.
        action_dim: Number of action dimensions.
        steps: Number of gradient steps.
    """
    products = member_layers(model, state_dim, action_dim)
    return 2 * steps * model.batch_size * model.members * (3 * sum(products) - products[0])


def ensemble_training_bytes(model: Ensemble, state_dim: int, action_dim: int, steps: int, num_seeds: int) -> int | None:
    """Bytes of training: weights and the optimiser's two moments, read and written at each step.

    Args:
        model: The ensemble.
        state_dim: Number of state dimensions.
        action_dim: Number of action dimensions.
        steps: Number of gradient steps.
        num_seeds: Number of seeds S.

    Returns:
        The bytes; None if caches can hold weights and moments.
    """
    state = 3 * 4 * num_seeds * model.members * sum(member_layers(model, state_dim, action_dim))
    return 2 * steps * state if state > CACHE else None


def gp_query(inputs: int, centres: Sequence[int]) -> int:
    """Operations of a mean and a variance of every output.

    Squared distances as one product (with two columns for the squares), the mean, and a quadratic form, whose matrix is
    symmetric.

    Args:
        inputs: Number of inputs.
        centres: Number of centres of each output.
    """
    return sum(2 * m * (inputs + 2) + 2 * m + m * (m + 1) for m in centres)


def gp_fit(points: int, inputs: int, outputs: int, steps: int) -> int:
    """Operations of gradient steps on the exact marginal likelihood.

    Per output and step: the kernel matrix and the sums against its derivatives (both symmetric), and n^3 for the inverse.

    Args:
        points: Number of measurements n.
        inputs: Number of inputs.
        outputs: Number of outputs.
        steps: Number of gradient steps.
    """
    return outputs * steps * (points**3 + 2 * points**2 * (inputs + 2))


def gp_condition(points: int, centres: Sequence[int]) -> int:
    """Operations of the low-rank posterior: the greedy choice of m centres, their statistics over all data, and m^3 to invert.

    Args:
        points: Number of measurements.
        centres: Number of centres of each output.
    """
    return sum(2 * points * m**2 + m**3 for m in centres)


def gp_condition_bytes(points: int, centres: Sequence[int], num_seeds: int) -> int | None:
    """Bytes of the low-rank posterior: the choice of a centre reads what earlier ones explain of all data, in double precision.

    Args:
        points: Number of measurements.
        centres: Number of centres of each output.
        num_seeds: Number of seeds S.

    Returns:
        The bytes; None if caches can hold what the centres explain.
    """
    state = 8 * points * num_seeds * sum(centres)
    return sum(8 * num_seeds * points * m * (m - 1) // 2 for m in centres) if state > CACHE else None


def sac_gradient_step(solver: SAC, state_dim: int, control_dim: int) -> int:
    """Operations of one gradient step.

    Args:
        solver: The solver.
        state_dim: Number of state dimensions.
        control_dim: Numbers that the actor chooses per step.
    """
    critic = layers([state_dim + control_dim, *solver.critic, 1])
    actor = layers([state_dim, *solver.actor, 2 * control_dim])
    # per pair of critics: targets forward; loss forward, by weights, by inputs of all layers but the first; for the actor
    # forward and by inputs. The actor: forward twice, by weights, by inputs of all layers but the first
    per_row = 2 * (6 * sum(critic) - critic[0]) + 4 * sum(actor) - actor[0]
    return 2 * solver.batch_size * per_row


def sac_training(solver: SAC, model: Ensemble, state_dim: int, action_dim: int, control_dim: int) -> int:
    """Operations of a whole policy optimisation: gradient steps, and the transitions that are imagined for them.

    Args:
        solver: The solver.
        model: The ensemble.
        state_dim: Number of state dimensions.
        action_dim: Number of action dimensions.
        control_dim: Numbers that the actor chooses per step.
    """
    gradient_steps = solver.training_steps * solver.gradient_steps * sac_gradient_step(solver, state_dim, control_dim)
    imagined = solver.training_steps * solver.transitions_per_step
    acting = 2 * imagined * sum(layers([state_dim, *solver.actor, 2 * control_dim]))
    return gradient_steps + acting + ensemble_queries(model, state_dim, action_dim, imagined)
