"""The relational ensemble: against networks written out in numpy, and equal under exchange of objects."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.work import member_layers
from experiments.scripts.pucks import load_pucks
from sonde import Explorer, SondeError, Trajectory
from sonde._internal.past import Past
from sonde.control._export._parts import parts_of
from sonde.data import Body, Data, StateLayout, SystemSpec
from sonde.methods import METHODS
from sonde.models import KnownPhysics, ProbabilisticEnsemble, RelationalEnsemble
from sonde.models._network import Network
from sonde.models._relational_network import RelationalNetwork
from sonde.runs import preset
from sonde.runs._memory import memory_need
from sonde.solvers import ICEM
from sonde.worlds import FetchConstruction, Pendulum

AGENT, OBJECT = Body(3, position=(0, 1)), Body(4, position=(1, 2), angles=(3,))
SMALL = RelationalEnsemble(members=2, layers=1, width=8, noise="fixed", batch_size=16, epochs=3, patience=0, warm_start=True)
QUICKLY = {"xla_backend_optimization_level": 0}


def layout(count: int) -> StateLayout:
    return StateLayout(AGENT, OBJECT, count)


def model_of(count: int, **settings) -> RelationalEnsemble:
    return replace(SMALL, layout=layout(count), **settings)


def spec_of(count: int) -> SystemSpec:
    return replace(SystemSpec.of_size(layout(count).state_dim, 2), layout=layout(count))


def measurements(count: int, rows: int = 60, seed: int = 0) -> Data:
    """Objects that turn, and are pushed away from the agent; none are hidden."""
    rng = np.random.default_rng(seed)
    agent, objects, actions = rng.normal(size=(rows, 3)), rng.normal(size=(rows, count, 4)), rng.uniform(-1, 1, (rows, 2))
    objects[..., 3] = rng.uniform(-np.pi, np.pi, (rows, count))
    after, agent_after = objects.copy(), agent + 0.1 * np.pad(actions, ((0, 0), (0, 1)))
    after[..., 1:3] += 0.05 * np.exp(-((objects[..., 1:3] - agent[:, None, :2]) ** 2))
    after[..., 3] = (objects[..., 3] + 0.4 + np.pi) % (2 * np.pi) - np.pi
    join = lambda a, b: jnp.asarray(np.concatenate([a, b.reshape(rows, -1)], axis=1))
    return Data(join(agent, objects), jnp.asarray(actions), join(agent_after, after), jnp.asarray(rows))


@partial(jax.jit, static_argnums=0, compiler_options=QUICKLY)
def fitted(model, data, key):
    params = model.init(data.states.shape[1], data.actions.shape[1], key)
    return model.fit(params, data, data.count, key)


@partial(jax.jit, static_argnums=0, compiler_options=QUICKLY)
def predict(model, params, data, x, u):
    return jax.vmap(model.condition(params, data).predict)(x, u)


def swish(h):
    return h / (1 + np.exp(-h))


def forward(network: Network, z, member: int = 0) -> np.ndarray:
    """One member's network in numpy and double precision."""
    h = np.asarray(z, float)
    for i, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        h = (swish(h) if i else h) @ np.asarray(weight[member], float) + np.asarray(bias[member], float)
    return h


def way(networks: RelationalNetwork, one, other, member: int, kinds=(0, 0)) -> np.ndarray:
    """From one body (0: an object, 1: the agent) to another, now and after the step; positions have two axes and come first."""
    graph, found, ends = networks.graph, [], [other[:2] - one[:2]]
    if graph.coasting:
        moved = [x[:2] + np.tanh(0.1 * forward(networks.alone[k], x, member)) for x, k in zip((one, other), kinds, strict=True)]
        ends.append(moved[1] - moved[0])
    for apart in ends:
        found += [apart]
        if graph.radial:
            distance, centres = np.sqrt(apart @ apart + 1e-6), np.linspace(0, graph.reach, graph.radial)
            found += [[distance], apart / distance, np.exp(-(((distance - centres) / (1.2 * centres[1])) ** 2))]
    return np.concatenate(found)


def written_out(networks: RelationalNetwork, agent, objects, member: int = 0) -> np.ndarray:
    """One pass of one member for one input, object by object and pair by pair."""
    nodes = [np.concatenate([o, agent, way(networks, agent, o, member, (1, 0))]) for o in objects]
    found = []
    for i, node in enumerate(nodes):
        heard = np.zeros(networks.edges[0].weights[-1].shape[-1])
        for j, other in enumerate(nodes):
            if j != i:
                pair = np.concatenate([node, other, way(networks, objects[i], objects[j], member)])
                heard += swish(forward(networks.edges[0], pair, member))
        found.append(forward(networks.objects[0], np.concatenate([node, heard]), member))
    told = sum(swish(forward(networks.touch, node, member)) for node in nodes)
    return np.concatenate([forward(networks.agent, np.concatenate([agent, told]), member), *found])


def random_networks(count: int, **settings) -> RelationalNetwork:
    """Networks of all members, with biases."""
    model = model_of(count, **settings)
    networks = model.new_networks(layout(count).state_dim, 2, jax.random.key(1))
    return jax.tree.map(lambda leaf: leaf + 0.3 * jax.random.normal(jax.random.key(2), leaf.shape, leaf.dtype), networks)


@pytest.fixture(scope="module")
def learned():
    """A model of two objects after a short training."""
    with jax.enable_x64(True):
        model, data = model_of(2), measurements(2)
        yield model, data, fitted(model, data, jax.random.key(0))


# ---- the network -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("count", "settings"), [(1, {}), (2, {"radial": 0}), (3, {}), (3, {"coasting": False})])
def test_network_agrees_with_one_written_out_pair_by_pair(x64, count, settings):
    networks = random_networks(count, **settings)
    rng = np.random.default_rng(0)
    agent, objects = rng.normal(size=(4, 5)), rng.normal(size=(4, count, 5))
    z = jnp.asarray(np.concatenate([agent, objects.reshape(4, -1)], axis=1))
    found = jax.vmap(lambda network: network(z))(networks)
    for member in range(2):
        expected = [written_out(networks, *each, member) for each in zip(agent, objects, strict=True)]
        np.testing.assert_allclose(found[member], expected, rtol=1e-4, atol=1e-4)


def test_two_objects_computed_by_hand(x64):
    """Weights of 0 and 1 and no hidden layer of more than one unit, so that a pocket calculator gives the numbers."""
    networks = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), random_networks(2, width=1, radial=0, coasting=False))
    # an agent of (place, -, height, two inputs), objects of (place, -, number, cosine, sine): see the layout
    at = lambda network, layer, rows, value: replace(
        network,
        weights=tuple(w.at[np.asarray(rows)].set(value) if i == layer else w for i, w in enumerate(network.weights)),
    )
    edge = at(networks.edges[0], 0, [24], 1.0)  # what an object hears is swish(how far to the right the other one is)
    node = at(at(networks.objects[0], 0, [12], 1.0), 1, [0], 1.0)  # it changes by swish(what it hears)
    touch = at(networks.touch, 0, [10], 1.0)  # the agent hears swish(how far to the right an object is)
    agent = at(at(networks.agent, 0, [5], 1.0), 1, [0], 1.0)
    network = replace(networks, edges=(edge,), objects=(node,), touch=touch, agent=agent)
    z = jnp.asarray([[0.0, 0, 0, 0, 0, 1.0, 0, 0, 0, 0, 3.0, 0, 0, 0, 0]])
    (found,) = np.asarray(network(z))
    # swish(2) = 1.761594, swish(-2) = -0.238406, swish(1) + swish(3) = 0.731059 + 2.857722 = 3.588781
    np.testing.assert_allclose(found[:3], 3.492282, rtol=1e-5)  # swish(3.588781)
    np.testing.assert_allclose(found[3:7], 1.503361, rtol=1e-5)  # swish(1.761594)
    np.testing.assert_allclose(found[7:], -0.105061, rtol=1e-4)  # swish(-0.238406)


def test_one_object_without_edges_is_a_plain_network(x64):
    networks = jax.tree.map(lambda leaf: leaf[0], random_networks(1))
    network, width = networks.objects[0], 8
    plain = Network((network.weights[0][:-width], *network.weights[1:]), network.biases)
    rng = np.random.default_rng(3)
    agent, single = rng.normal(size=(6, 5)), rng.normal(size=(6, 5))
    found = networks(jnp.asarray(np.concatenate([agent, single], axis=1)))
    first, pairs = jax.tree.map(lambda leaf: leaf[None], networks), zip(agent, single, strict=True)
    seen = np.stack([np.concatenate([one, own, way(first, own, one, 0, (1, 0))]) for own, one in pairs])
    np.testing.assert_allclose(found[:, 3:], plain(jnp.asarray(seen)), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"passes": 2, "edge_layers": 2, "noise": "learned"}])
def test_predictions_go_with_the_objects(x64, settings):
    """Exchanging objects exchanges what is predicted of them, and leaves the agent alone."""
    model, data = model_of(3, **settings), measurements(3)
    params = fitted(model, data, jax.random.key(0))
    order = [2, 0, 1]

    def exchanged(x):
        agent, objects = layout(3).split(jnp.asarray(x))
        return layout(3).join(layout(3).split(jnp.asarray(x))._replace(agent=agent, objects=objects[..., order, :]))

    one = predict(model, params, data, data.states, data.actions)
    other = predict(model, params, data, exchanged(data.states), data.actions)
    for name in ("mean", "epistemic_std", "aleatoric_std"):
        np.testing.assert_allclose(exchanged(getattr(one, name)), getattr(other, name), atol=1e-5)
    assert one.members is not None and other.members is not None
    np.testing.assert_allclose(exchanged(one.members.means), other.members.means, atol=1e-5)


@pytest.mark.slow
def test_network_in_rows_of_a_cpu_is_the_same(learned):
    """As planners on CPUs evaluate it: all queries together, in few rows and in many."""
    model, data, params = learned
    posterior = model.condition(params, data)
    rows = jnp.tile(data.states, (10, 1)), jnp.tile(data.actions, (10, 1))
    for count in (7, 600):
        one, other = (jax.vmap(each.predict)(*(a[:count] for a in rows)) for each in (posterior, posterior.specialise()))
        np.testing.assert_allclose(one.mean, other.mean, atol=1e-5)
        np.testing.assert_allclose(one.epistemic_std, other.epistemic_std, atol=1e-5)


@pytest.mark.slow
def test_members_and_derivatives_are_those_of_the_prediction(learned):
    model, data, params = learned
    posterior, x, u = model.condition(params, data), data.states[3], data.actions[3]
    members = posterior.predict(x, u).members
    np.testing.assert_allclose(posterior.member(jnp.asarray(1)).predict(x, u).mean, members.means[1], atol=1e-6)
    jacobian = posterior.predict_jacobian(x, u, jax.random.key(0), 1).mean
    for place in (0, 6, 12):  # the agent's position, an angle, an action; networks are in single precision
        step = 1e-2 * np.eye(13)[place]
        ends = [posterior.predict(x + sign * step[:11], u + sign * step[11:]).mean for sign in (1, -1)]
        np.testing.assert_allclose(jacobian[:, place], (ends[0] - ends[1]) / 2e-2, atol=2e-3)


@pytest.mark.slow
def test_it_is_not_exported(learned):
    model, data, params = learned
    with pytest.raises(SondeError, match="RelationalEnsemble cannot be exported"):
        parts_of(model.condition(params, data))


# ---- units -------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_objects_share_their_units(learned):
    """Against numpy: positions of all bodies are measured together, everything else by the rows of all objects."""
    _, data, params = learned
    agent, objects = layout(2).split(np.asarray(data.states))
    places = np.concatenate([agent[:, :2], objects[..., 1:3].reshape(-1, 2)])
    shift, scale = np.asarray(params.inputs.shift), np.asarray(params.inputs.scale)
    np.testing.assert_allclose(shift[:2], places.mean(axis=0))
    np.testing.assert_allclose(shift[5:7], places.mean(axis=0))
    np.testing.assert_allclose(scale[[0, 1, 5, 6]], np.sqrt(places.var(axis=0).mean()))
    np.testing.assert_allclose([shift[7], scale[7]], [objects[..., 0].mean(), objects[..., 0].std()])
    np.testing.assert_array_equal([shift[8:], scale[8:]], [[0, 0], [1, 1]])  # cosine and sine
    after = layout(2).split(np.asarray(data.next_states)).objects
    changes = (after - objects)[..., 1].ravel()
    np.testing.assert_allclose(params.targets.scale[4], changes.std())
    assert params.targets.scale.shape == (7,)


@pytest.mark.slow
def test_an_angle_that_jumps_is_predicted_without_a_jump(x64):
    """All objects turn by 0.4 rad; some pass pi, where the measured angle jumps by a full turn."""
    data = measurements(2, rows=200)
    model = model_of(2, epochs=150, learning_rate=1e-2, width=16)
    params = fitted(model, data, jax.random.key(0))
    turned = np.asarray(layout(2).split(data.next_states - data.states).objects)[..., 3]
    assert (turned < -5).any(), "no angle jumps"
    x = np.asarray(data.states).copy()
    x[:, [6, 10]] = np.linspace(2.5, 3.1, 200)[:, None]  # 0.4 further is beyond pi for most
    found = predict(model, params, data, jnp.asarray(x), data.actions)
    angles = np.asarray(found.mean)[:, [6, 10]]
    assert np.abs(angles).max() <= np.pi
    off = (angles - x[:, [6, 10]] - 0.4 + np.pi) % (2 * np.pi) - np.pi
    assert np.abs(off).max() < 0.15
    assert np.asarray(found.epistemic_std)[:, [6, 10]].max() < 0.15, "members disagree by turns"
    np.testing.assert_allclose(np.mean(found.members.means, axis=1), found.mean, atol=1e-9)
    np.testing.assert_allclose(np.std(found.members.means, axis=1), found.epistemic_std, atol=1e-9)


@pytest.mark.slow
def test_an_object_that_never_moved_is_predicted_like_the_others(x64):
    """The same state of either object gives the same prediction, though only the first one was ever moved."""
    data = measurements(2)
    agent, objects = layout(2).split(data.states)
    _, after = layout(2).split(data.next_states)
    still = objects.at[:, 1].set(jnp.asarray([0.1, 0.5, 0.5, 0.0]))
    join = lambda a, b: layout(2).join(layout(2).split(data.states)._replace(agent=a, objects=b))
    states, next_states = join(agent, still), join(agent, after.at[:, 1].set(still[:, 1]))
    data = replace(data, states=states, next_states=next_states)
    model = model_of(2)
    params = fitted(model, data, jax.random.key(0))
    swapped = join(agent, still[:, ::-1])
    one, other = (predict(model, params, data, x, data.actions).mean for x in (states, swapped))
    np.testing.assert_allclose(layout(2).split(one).objects[:, 0], layout(2).split(other).objects[:, 1], atol=1e-6)


# ---- training ----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_gradient_step_descends_the_error_of_the_networks_written_out(x64):
    """One step of Adam moves each weight by the learning rate against the gradient, here by differences in numpy."""
    data = measurements(2, rows=16)
    model = model_of(2, members=2, epochs=1, learning_rate=1e-3, weight_decay=0.0)
    start = model.init(11, 2, jax.random.key(0))
    params = fitted(model, data, jax.random.key(0))
    z = np.asarray(model.inputs(params.inputs, data.states, data.actions))
    y = np.asarray(model.every_target(params.targets)(model.changes(data.states, data.next_states)))

    def loss(networks):
        rows = [written_out(networks, row[:5], row[5:].reshape(2, 5)) for row in z]
        return np.mean((np.asarray(rows) - y) ** 2)

    parts = (lambda n: n.edges[0], lambda n: n.objects[0], lambda n: n.touch, lambda n: n.agent)
    for where in (*parts, lambda n: n.alone[0], lambda n: n.alone[1]):
        before, after = where(start.networks).weights[0][0], where(params.networks).weights[0][0]
        place = np.unravel_index(np.argmax(np.abs(after - before) * (np.abs(before) > 1e-3)), before.shape)

        def shifted(by, where=where, place=place):
            weights = where(start.networks).weights[0]
            other = weights.astype(float).at[(0, *place)].add(by)
            leaves = [other if leaf is weights else leaf for leaf in jax.tree.leaves(start.networks)]
            return jax.tree.unflatten(jax.tree.structure(start.networks), leaves)

        slope = (loss(shifted(1e-4)) - loss(shifted(-1e-4))) / 2e-4
        assert abs(slope) > 1e-6
        np.testing.assert_allclose((after - before)[place], -1e-3 * np.sign(slope), rtol=0.02)


@pytest.mark.slow
def test_seeds_and_members_are_fitted_by_one_program_and_rounds_go_on(x64):
    """With all that trainings offer: optimiser state, new rows, patience, learned noise; and planning by members."""
    data, spec = measurements(2), spec_of(2)
    model = replace(SMALL, noise="learned", keep_optimiser_state=True, new_share=0.5, patience=2)
    solver = ICEM(samples=8, elites=2, iterations=1, horizon=3)
    explorer = Explorer(METHODS["opax-heuristic"], model, solver, spec, capacity=120, seeds=(0, 1))
    rows = (np.stack([np.asarray(a)] * 2) for a in (data.states, data.actions, data.next_states))
    trajectory = Trajectory(*rows)
    explorer.tell(trajectory)
    explorer.tell(trajectory)
    prediction = explorer.predict(trajectory.states[:, 0], trajectory.actions[:, 0])
    assert prediction.mean.shape == (2, 11) and (prediction.epistemic_std > 0).all() and (prediction.aleatoric_std > 0).all()
    assert not np.allclose(*explorer.params.networks.agent.weights[0]), "seeds start from different weights"
    assert explorer.ask()(trajectory.states[:, 0]).shape == (2, 2)


# ---- numbers of objects ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_was_learned_holds_for_another_number_of_objects(x64):
    data, solver = measurements(2), ICEM(samples=8, elites=2, iterations=1, horizon=3)
    model = replace(SMALL, keep_optimiser_state=True)
    explorer = Explorer(METHODS["cee-us"], model, solver, spec_of(2), capacity=60, seeds=(0,))
    explorer.tell(Trajectory(np.asarray(data.states), np.asarray(data.actions), np.asarray(data.next_states)))
    params = jax.tree.map(lambda leaf: leaf[0], explorer.params)
    for count in (1, 4):
        other = explorer.transferred(spec_of(count))
        x, more = np.asarray(measurements(count, seed=7).states)[:1], measurements(count)
        found = other.predict(x, np.zeros((1, 2))).members
        z = np.asarray(model_of(count).inputs(params.inputs, jnp.asarray(x[0]), jnp.zeros(2)))
        wide = lambda v, count=count: np.concatenate([v[:3], np.tile(v[3:], count)])
        for member in range(2):
            change = written_out(params.networks, z[:5], z[5:].reshape(count, 5), member)
            expected = x[0] + wide(params.targets.scale) * change + wide(params.targets.shift)
            turns = (np.asarray(found.means)[0, member] - expected + np.pi) % (2 * np.pi) - np.pi
            np.testing.assert_allclose(turns, 0, atol=1e-4)  # angles may be brought into range
    other.tell(Trajectory(np.asarray(more.states), np.asarray(more.actions), np.asarray(more.next_states)))  # it learns on
    assert other.round == 1 and other.params.inputs.scale.shape == (1, 10)


@pytest.mark.slow
def test_only_the_number_of_objects_may_differ(x64):
    explorer = Explorer(METHODS["random"], SMALL, ICEM(), spec_of(2), capacity=60)
    other = StateLayout(AGENT, Body(4, position=(1, 2)), 2)
    with pytest.raises(SondeError, match="only the number of objects"):
        explorer.transferred(replace(spec_of(2), layout=other))
    with pytest.raises(SondeError, match="layout"):
        explorer.transferred(SystemSpec.of_size(11, 2))
    plain = Explorer(METHODS["random"], ProbabilisticEnsemble(members=2, layers=1, width=4), ICEM(), spec_of(2), capacity=60)
    with pytest.raises(SondeError, match="model relational"):
        plain.transferred(spec_of(3))


# ---- settings ----------------------------------------------------------------------------------------------------------------


def test_worlds_without_objects_are_rejected():
    for world in (Pendulum().spec, SystemSpec.of_size(3, 1)):
        with pytest.raises(SondeError, match="layout"):
            SMALL.check_system(world)
    with pytest.raises(SondeError, match="history"):
        SMALL.check_system(replace(spec_of(2), past=Past(0, 2)))
    SMALL.check_system(replace(spec_of(2), past=Past(2, 1)))
    with pytest.raises(SondeError, match="layout"):
        SMALL.init(11, 2, jax.random.key(0))
    with pytest.raises(SondeError, match="passes"):
        RelationalEnsemble(passes=0)
    with pytest.raises(SondeError, match="model"):
        replace(preset("fetch-relational"), world=Pendulum(), task_settings=())


@pytest.mark.slow
def test_known_physics_leaves_its_errors_to_objects(x64):
    """The physics moves nothing; what the networks inside learn is added to it, also across pi."""
    data = measurements(2, rows=200)
    inner = replace(SMALL, epochs=150, learning_rate=1e-2, width=16)
    model = KnownPhysics(inner, prior=lambda x, u: x).for_system(spec_of(2))
    assert not model.model.layout.object.bounded
    params = fitted(model, data, jax.random.key(0))
    found = np.asarray(predict(model, params, data, data.states, data.actions).mean)[:, [6, 10]]
    off = (found - np.asarray(data.states)[:, [6, 10]] - 0.4 + np.pi) % (2 * np.pi) - np.pi
    assert np.median(np.abs(off)) < 0.1


def test_presets_plan_with_blocks_and_need_a_stated_memory():
    for name in ("fetch-relational", "fetch-relational-lite"):
        config = preset(name)
        assert isinstance(config.model, RelationalEnsemble) and isinstance(config.world, FetchConstruction)
        assert config.world.angles == "continuous" and config.model.noise == "fixed"
        need = memory_need(config)
        weights = jax.eval_shape(
            lambda key, c=config: c.model.for_system(c.spec).init(c.spec.state_dim, 4, key), jax.random.key(0)
        )
        counted = sum(leaf.size for leaf in jax.tree.leaves(weights.networks))
        part = next(part for part in need.lasting if part.name == "the model's parameters")
        assert part.bytes == 2 * 3 * 4 * counted  # two copies, with two moments of the optimiser


# ---- pucks on a table --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_relational_needs_at_most_half_of_the_data_on_pucks():
    """Three pucks, both models exploring by themselves: the error in play after two rounds, and of the other after four."""
    pucks = load_pucks()
    world, errors = pucks.Pucks(), {}
    for name, rounds in (("relational", 2), ("pe", 4)):
        model = replace(pucks.models(steps=300)[name], members=3, width=32)
        *_, explorer = pucks.explore(world, model, rounds, seeds=(0, 1), steps=40)
        errors[name] = float(np.median(pucks.error_in_play(explorer, world)))
    assert errors["relational"] < errors["pe"], errors


def test_work_of_the_benchmark_is_counted_for_each_pair():
    """Two objects and one pass, by hand; a way has 2 x (2 + 1 + 2 + 8) = 26 numbers, an object and the agent have 5 each."""
    model = model_of(2)
    node, width = 36, 8
    expected = [2 * 72 * width + 2 * 26 * width]  # messages of both pairs
    expected += [2 * (node + width) * width, 2 * width * 4]  # the objects
    expected += [2 * node * width]  # messages to the agent
    expected += [(5 + width) * width, width * 3]  # the agent
    expected += [2 * 5 * 32, 2 * 32 * 2, 5 * 32, 32 * 2]  # where both objects and the agent would be
    assert member_layers(model, 11, 2) == expected
