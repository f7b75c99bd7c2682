"""ONNX graphs of controllers and models."""

import numpy as np

from sonde._internal.errors import SondeError, whole
from sonde._internal.past import Past
from sonde.control._export._graph import DOUBLE, FLOAT, Graph
from sonde.control._export._onnx_model import model_graph
from sonde.control._gain_schedule import GainSchedule
from sonde.control._linear_feedback import LinearFeedback
from sonde.control.deploy import DeployedPolicy
from sonde.models import Posterior


def to_onnx(what: DeployedPolicy | LinearFeedback | GainSchedule | Posterior, batch: int | None = None) -> bytes:
    """Write a controller or a learned model as an ONNX graph; needs the extra `onnx`.

    Normalisation is inside the graph. Inputs and outputs are in double precision, as sensors may need; networks compute in
    single precision, linear feedback and Gaussian processes in double precision.

    A controller has the input `x` [batch, dx] and the output `action` [batch, du] in [-1, 1]. Where the past belongs to the
    state, there are also the input `memory` and the output `next_memory` [batch, m]: give zeros where an episode begins, and
    later what the last call returned.

    A model has the inputs `x` [batch, dx] and `u` [batch, du] (where the past belongs to the state, it comes before the action
    in `u`) and the outputs `mean`, `epistemic_std` and `aleatoric_std` [batch, dx] of the next state.

    Args:
        what: A controller that `load_policy` returns, or the posterior of one seed.
        batch: Rows per call; None for any number.

    Returns:
        Content of a file.
    """
    if batch is not None:
        whole("onnx", batch=batch)
    graph = Graph(batch)
    if isinstance(what, LinearFeedback):
        return _linear_feedback(graph, what)
    if isinstance(what, GainSchedule):
        return _gain_schedule(graph, what)
    if isinstance(what, DeployedPolicy):
        return _policy(graph, what)
    if isinstance(what, Posterior):
        return model_graph(graph, what)
    raise SondeError(f"onnx: expected what load_policy returns, or the posterior of one seed, got {type(what).__name__}")


def _linear_feedback(graph: Graph, feedback: LinearFeedback) -> bytes:
    action_dim, state_dim = feedback.gain.shape
    deviation = graph.add("Sub", graph.input("x", state_dim), graph.constant(feedback.state))
    change = graph.add("MatMul", deviation, graph.constant(feedback.gain.T))
    graph.output("action", _limited(graph, graph.add("Sub", graph.constant(feedback.action), change)), action_dim)
    return graph.finish("linear_feedback", "Sonde: x, state -> action in [-1, 1]; double precision")


def _limited(graph: Graph, action: str) -> str:
    return graph.add("Clip", action, graph.constant(-1.0), graph.constant(1.0))


def _gain_schedule(graph: Graph, schedule: GainSchedule) -> bytes:
    """Interpolation as a product of hat functions with the tables."""
    dx, du, axes = schedule.states.shape[-1], schedule.actions.shape[-1], schedule.axes
    x = graph.input("x", dx)
    given = "" if schedule.scheduled else graph.input("values", len(axes))
    weights = graph.constant(np.ones((1, 1)))
    for number, axis in enumerate(axes):
        entry = schedule.scheduled[number] if schedule.scheduled else number
        value = graph.columns(given or x, entry, entry + 1)
        hats = graph.add("Unsqueeze", _hats(graph, value, axis, schedule.outside), graph.constant([1], np.int64))
        product = graph.add("Mul", graph.add("Unsqueeze", weights, graph.constant([2], np.int64)), hats)
        weights = graph.add("Flatten", product, axis=1)
    table = lambda array, size: graph.add("MatMul", weights, graph.constant(array.reshape(-1, size)))
    gain = graph.add("Reshape", table(schedule.gains, du * dx), graph.constant([-1, du, dx], np.int64))
    deviation = graph.add("Sub", x, table(schedule.states, dx))
    column = graph.add("Unsqueeze", deviation, graph.constant([2], np.int64))
    change = graph.add("Squeeze", graph.add("MatMul", gain, column), graph.constant([2], np.int64))
    graph.output("action", _limited(graph, graph.add("Sub", table(schedule.actions, du), change)), du)
    outside = "the nearest point of the table" if schedule.outside == "hold" else "NaN"
    about = f"Sonde: x, state -> action in [-1, 1], by a gain schedule; outside of its table: {outside}; double precision"
    return graph.finish("gain_schedule", about)


def _hats(graph: Graph, value: str, axis: np.ndarray, outside: str) -> str:
    """Weights of the points of an axis [batch, n]."""
    within = graph.add("Clip", value, graph.constant(axis[0]), graph.constant(axis[-1]))
    width, end = np.diff(axis), np.array([np.inf])
    to_left, to_right = np.concatenate([end, width]), np.concatenate([width, end])
    left = np.concatenate([axis[:1], axis[:-1]])
    right = np.concatenate([axis[1:], axis[-1:]])
    rising = graph.add("Div", graph.add("Sub", within, graph.constant(left)), graph.constant(to_left))
    falling = graph.add("Div", graph.add("Sub", graph.constant(right), within), graph.constant(to_right))
    # beyond its ends an axis goes on level
    rising = graph.add("Add", rising, graph.constant(np.isinf(to_left)))
    falling = graph.add("Add", falling, graph.constant(np.isinf(to_right)))
    hats = graph.add("Max", graph.add("Min", rising, falling), graph.constant(0.0))
    if outside == "hold":
        return hats
    return graph.add("Where", graph.add("Equal", within, value), hats, graph.constant(np.nan))


def _policy(graph: Graph, policy: DeployedPolicy) -> bytes:
    full = x = graph.input("x", policy.state_dim)
    past = ""
    if policy.past:
        past = _recalled(graph, policy.past, x, policy)
        full = graph.add("Concat", x, past, axis=1)
    centred = graph.add("Sub", full, graph.constant(policy.shift))
    h = graph.cast(graph.add("Div", centred, graph.constant(policy.scale)), FLOAT)
    for number, (weight, bias) in enumerate(policy.layers):
        if number:
            h = graph.add("Mul", h, graph.add("Sigmoid", h))
        if number + 1 == len(policy.layers):  # of the last layer, only the mean of the action is needed
            weight, bias = weight[:, : policy.action_dim], bias[: policy.action_dim]
        h = graph.add("Add", graph.add("MatMul", h, graph.constant(weight, FLOAT)), graph.constant(bias, FLOAT))
    action = graph.cast(graph.add("Tanh", h), DOUBLE)
    graph.output("action", action, policy.action_dim)
    about = "Sonde: x, state -> action in [-1, 1]; a network in single precision"
    if policy.past:
        began = graph.repeated(graph.constant([1.0]), graph.columns(x, 0, 1))
        memory = graph.add("Concat", past, x, action, began, axis=1)
        graph.output("next_memory", memory, memory_size(policy))
        about += "; memory: zeros where an episode begins, then the last next_memory"
    return graph.finish("policy", about)


def memory_size(policy: DeployedPolicy) -> int:
    """Numbers in the memory of a policy: the past, the last state and action, and whether there were any.

    Args:
        policy: The policy.
    """
    dims = policy.state_dim, policy.action_dim
    return policy.past.size(*dims) + sum(dims) + 1


def _recalled(graph: Graph, past: Past, x: str, policy: DeployedPolicy) -> str:
    """The past of the present state, as `Memory.recall` computes it."""
    dx, du = policy.state_dim, policy.action_dim
    size, changes = past.size(dx, du), past.changes * dx
    memory = graph.input("memory", memory_size(policy))
    parts: list[str] = []
    if past.changes:
        parts.append(graph.add("Sub", x, graph.columns(memory, size, size + dx)))
        if past.changes > 1:
            parts.append(graph.columns(memory, 0, changes - dx))
    parts.append(graph.columns(memory, size + dx, size + dx + du))
    if past.actions > 1:
        parts.append(graph.columns(memory, changes, size - du))
    moved = graph.add("Concat", *parts, axis=1)
    began = graph.add("Greater", graph.columns(memory, size + dx + du, size + dx + du + 1), graph.constant(0.5))
    return graph.add("Where", began, moved, graph.constant(0.0))
