"""Known physics on a pendulum with friction: how many rounds a swing-up takes, and whether parameters are found.

    python -m experiments.scripts.known_physics [--seeds 10] [--first-seed 0] [--rounds 3] [--arms none fixed ...] [--pe]
        [--noise STD] [--out FILE.json]

The true system has mass 1 and friction 0.1. Arms: no prior; a prior with a mass of 1.3 and no friction; the same with unknown
mass and friction; two wrong priors (reversed gravity, and a wheel without gravity). All use a Gaussian process and plans of
20 steps (`experiments.short_plans`), or the preset pendulum-pe-lite with --pe. Solved: at least 85 % of the way from random
actions to the oracle, which plans on the true equations with the same planner; both are means over the seeds.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from experiments.short_plans import SHORT_PLANS
from sonde.control import rollout
from sonde.evaluation import Learned, TaskSetup, TrueDynamics, evaluate, normalised_score
from sonde.explorer import Explorer
from sonde.models import KnownPhysics, Model
from sonde.runs import RunConfig, preset
from sonde.worlds import Pendulum

TRUE = Pendulum(friction=0.1)
PRIOR = Pendulum(mass=1.3)
RANGES = {"mass": (0.5, 2.0), "friction": (0.0, 0.5)}
TRUTH = {"mass": TRUE.mass, "friction": TRUE.friction}
SOLVED = 0.85


def moved(x, acceleration):
    """The state after a step with an angular acceleration."""
    speed = x[2] + TRUE.time_step * acceleration
    angle = jnp.arctan2(x[1], x[0]) + TRUE.time_step * speed
    return jnp.stack([jnp.cos(angle), jnp.sin(angle), speed])


def reversed_gravity(x, u):
    """A pendulum that falls upwards."""
    return moved(x, -15.0 * x[1] + 6.0 * u[0])


def wheel(x, u):
    """A wheel: the angle is a double integrator."""
    return moved(x, 6.0 * u[0])


def arms(model: Model) -> dict[str, Model]:
    """The models that are compared, by name.

    Args:
        model: What learns in all of them.
    """
    return {
        "none": model,
        "fixed": KnownPhysics(model, PRIOR),
        "ranges": KnownPhysics(model, PRIOR, RANGES),
        "wrong-gravity": KnownPhysics(model, reversed_gravity),
        "wheel": KnownPhysics(model, wheel),
    }


def run_arm(config: RunConfig, model: Model, seeds: tuple[int, ...], rounds: int) -> dict[str, list]:
    """Explore with one model.

    Args:
        config: Everything but the model.
        model: The model.
        seeds: The seeds, in lockstep.
        rounds: Number of rounds.

    Returns:
        Returns of the swing-up per round and seed, and estimates with their stds by name.
    """
    explorer = Explorer(config.method, model, config.solver, TRUE.spec, capacity=rounds * config.horizon, seeds=seeds)
    setup = TaskSetup.named(config.world, "swing-up", config.solver, config.evaluation_horizon)
    found: dict[str, list] = {"returns": [], "estimates": []}
    for _ in range(rounds):
        explorer.tell(rollout(config.world, explorer.ask(), config.horizon))
        learned = Learned(explorer.posterior, explorer.data)
        found["returns"].append(evaluate(setup, learned, explorer.keys(), starts=explorer.evaluation_keys()).returns.tolist())
        if isinstance(model, KnownPhysics):
            estimates = model.estimates(explorer.params)
            found["estimates"].append({name: [part.tolist() for part in pair] for name, pair in estimates.items()})
    return found


def references(config: RunConfig, seeds: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Returns of the oracle and of random actions, per seed.

    Args:
        config: The planner and the lengths.
        seeds: The seeds.
    """
    explorer = Explorer(config.method, config.model, config.solver, TRUE.spec, capacity=1, seeds=seeds)
    setup = TaskSetup.named(config.world, "swing-up", config.solver, config.evaluation_horizon)
    score = lambda learned: evaluate(setup, learned, explorer.keys(), starts=explorer.evaluation_keys()).returns
    return score(Learned(TrueDynamics(TRUE))), score(None)


def say(name: str, found: dict[str, list], oracle: np.ndarray, random: np.ndarray) -> None:
    """Print the table of one arm.

    Args:
        name: Name of the arm.
        found: What `run_arm` returned.
        oracle: Returns of the oracle.
        random: Returns of random actions.
    """
    for number, returns in enumerate(found["returns"]):
        scores = normalised_score(np.asarray(returns), random, oracle)
        line = f"{name:14} round {number + 1}: solved {np.sum(scores >= SOLVED)} of {len(scores)}, mean {np.mean(returns):.0f}"
        for parameter, (values, stds) in found["estimates"][number].items() if found["estimates"] else ():
            error = np.abs(np.asarray(values) - TRUTH[parameter])
            inside = np.sum(error <= 2 * np.asarray(stds))
            line += f"; {parameter}: error at most {np.max(error) / TRUTH[parameter]:.2%}, mean std {np.mean(stds):.1g}, "
            line += f"inside 2 stds {inside}"
        print(line, flush=True)


def main() -> None:
    """Run the arms and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--arms", nargs="*")
    parser.add_argument("--pe", action="store_true")
    parser.add_argument("--noise", type=float, default=0.0, help="std of the process noise")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    config = replace(preset("pendulum-pe-lite") if given.pe else SHORT_PLANS, world=replace(TRUE, process_noise=given.noise))
    seeds = tuple(range(given.first_seed, given.first_seed + given.seeds))
    oracle, random = references(config, seeds)
    print(f"oracle {np.mean(oracle):.0f}, random actions {np.mean(random):.0f}", flush=True)
    results: dict[str, object] = {"oracle": oracle.tolist(), "random": random.tolist()}
    for name, model in arms(config.model).items():
        if not given.arms or name in given.arms:
            start = time.process_time()
            results[name] = found = run_arm(config, model, seeds, given.rounds)
            say(name, found, oracle, random)
            print(f"{name:14} {time.process_time() - start:.0f} s of CPU", flush=True)
            if given.out:
                given.out.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
