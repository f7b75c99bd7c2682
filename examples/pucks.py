"""A world of one's own that is made of objects: a hand pushes pucks about on a table.

    python examples/pucks.py [--rounds 6] [--model relational] [--pucks 3]

What the hand and each puck are is said once, in `layout`; the model relational then learns one puck from all of them, and its
knowledge holds for another number of pucks. docs/relational.md goes through this file.
"""

import argparse
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sonde import METHODS, Explorer, rollout
from sonde.data import Body, StateLayout
from sonde.models import Model, ProbabilisticEnsemble, RelationalEnsemble
from sonde.solvers import ICEM
from sonde.worlds import JaxWorld

RADIUS = 0.1
TABLE = 0.7
"""Half of the table's width."""
STIFFNESS, SOFTNESS = 400.0, 0.01
"""Of contacts: a force that rises smoothly over a centimetre."""
FRICTION, DRAG = 1.0, 0.5
PUSH = 4.0
SUBSTEPS, SECONDS = 10, 0.01


def contact(depth):
    """Force of a contact that is so deep."""
    return STIFFNESS * SOFTNESS * jax.nn.softplus(depth / SOFTNESS)


@dataclass(frozen=True)
class Pucks(JaxWorld):
    """A hand and pucks, each with position and velocity (x, y); the action is the force on the hand."""

    pucks: int = 3
    """Number of pucks."""

    @property
    def state_names(self):
        """Hand, then puck by puck."""
        bodies = ("hand", *(f"puck {i}" for i in range(self.pucks)))
        return tuple(f"{body} {what}" for body in bodies for what in ("x", "y", "vx", "vy"))

    @property
    def action_names(self):
        """Force."""
        return ("push x", "push y")

    @property
    def layout(self):
        """The hand acts, and the pucks are alike; the first two entries of each are where it is."""
        body = Body(4, position=(0, 1))
        return StateLayout(agent=body, object=body, count=self.pucks)

    def reset(self, key):
        """All on a ring in random order, at rest; the hand is in the middle."""
        turn, order = jax.random.split(key)
        angles = 2 * jnp.pi * (jnp.arange(self.pucks) / self.pucks + jax.random.uniform(turn))
        ring = 0.35 * jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=-1)
        ring = ring + jax.random.uniform(order, ring.shape, minval=-0.05, maxval=0.05)
        positions = jnp.concatenate([jnp.zeros((1, 2)), ring])
        return jnp.concatenate([positions, jnp.zeros_like(positions)], axis=-1).reshape(-1)

    def dynamics(self, x, u):
        """Contacts of all pairs and with the table's edge, and friction; all masses are 1 kg."""
        bodies = x.reshape(-1, 4)
        place, speed = bodies[:, :2], bodies[:, 2:]
        push = jnp.zeros_like(place).at[0].set(PUSH * u)

        def substep(carry, _):
            place, speed = carry
            apart = place[:, None] - place[None]
            distance = jnp.sqrt(jnp.sum(apart**2, axis=-1) + 1e-12)
            force = contact(2 * RADIUS - distance) * (1 - jnp.eye(len(place)))
            total = push + jnp.sum((force / distance)[..., None] * apart, axis=1)
            total += contact(-TABLE - place) - contact(place - TABLE)
            total -= FRICTION * jnp.tanh(speed / 0.02) + DRAG * speed
            speed = speed + SECONDS * total
            return (place + SECONDS * speed, speed), None

        place, speed = jax.lax.scan(substep, (place, speed), length=SUBSTEPS)[0]
        return jnp.concatenate([place, speed], axis=-1).reshape(-1)

    def step(self, x, u, key):
        """There is no noise."""
        return self.dynamics(x, u)

    def reachable_points(self):
        """Points of play in which the hand pushes one puck after the other."""
        return play(self)


@functools.cache
def play(world: Pucks, episodes: int = 40, steps: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """States and actions while the hand goes for a puck, with noise.

    Args:
        world: The table.
        episodes: Number of episodes.
        steps: Steps of each.
    """

    def episode(key):
        start, target, noise = jax.random.split(key, 3)
        aim = jax.random.randint(target, (steps // 10,), 1, world.pucks + 1)
        draws = jax.random.normal(noise, (steps, 2))

        def step(x, given):
            number, draw = given
            towards = x.reshape(-1, 4)[number, :2] - x[:2]
            u = jnp.clip(4.0 * towards - 0.3 * x[2:4] + 0.7 * draw, -1.0, 1.0)
            return world.dynamics(x, u), (x, u)

        return jax.lax.scan(step, world.reset(start), (jnp.repeat(aim, 10), draws))[1]

    states, actions = jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(1), episodes))
    flat = lambda array: np.asarray(array, float).reshape(-1, array.shape[-1])
    return flat(states), flat(actions)


def error_in_play(explorer: Explorer, world: Pucks) -> np.ndarray:
    """Error of the predicted changes in play of each seed, in stds of the true ones; root mean square over points and entries.

    Args:
        explorer: What has learned.
        world: The table.
    """
    points = world.reachable()
    for_all = lambda rows: np.broadcast_to(rows, (explorer.num_seeds, *rows.shape))
    predicted = explorer.predict(for_all(points.states), for_all(points.actions)).mean
    relative = (predicted - points.next_states) / (points.next_states - points.states).std(axis=0)
    return np.sqrt(np.mean(relative**2, axis=(1, 2)))


def models(steps: int = 2000) -> dict[str, Model]:
    """Both models, with the same training.

    Args:
        steps: Gradient steps after each round.
    """
    given: dict[str, Any] = {
        "noise": "fixed",
        "noise_std": 0.01,
        "patience": 0,
        "epochs": 10_000,
        "max_steps": steps,
        "learning_rate": 1e-3,
    }
    given |= {"smallest_spread": 1e-3}  # until a puck is touched, its numbers vary by nothing that matters
    return {
        "relational": RelationalEnsemble(members=5, width=64, layers=2, **given),
        "pe": ProbabilisticEnsemble(members=5, width=128, layers=2, affine=False, **given),
    }


def explore(world: Pucks, model: Model, rounds: int, seeds: tuple[int, ...] = (0,), steps: int = 50) -> Iterator[Explorer]:
    """Explore by OpAx's heuristic, and yield the explorer after each round.

    Args:
        world: The table.
        model: What learns.
        rounds: Number of rounds.
        seeds: Independent repetitions.
        steps: Steps of each round.
    """
    solver = ICEM(samples=64, elites=8, iterations=2, horizon=15, exponent=2.0, initial_std=1.0)
    explorer = Explorer(METHODS["opax-heuristic"], model, solver, world.spec, capacity=rounds * steps, seeds=seeds)
    for _ in range(rounds):
        explorer.tell(rollout(world, explorer.ask(), steps))
        yield explorer


def main() -> None:
    """Explore, and say how well pucks are predicted, then use what was learned for more of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6, help="number of rounds of 50 steps")
    parser.add_argument("--model", choices=("relational", "pe"), default="relational", help="what learns")
    parser.add_argument("--pucks", type=int, default=3, help="number of pucks")
    options = parser.parse_args()
    world, explorer = Pucks(options.pucks), None
    for explorer in explore(world, models()[options.model], options.rounds):
        print(f"round {explorer.round}: error in play {error_in_play(explorer, world)[0]:.3f}", flush=True)
    if explorer is not None and options.model == "relational":
        more = Pucks(options.pucks + 2)
        print(f"{more.pucks} pucks: error in play {error_in_play(explorer.transferred(more.spec), more)[0]:.3f}")


if __name__ == "__main__":
    main()
