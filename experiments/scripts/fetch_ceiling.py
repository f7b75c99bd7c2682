"""How good a model of the Fetch arm can become: train it on scripted play that shows all skills, then solve the tasks with it.

    python -m experiments.scripts.fetch_ceiling play --data play.safetensors [--transitions 200000] [--blocks 4] [--workers 16]
    python -m experiments.scripts.fetch_ceiling train --data play.safetensors --model relational --params R.safetensors
        [--set width=256 passes=2] [--steps 200000] [--limit SECONDS] [--seeds 3] [--out R.jsonl]
    python -m experiments.scripts.fetch_ceiling solve --params R.safetensors --model relational --task flip
        [--rollouts 20] [--horizon N] [--blocks 4] [--out R-flip.jsonl]

`train` prints errors of one step and of 30 after every part of the training, for each kind of quantity and for blocks that
move within that time and others, and saves the params; started again, it goes on from them. `solve` prints the success of each
model seed, with the planner of the preset; with another number of `--blocks` than in the training, the relational models only.
Each command is one process: several fit on an accelerator side by side. Models:

    mlp             the preset's ensemble
    relational      the relational ensemble of the preset fetch-relational
    smooth          fully connected networks, on smooth features and with the units of the relational ensemble
    relative        the same, which also see where each block is relative to the grip

`--rest-weight W` counts the errors of blocks at rest W times, for the last three.
"""

import argparse
import ast
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from jaxtyping import Array, Float

from experiments.scripted_play import Play, play, skills
from sonde._internal.files import write_atomically
from sonde._internal.precision import double_precision
from sonde._internal.randomness import for_purpose, round_keys
from sonde.data import Trajectory
from sonde.evaluation import Learned, evaluate
from sonde.explorer import Explorer, Told, fit_together
from sonde.methods import METHODS
from sonde.models import RelationalEnsemble
from sonde.models._ensemble import Ensemble
from sonde.models._network import Network
from sonde.runs import RunConfig, preset
from sonde.solvers import ICEM
from sonde.worlds import FetchConstruction
from sonde.worlds.fetch._layout import block_states

HELD_OUT = 60
"""Episodes that no model is trained on."""
AHEAD = 30
"""Steps of the longer simulations."""
STARTS = 20
"""Steps between the starts of two simulations in the same episode."""
MOVED = 0.002
"""Way in m that a block has gone if it counts as touched."""
STILL = 0.1
"""Largest normalised change of a block at rest."""
KINDS = {"position": slice(0, 3), "velocity": slice(6, 9), "spin": slice(9, 12)}


@dataclass(frozen=True)
class Weighted(RelationalEnsemble):
    """The relational ensemble with another weight for the errors of blocks at rest."""

    rest_weight: float = 1.0
    """How much they count."""

    def _loss(self, network: Any, z: Float[Array, "batch dz"], y: Float[Array, "batch dx"]) -> Float[Array, ""]:
        mean, _ = self.heads(network(z))
        blocks = self.bodies.split(y).objects
        weight = jnp.where(jnp.max(jnp.abs(blocks), axis=-1, keepdims=True) < STILL, self.rest_weight, 1.0)
        error = self.bodies.split((y - mean) ** 2)
        return (jnp.sum(error.agent) + jnp.sum(weight * error.objects)) / y.size


@dataclass(frozen=True)
class Smooth(Weighted):
    """Fully connected networks that see the relational ensemble's features."""

    relative: bool = False
    """Whether they also see where each block is relative to the grip."""

    def inputs_size(self, state_dim: int, input_dim: int) -> int:
        """Features, and positions relative to the grip."""
        return super().inputs_size(state_dim, input_dim) + (3 * self.bodies.count if self.relative else 0)

    def network_sizes(self, state_dim: int, input_dim: int) -> tuple[tuple[int, ...], ...]:
        """One network."""
        return ((self.inputs_size(state_dim, input_dim), *[self.width] * self.layers, state_dim),)

    def new_networks(self, state_dim: int, input_dim: int, key: Any) -> Any:
        """Fully connected networks."""
        (sizes,) = self.network_sizes(state_dim, input_dim)
        return jax.vmap(lambda k: Network.init(sizes, k, self.initial_scale))(jax.random.split(key, self.members))

    def inputs(self, normaliser: Any, x: Float[Array, "*n dx"], u: Float[Array, "*n du"]) -> Float[Array, "*n dz"]:
        """Features, and positions relative to the grip."""
        z, graph = super().inputs(normaliser, x, u), self.graph(u.shape[-1])
        if not self.relative:
            return z
        blocks = z[..., graph.agent :].reshape(*z.shape[:-1], graph.count, -1)[..., :3]
        return jnp.concatenate([z, (blocks - z[..., None, :3]).reshape(*z.shape[:-1], -1)], axis=-1)


def model_named(name: str, settings: list[str], rest_weight: float) -> Ensemble:
    """One of the models that are compared.

    Args:
        name: Its name, as above.
        settings: Changes of its fields, as FIELD=VALUE.
        rest_weight: Weight of the errors of blocks at rest.
    """
    mlp, relational = (preset(f"fetch-{kind}").model for kind in ("construction", "relational"))
    assert isinstance(mlp, Ensemble) and isinstance(relational, RelationalEnsemble)
    fields: dict[str, Any] = {field: getattr(relational, field) for field in relational.__dataclass_fields__}
    plain: dict[str, Any] = {**fields, "layers": mlp.layers, "width": mlp.width, "rest_weight": rest_weight}
    models: dict[str, Ensemble] = {
        "mlp": mlp,
        "relational": Weighted(**fields, rest_weight=rest_weight),
        "smooth": Smooth(**plain),
        "relative": Smooth(**plain, relative=True),
    }
    changes: dict[str, Any] = {
        field: ast.literal_eval(value) for field, value in (setting.split("=", 1) for setting in settings)
    }
    return replace(models[name], **changes)


def world_of(blocks: int) -> FetchConstruction:
    """The scene of all of this; angles do not jump, for any model."""
    return FetchConstruction(blocks=blocks, angles="continuous")


def report(options: argparse.Namespace, row: dict[str, Any]) -> None:
    """Print a row, and append it to the file."""
    line = json.dumps({key: round(value, 6) if isinstance(value, float) else value for key, value in row.items()})
    print(line, flush=True)
    if options.out is not None:
        with options.out.open("a") as file:
            file.write(line + "\n")


# ---- play --------------------------------------------------------------------------------------------------------------------


def make_play(options: argparse.Namespace) -> None:
    """Play, and save it."""
    began, episodes = time.monotonic(), -(-options.transitions // options.length) + HELD_OUT
    played = play(world_of(options.blocks), episodes, options.length, options.seed, options.workers)
    write_atomically(options.data, safetensors.numpy.save(played._asdict()))
    report(options, {"episodes": episodes, "seconds": time.monotonic() - began, **skills(played)})


def load_play(path: Path) -> tuple[Play, Play]:
    """Episodes to train on, and those that are held out, which come first."""
    arrays = safetensors.numpy.load(path.read_bytes())
    return Play(arrays["states"][HELD_OUT:], arrays["actions"][HELD_OUT:]), Play(
        arrays["states"][:HELD_OUT], arrays["actions"][:HELD_OUT]
    )


# ---- training ----------------------------------------------------------------------------------------------------------------


def explorer_of(model: Ensemble, blocks: int, seeds: int, capacity: int) -> Explorer:
    """What holds the model; it does not explore."""
    spec = world_of(blocks).spec
    return Explorer(METHODS["random"], model, ICEM(), spec, capacity=capacity, seeds=tuple(range(seeds)))


def told_play(explorer: Explorer, played: Play) -> Any:
    """The explorer's data with the play."""
    seeds = explorer.num_seeds
    flat = lambda rows: np.broadcast_to(rows.reshape(1, -1, rows.shape[-1]).astype(float), (seeds, *_sizes(rows)))
    ends = np.zeros((seeds, *played.actions.shape[:2]), bool)
    ends[..., -1] = True
    rows = flat(played.states[:, :-1]), flat(played.actions), flat(played.states[:, 1:])
    told = explorer.inputs(Trajectory(*rows, truncated=ends.reshape(seeds, -1)))
    return explorer._added(explorer.data, [told])


def _sizes(rows: np.ndarray) -> tuple[int, int]:
    return rows.shape[0] * rows.shape[1], rows.shape[2]


def save_params(path: Path, params: Any) -> None:
    """Save the numbers of a model; its settings are given again."""
    leaves = {f"{number:04d}": np.asarray(leaf) for number, leaf in enumerate(jax.tree.leaves(params))}
    write_atomically(path, safetensors.numpy.save(leaves))


def load_params(path: Path, like: Any) -> Any:
    """Read the numbers of a model of the same settings."""
    arrays = safetensors.numpy.load(path.read_bytes())
    leaves = [jnp.asarray(arrays[name]) for name in sorted(arrays)]
    expected = jax.tree.leaves(like)
    if [leaf.shape for leaf in leaves] != [leaf.shape for leaf in expected]:
        raise SystemExit(f"{path} has the params of another model: give the same --model, --set, --seeds and --blocks")
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


@double_precision
def train(options: argparse.Namespace) -> None:
    """Train in parts, and report errors after each."""
    training, held_out = load_play(options.data)
    blocks = (training.states.shape[-1] - 10) // 12
    part = replace(
        model_named(options.model, options.set, options.rest_weight), epochs=1_000_000, max_steps=options.part, patience=0
    )
    explorer = explorer_of(part, blocks, options.seeds, training.actions.shape[0] * training.actions.shape[1])
    params, data = explorer.params, told_play(explorer, training)
    if options.params.exists():
        params = load_params(options.params, params)
    explorer.params, began, steps = params, time.monotonic(), 0
    while steps < options.steps and time.monotonic() - began < options.limit:
        keys = for_purpose(round_keys(explorer.seeds, explorer.round), f"fit/{options.seed}")
        told = Told(explorer, data, keys, explorer.params, explorer.forgotten)
        told.learn(fit_together([told])[0])
        steps += options.part
        save_params(options.params, explorer.params)
        spent = time.monotonic() - began
        for seed, errors in enumerate(errors_of(explorer.posterior, held_out)):
            report(options, {"model": options.model, "seed": seed, "steps": steps, "seconds": spent, **errors})


# ---- errors ------------------------------------------------------------------------------------------------------------------


@eqx.filter_jit
def simulate(posterior: Any, starts: Float[Array, "N dx"], actions: Float[Array, "N T du"]) -> Float[Array, "S N T dx"]:
    """States that follow by the mean predictions of each seed."""

    def one(posterior: Any, x: Array, plan: Array) -> Array:
        step = lambda x, u: (posterior.predict(x, u).mean,) * 2
        return jax.lax.scan(step, x, plan)[1]

    per_seed = lambda posterior: jax.vmap(lambda x, plan: one(posterior, x, plan))(starts, actions)
    return jax.vmap(per_seed)(posterior)


def errors_of(posterior: Any, held_out: Play) -> list[dict[str, float]]:
    """Errors of each seed after one step and after many, and of the guess that nothing changes.

    Args:
        posterior: What was learned, of all seeds.
        held_out: Episodes that were not trained on.
    """
    states, actions = (np.asarray(array, float) for array in held_out)
    steps = min(AHEAD, actions.shape[1])
    starts = range(0, actions.shape[1] - steps + 1, STARTS)
    x = np.concatenate([states[:, start] for start in starts])
    plans = np.concatenate([actions[:, start : start + steps] for start in starts])
    truth = np.concatenate([states[:, start + 1 : start + 1 + steps] for start in starts])
    found = np.asarray(simulate(posterior, jnp.asarray(x), jnp.asarray(plans)))
    each = []
    for predicted in found:
        row = {}
        for ahead in (1, steps):
            for name, other in (("", predicted), ("still ", np.broadcast_to(x[:, None], truth.shape))):
                row |= {f"{name}{key}, {ahead}": value for key, value in kinds_of_errors(x, truth, other, ahead).items()}
        each.append(row)
    return each


def kinds_of_errors(x: np.ndarray, truth: np.ndarray, predicted: np.ndarray, ahead: int) -> dict[str, float]:
    """Root mean squares in m, rad, and per step, for the grip and for blocks that have moved or not.

    Args:
        x: States at the starts [N, dx].
        truth: States that followed [N, T, dx].
        predicted: States that were predicted [N, T, dx].
        ahead: Steps from the start to the states that are compared.
    """
    rms = lambda error: float(np.sqrt(np.mean(error**2))) if error.size else float("nan")
    error = (predicted - truth)[:, ahead - 1]
    row = {"grip": rms(error[:, :3]), "fingers": rms(error[:, 3:5])}
    begin, along = block_states(x)[..., :3], block_states(truth[:, :ahead])[..., :3]
    touched = (np.linalg.norm(along - begin[:, None], axis=-1) > MOVED).any(axis=1)
    blocks = block_states(error)
    turned = turns_between(block_states(predicted[:, ahead - 1])[..., 3:6], block_states(truth[:, ahead - 1])[..., 3:6])
    for name, chosen in (("touched", touched), ("untouched", ~touched)):
        row |= {f"{name} {kind}": rms(blocks[chosen][..., part]) for kind, part in KINDS.items()}
        row[f"{name} turn"] = rms(turned[chosen])
    return row


def turns_between(e: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Angles of the rotations between orientations [N, blocks]."""
    from scipy.spatial.transform import Rotation

    one, two = (Rotation.from_euler("XYZ", angles.reshape(-1, 3)) for angles in (e, other))
    return (one * two.inv()).magnitude().reshape(e.shape[:-1])


# ---- tasks -------------------------------------------------------------------------------------------------------------------


def config_for(blocks: int) -> RunConfig:
    """The preset with this number of blocks."""
    return replace(preset("fetch-relational"), world=world_of(blocks))


@double_precision
def solve(options: argparse.Namespace) -> None:
    """Solve a task by what was learned."""
    trained = options.trained_blocks or options.blocks
    model = model_named(options.model, options.set, options.rest_weight)
    explorer = explorer_of(model, trained, options.seeds, 1)
    explorer._set_state(explorer.data, load_params(options.params, explorer.params), 0)
    if options.blocks != trained:
        explorer = explorer.transferred(world_of(options.blocks).spec)
    setup = config_for(options.blocks).task_setup(options.task)
    setup = replace(setup, horizon=options.horizon or setup.horizon, rollouts=options.rollouts)
    if options.samples:
        assert isinstance(setup.solver, ICEM)
        setup = replace(setup, solver=replace(setup.solver, samples=options.samples))
    began = time.monotonic()
    found = evaluate(setup, Learned(explorer.posterior), explorer.keys(), starts=explorer.evaluation_keys())
    assert found.success is not None
    row = {"model": options.model, "task": options.task, "blocks": options.blocks, "rollouts": options.rollouts}
    each = {"success": found.success.tolist(), "returns": found.returns.tolist(), "seconds": time.monotonic() - began}
    report(options, {**row, "horizon": setup.horizon, **each})


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("play", "train", "solve"))
    parser.add_argument("--data", type=Path, default=Path("play.safetensors"), help="file of the play")
    parser.add_argument("--params", type=Path, default=Path("params.safetensors"), help="file of what was learned")
    parser.add_argument("--out", type=Path, help="file to append the rows to")
    parser.add_argument("--model", choices=("mlp", "relational", "smooth", "relative"), default="relational")
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=VALUE", help="other settings of the model")
    parser.add_argument("--rest-weight", type=float, default=1.0, help="weight of blocks at rest, but for mlp")
    parser.add_argument("--seeds", type=int, default=3, help="model seeds")
    parser.add_argument("--seed", type=int, default=0, help="seed of the play, and of the order of a training that goes on")
    parser.add_argument("--transitions", type=int, default=200_000, help="transitions of the play")
    parser.add_argument("--length", type=int, default=100, help="steps of each episode of the play")
    parser.add_argument("--workers", type=int, default=1, help="processes that play")
    parser.add_argument("--steps", type=int, default=200_000, help="gradient steps")
    parser.add_argument("--part", type=int, default=10_000, help="gradient steps between two reports")
    parser.add_argument("--limit", type=float, default=480.0, help="seconds after which no further part is begun")
    parser.add_argument("--task", choices=("flip", "pick-place", "throw"), default="flip")
    parser.add_argument("--rollouts", type=int, default=20, help="rollouts of each model seed")
    parser.add_argument("--horizon", type=int, default=0, help="steps of a rollout; 0 for the preset's")
    parser.add_argument("--samples", type=int, default=0, help="plans of the planner; 0 for the preset's")
    parser.add_argument("--blocks", type=int, default=4, help="blocks of the play, or of the task")
    parser.add_argument("--trained-blocks", type=int, default=0, help="blocks of the training, if others")
    options = parser.parse_args()
    {"play": make_play, "train": train, "solve": solve}[options.command](options)


if __name__ == "__main__":
    main()
