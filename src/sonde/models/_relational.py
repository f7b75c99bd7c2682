"""An ensemble of networks that know that the state is made of an agent and equal objects.

One function says what becomes of an object, from what it is itself, what the agent is and does, and the sum of messages from
the other objects; another one says what an object tells another, and a third and fourth do the same for the agent. As each is
the same for all objects, what is learned of one holds for all, their order makes no difference, and neither does their number.
Objects share the units of inputs and targets as well, so one that never moved is as well described as the others.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array, Bool, Float, Key

from sonde._internal.errors import SondeError, positive, whole
from sonde.data import Data, StateLayout, SystemSpec
from sonde.data._layout import Bodies, joined
from sonde.models._base import MemberPredictions, Prediction
from sonde.models._ensemble import Average, Ensemble, EnsembleParams, MemberOutputs
from sonde.models._ensemble_posterior import EnsemblePosterior
from sonde.models._network import Network
from sonde.models._normaliser import SMALLEST_ACTION_SPREAD, Normaliser
from sonde.models._relational_network import Graph, RelationalNetwork

NO_LAYOUT = (
    "the model relational needs to know what belongs to the agent and what to each object: give the world a `layout` "
    "(sonde.data.StateLayout), or use the model pe"
)
ALONE_WIDTH = 32
"""Hidden units of what says how far a body goes if nothing touches it."""


@dataclass(frozen=True)
class RelationalEnsemble(Ensemble):
    """Ensemble of networks for systems of equal objects, which share what is learned of each."""

    width: int = 128
    """Units of each hidden layer."""
    edge_layers: int = 1
    """Layers of the messages between objects, and from them to the agent."""
    passes: int = 1
    """How often objects exchange messages within a step: with 2, an object feels what those that touch it feel."""
    radial: int = 8
    """Radial basis functions of the distance of two bodies, by which a network sees contacts sharply; 0: positions only."""
    reach: float = 1.5
    """Distance at which the last of them is, in stds of all positions."""
    coasting: bool = True
    """Whether networks also see where bodies would be after the step if nothing touched them, by a small learned function."""
    layout: Annotated[StateLayout | None, tyro.conf.Suppress] = None
    """How the state is made; None for the world's own, which an `Explorer` puts here."""

    def __post_init__(self):
        """Reject settings that cannot work."""
        super().__post_init__()
        whole("model", edge_layers=self.edge_layers, passes=self.passes)
        positive("model", reach=self.reach)
        if self.radial != 0:
            whole("model", radial=self.radial)

    def check_system(self, spec: SystemSpec) -> None:
        """Reject systems whose state is not made of objects, or has a past in which they are mixed."""
        if spec.layout is None:
            raise SondeError(f"system: {NO_LAYOUT}")
        if spec.past.changes:
            raise SondeError(
                "system: the model relational sees one observation at a time, got a history of "
                f"{spec.past.history}: set it to 1, or use the model pe"
            )

    def for_system(self, spec: SystemSpec) -> "RelationalEnsemble":
        """The same with the system's layout."""
        return replace(self, layout=spec.layout)

    def transferred(self, params: EnsembleParams, spec: SystemSpec) -> EnsembleParams:
        """The same functions for another number of objects."""
        old, new = self.bodies, self.for_system(spec).bodies
        if old.with_count(new.count) != new:
            raise SondeError(f"model: what was learned of {old} does not hold for {new}: only the number of objects may differ")
        like = jax.eval_shape(partial(self.for_system(spec).init, spec.state_dim, spec.input_dim), jax.random.key(0))
        sizes = [leaf.shape[leaf.ndim - new.ndim :] == new.shape for leaf, new in _pairs(params, like)]
        if not all(sizes):
            raise SondeError("model: what was learned with other inputs beside the state does not hold for this system")
        carried = jax.tree.unflatten(jax.tree.structure(like), jax.tree.leaves(params))
        return carried if carried.told is None else replace(carried, told=jnp.zeros_like(carried.told))

    @property
    def bodies(self) -> StateLayout:
        """The layout."""
        if self.layout is None:
            raise SondeError(f"model: {NO_LAYOUT}")
        return self.layout

    def inputs_size(self, state_dim: int, input_dim: int) -> int:
        """What describes the agent, and each object."""
        graph = self.graph(input_dim)
        return graph.agent + graph.count * graph.object

    @property
    def live_units(self) -> int:
        """Those of all pairs of objects."""
        return self.width * self.bodies.count**2

    def graph(self, input_dim: int) -> Graph:
        """Sizes of the functions.

        Args:
            input_dim: Number of inputs beside the state.
        """
        agent, body = self.bodies.agent, self.bodies.object
        return Graph(
            agent=agent.feature_dim + input_dim,
            object=body.feature_dim,
            count=self.bodies.count,
            axes=len(body.position),
            placed_agent=bool(agent.position),
            outputs=(agent.width, body.width),
            heads=1 if self.noise == "fixed" else 2,
            radial=self.radial,
            reach=self.reach,
            coasting=self.coasting and bool(body.position),
        )

    def network_sizes(self, state_dim: int, input_dim: int) -> tuple[tuple[int, ...], ...]:
        """Of messages and objects, pass by pass, of messages to the agent, of the agent, and of what goes on alone."""
        graph, hidden, told = self.graph(input_dim), (self.width,) * self.layers, (self.width,) * self.edge_layers
        states = [graph.node + (self.width if number else 0) for number in range(self.passes)]
        ends = [self.width] * (self.passes - 1) + [graph.heads * graph.outputs[1]]
        edges = tuple((2 * size + graph.relative, *told) for size in states)
        objects = tuple((size + self.width, *hidden, end) for size, end in zip(states, ends, strict=True))
        agent = (graph.agent + self.width, *hidden, graph.heads * graph.outputs[0])
        alone = [graph.object, graph.agent][: (1 + graph.placed_agent) * graph.coasting]
        return (*edges, *objects, (graph.node, *told), agent, *((size, ALONE_WIDTH, graph.axes) for size in alone))

    def new_networks(self, state_dim: int, input_dim: int, key: Key[Array, ""]) -> RelationalNetwork:
        """Random networks."""
        sizes, graph, passes = self.network_sizes(state_dim, input_dim), self.graph(input_dim), self.passes

        def member(key: Key[Array, ""]) -> RelationalNetwork:
            keys = jax.random.split(key, len(sizes))
            each = tuple(Network.init(one, k, self.initial_scale) for one, k in zip(sizes, keys, strict=True))
            touch, agent, *alone = each[2 * passes :]
            return RelationalNetwork(each[:passes], each[passes : 2 * passes], touch, agent, tuple(alone), graph)

        return jax.vmap(member)(jax.random.split(key, self.members))

    def no_normalisation(self, state_dim: int, input_dim: int) -> tuple[Normaliser, Normaliser]:
        """A number for each that describes the agent, and for each that describes any object."""
        graph = self.graph(input_dim)
        return Normaliser.identity(graph.agent + graph.object), Normaliser.identity(sum(graph.outputs))

    def normalisers(self, data: Data) -> tuple[Normaliser, Normaliser]:
        """By the rows of the agent, and those of all objects together."""
        return self._input_normaliser(data), self._target_normaliser(data)

    def _input_normaliser(self, data: Data) -> Normaliser:
        """Positions of all bodies share a shift, and all axes one scale; features of angles stay as they are."""
        layout, mask = self.bodies, data.mask()
        agent, objects = layout.features(data.states)
        objects, of_objects = _rows(objects), jnp.repeat(mask, layout.count)
        normal = lambda rows, mask: Normaliser.of(rows, mask, self.smallest_spread)
        own, given, each = normal(agent, mask), normal(data.actions, mask), normal(objects, of_objects)
        given = replace(given, scale=jnp.maximum(given.scale, SMALLEST_ACTION_SPREAD))
        own, each = _unscaled_after(own, layout.agent.scaled), _unscaled_after(each, layout.object.scaled)
        if axes := len(layout.object.position):
            placed, used = objects[:, :axes], of_objects
            if layout.agent.position:
                placed, used = jnp.concatenate([placed, agent[:, :axes]]), jnp.concatenate([used, mask])
            shift = normal(placed, used).shift
            scale = normal((placed - shift).reshape(-1, 1), jnp.repeat(used, axes)).scale
            each = _with_first(each, shift, scale)
            own = _with_first(own, shift, scale) if layout.agent.position else own
        return _side_by_side(own, given, each)

    def _target_normaliser(self, data: Data) -> Normaliser:
        layout, mask = self.bodies, data.mask()
        of_objects = jnp.repeat(mask, layout.count)
        agent, objects = layout.split(self.changes(data.states, data.next_states))
        largest, largest_of_objects = layout.split(jnp.maximum(jnp.abs(data.states), jnp.abs(data.next_states)))
        least, least_of_objects = None, None
        if data.smallest_change is not None:
            least, each = layout.split(data.smallest_change)
            least_of_objects = jnp.max(each, axis=0)
        own = Normaliser.of(agent, mask, self.smallest_spread, largest, least)
        rows = _rows(objects), of_objects, self.smallest_spread, _rows(largest_of_objects)
        return _side_by_side(own, Normaliser.of(*rows, least_of_objects))

    def inputs(self, normaliser: Normaliser, x: Float[Array, "*n dx"], u: Float[Array, "*n du"]) -> Float[Array, "*n dz"]:
        """Features of the agent, inputs, and features of each object."""
        layout = self.bodies
        agent, objects = layout.features(x)
        z = joined(Bodies(jnp.concatenate([agent, u], axis=-1), objects))
        return self._for_each(normaliser, agent.shape[-1] + u.shape[-1])(z)

    def changes(self, x: Float[Array, "*n dx"], x_next: Float[Array, "*n dx"]) -> Float[Array, "*n dx"]:
        """Differences, of angles the short way round (`StateLayout.changes`)."""
        return self.bodies.changes(x, x_next)

    def every_target(self, normaliser: Normaliser) -> Normaliser:
        """The objects' numbers, repeated for each of them."""
        return self._for_each(normaliser, self.bodies.agent.width)

    def _for_each(self, normaliser: Normaliser, agent: int) -> Normaliser:
        repeated = lambda v: jnp.concatenate([v[:agent], jnp.tile(v[agent:], self.bodies.count)])
        return Normaliser(repeated(normaliser.shift), repeated(normaliser.scale))

    def condition(self, params: EnsembleParams, data: Data) -> EnsemblePosterior:
        """The trained networks."""
        del data
        return EnsemblePosterior.of(self, params)

    def prediction(
        self, params: EnsembleParams, x: Float[Array, " dx"], z: Float[Array, " dz"], outputs: MemberOutputs, average: Average
    ) -> Prediction:
        """Apply the changes that each member predicts; all are brought into the angles' range by the mean's shift."""
        del z
        layout, units, (means, stds) = self.bodies, self.every_target(params.targets), outputs
        after = layout.moved(x, units.shift + units.scale * means)
        centre = average(after)
        noise = layout.stds(centre, units.scale * stds)
        return Prediction(
            mean=layout.in_range(centre, centre),
            epistemic_std=jnp.sqrt(average((after - centre) ** 2)),
            aleatoric_std=jnp.sqrt(average(noise**2)),
            members=MemberPredictions(layout.in_range(after, centre), noise),
        )


def _pairs(one: Any, other: Any) -> Iterator[tuple[Any, Any]]:
    """Arrays of two pytrees that differ in static numbers only."""
    return zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)


def _rows(values: Float[Array, "capacity n d"]) -> Float[Array, "rows d"]:
    """One row for each object of each measurement."""
    return values.reshape(-1, values.shape[-1])


def _unscaled_after(normaliser: Normaliser, scaled: int) -> Normaliser:
    """The same without an effect on what has no units."""
    some: Bool[np.ndarray, " d"] = np.arange(normaliser.shift.shape[0]) < scaled
    return Normaliser(jnp.where(some, normaliser.shift, 0.0), jnp.where(some, normaliser.scale, 1.0))


def _with_first(normaliser: Normaliser, shift: Float[Array, " k"], scale: Float[Array, "1"]) -> Normaliser:
    """The same with other numbers for the first columns."""
    size = shift.shape[0]
    scales = jnp.concatenate([jnp.broadcast_to(scale, (size,)), normaliser.scale[size:]])
    return Normaliser(jnp.concatenate([shift, normaliser.shift[size:]]), scales)


def _side_by_side(*parts: Normaliser) -> Normaliser:
    return Normaliser(jnp.concatenate([part.shift for part in parts]), jnp.concatenate([part.scale for part in parts]))
