"""One member of a relational ensemble: functions of objects and agent, and the messages between them.

Where one body is relative to another is told with its distance, its direction and radial basis functions of the distance, by
which a small network sees a contact sharply; and twice: as it is now, and as it would be after the step if nothing touched.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32

from sonde.data._layout import Bodies, joined
from sonde.models._network import Activation, MemberNetwork, Network, linear

SMALLEST_DISTANCE = 1e-3
"""In stds of positions; it keeps gradients of distances finite."""
RADIAL_WIDTH = 1.2
"""Width of a radial basis function in distances between two of them."""
COASTING = 0.1
"""Std in stds of positions that untrained networks give for the way of a body in a step; ways are at most one such std."""


@dataclass(frozen=True)
class Graph:
    """Sizes of what the functions take and give."""

    agent: int
    """Numbers that describe the agent and its inputs."""
    object: int
    """Numbers that describe an object."""
    count: int
    """Number of objects."""
    axes: int
    """Numbers of a position, which come first; 0 if objects have none."""
    placed_agent: bool
    """Whether the agent has a position too."""
    outputs: tuple[int, int]
    """Entries of the agent, and of an object, in the state."""
    heads: int
    """Outputs for each entry: 1, or 2 with one for the noise."""
    radial: int
    """Radial basis functions of a distance."""
    reach: float
    """Where the last of them is."""
    coasting: bool
    """Whether relative positions are also seen as they would be after the step if nothing touched."""

    @property
    def relative(self) -> int:
        """Numbers that describe where one body is relative to another."""
        once = 2 * self.axes + 1 + self.radial if self.radial else self.axes
        return (1 + self.coasting) * once if self.axes else 0

    @property
    def node(self) -> int:
        """Numbers that describe an object and the agent as it sees it."""
        return self.object + self.agent + (self.relative if self.placed_agent else 0)

    def described(self, apart: Float32[Array, "*n axes"]) -> Float32[Array, "*n numbers"]:
        """Describe a relative position, with its length, direction and radial basis functions if there are any.

        Args:
            apart: The relative position.
        """
        if not self.radial or not self.axes:
            return apart
        distance = jnp.sqrt(jnp.sum(apart**2, axis=-1, keepdims=True) + SMALLEST_DISTANCE**2)
        centres = np.linspace(0.0, self.reach, self.radial, dtype=np.float32)
        width = np.float32(RADIAL_WIDTH * self.reach / max(self.radial - 1, 1))
        near = jnp.exp(-(((distance - centres) / width) ** 2))
        return jnp.concatenate([apart, distance, apart / distance, near], axis=-1)


class RelationalNetwork(MemberNetwork):
    """Functions of objects and agent, and the messages between them."""

    edges: tuple[Network, ...]
    """What an object tells another one, in each pass."""
    objects: tuple[Network, ...]
    """What becomes of an object after each pass."""
    touch: Network
    """What an object tells the agent."""
    agent: Network
    """What becomes of the agent."""
    alone: tuple[Network, ...]
    """How far an object, and the agent, go in a step if nothing touches them; none without `coasting`."""
    graph: Graph = eqx.field(static=True)

    @property
    def rows_per_input(self) -> int:
        """One for each pair of objects, and one for each object."""
        return self.graph.count**2

    def __call__(self, z: Float[Array, "batch inputs"], swish: Activation = jax.nn.swish) -> Float32[Array, "batch outputs"]:
        """Evaluate the network for rows of the agent's numbers, then those of each object."""
        graph, z = self.graph, z.astype(jnp.float32)
        agent, objects = z[:, : graph.agent], z[:, graph.agent :].reshape(-1, graph.count, graph.object)
        places = self._places(agent, objects, swish)
        nodes = state = self._nodes(agent, objects, places)
        for number, (edge, node) in enumerate(zip(self.edges, self.objects, strict=True)):
            messages = self._messages(edge, state, places, swish)
            state = _of_rows(node, jnp.concatenate([state, messages], axis=-1), swish)
            if number + 1 < len(self.objects):
                state = jnp.concatenate([nodes, swish(state)], axis=-1)
        told = jnp.sum(swish(_of_rows(self.touch, nodes, swish)), axis=-2)
        of_agent = self.agent(jnp.concatenate([agent, told], axis=-1), swish)
        # heads come last, so each body's are next to each other: put the means of all bodies first
        of_agent = jnp.split(of_agent, graph.heads, axis=-1)
        of_objects = jnp.split(state, graph.heads, axis=-1)
        pairs = zip(of_agent, of_objects, strict=True)
        return jnp.concatenate([joined(Bodies(one, others)) for one, others in pairs], axis=-1)

    def _places(self, agent: Array, objects: Array, swish: Activation) -> list[Bodies]:
        """Positions of the agent [batch, 1, axes] and the objects: now, and after the step if nothing touched them."""
        graph = self.graph
        if not graph.axes:
            return []
        now = Bodies(agent[:, None, : graph.axes], objects[..., : graph.axes])
        if not graph.coasting:
            return [now]
        goes = lambda place, network, rows: place + jnp.tanh(COASTING * _of_rows(network, rows, swish))
        alone = goes(now.objects, self.alone[0], objects)
        return [now, Bodies(goes(now.agent, self.alone[1], agent[:, None]) if graph.placed_agent else now.agent, alone)]

    def _nodes(self, agent: Array, objects: Array, places: list[Bodies]) -> Float32[Array, "batch n node"]:
        """Each object, the agent, and where the one is relative to the other."""
        seen = jnp.broadcast_to(agent[:, None], (*objects.shape[:2], agent.shape[-1]))
        seen_from = places if self.graph.placed_agent else []
        apart = [self.graph.described(each.objects - each.agent) for each in seen_from]
        return jnp.concatenate([objects, seen, *apart], axis=-1)

    def _messages(
        self, edge: Network, nodes: Array, places: list[Bodies], swish: Activation
    ) -> Float32[Array, "batch n width"]:
        """Sum of what the others tell each object.

        The first layer is linear in what both are, so it is computed once per object and not once per pair.
        """
        (batch, count, size), width = nodes.shape, edge.weights[-1].shape[-1]
        if count == 1:
            return jnp.zeros((batch, count, width), jnp.float32)
        others = np.asarray([[j for j in range(count) if j != i] for i in range(count)])
        flat, weight = nodes.reshape(-1, size), edge.weights[0]
        received = linear(flat, weight[:size]).reshape(batch, count, 1, -1)
        sent = linear(flat, weight[size : 2 * size]).reshape(batch, count, -1)[:, others]
        h = received + sent + edge.biases[0]
        if places:
            apart = [self.graph.described(each.objects[:, others] - each.objects[:, :, None]) for each in places]
            h += _of_rows_linear(jnp.concatenate(apart, axis=-1), weight[2 * size :])
        told = swish(edge.after_first(h.reshape(-1, h.shape[-1]), swish))
        return jnp.sum(told.reshape(batch, count, count - 1, width), axis=2)


def _of_rows_linear(rows: Array, weight: Array) -> Array:
    """A matrix times rows [..., k]."""
    return linear(rows.reshape(-1, rows.shape[-1]), weight).reshape(*rows.shape[:-1], -1)


def _of_rows(network: Network, rows: Array, swish: Activation) -> Array:
    """A network of rows [..., k]."""
    return network(rows.reshape(-1, rows.shape[-1]), swish).reshape(*rows.shape[:-1], -1)
