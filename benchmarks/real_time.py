"""Real time: a pendulum is swung up at 50 Hz with what was learned of it, beside a planner without hurry.

Without the delay of the action itself: the pendulum is simulated, and each action acts from the instant at which the state was
measured. What the rate costs here is the planning that does not fit, and the old plans that stand in for it.
"""

import time
from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measuring import note
from sonde._internal.precision import double_precision
from sonde._internal.randomness import for_purpose
from sonde.control._controller import Controller
from sonde.control._deadline import seconds_per_action
from sonde.control._rollout import rollout
from sonde.evaluation._evaluate import task_policy
from sonde.evaluation._tasks import reward_named, task_named
from sonde.explorer import Explorer
from sonde.runs._config import RunConfig
from sonde.runs._presets import preset
from sonde.runs._run import build_explorer
from sonde.solvers import ICEM
from sonde.worlds._base import JaxWorld

RATE, TASK, SEEDS = 50.0, "swing-up", 5
PRESETS = "pendulum-gp-lite", "pendulum-pe-lite"


@double_precision
def benchmark(quick: bool) -> dict[str, Any]:
    """Per preset: times per action in ms, late actions, iterations, and the returns with and without hurry, one per seed."""
    return {name: _swing_up(replace(preset(name), seeds=1 if quick else SEEDS)) for name in PRESETS}


def _swing_up(config: RunConfig) -> dict[str, Any]:
    explorer, seconds, iterations, late, returns = _explored(config), [], [], 0, {"hurried": [], "unhurried": []}
    for seed in range(explorer.num_seeds):
        hurried = _controller(config, explorer, seed, seconds_per_action(None, RATE))
        value, took, iteration_sizes = _run(cast(JaxWorld, config.world), hurried, config.evaluation_horizon, 1 / RATE)
        note(f"    seed {seed} at {RATE:g} Hz: {hurried.timing}, {np.mean(iteration_sizes):.1f} iterations, return {value:.1f}")
        seconds, iterations, late = seconds + took, iterations + iteration_sizes, late + hurried.late
        returns["hurried"].append(value)
        unhurried = _controller(config, explorer, seed, None)
        returns["unhurried"].append(_run(cast(JaxWorld, config.world), unhurried, config.evaluation_horizon, 0.0)[0])
        note(f"    seed {seed} without hurry: {unhurried.timing}, return {returns['unhurried'][-1]:.1f}")
    mean = {name: float(np.mean(values)) for name, values in returns.items()}
    return {
        "rate": RATE,
        "actions": len(seconds),
        "late": late,
        **{f"p{share}_ms": 1e3 * float(np.percentile(seconds, share)) for share in (50, 99)},
        "max_ms": 1e3 * max(seconds),
        "iterations": float(np.mean(iterations)),
        "iterations_unhurried": cast(ICEM, config.solver).iterations,
        "returns": returns,
        "return_lost": (mean["unhurried"] - mean["hurried"]) / abs(mean["unhurried"]),
    }


def _explored(config: RunConfig) -> Explorer:
    """All episodes of the preset."""
    explorer = build_explorer(config)
    for round_number in range(config.rounds):
        note(f"{config.method} explores, {explorer.num_seeds} run(s), episode {round_number + 1} of {config.rounds} ...")
        explorer.tell(rollout(config.world, explorer.ask(), config.horizon))
    return explorer


def _controller(config: RunConfig, explorer: Explorer, seed: int, budget: float | None) -> Controller:
    """For one of the runs, as if it had been alone."""
    posterior, data = jax.tree.map(lambda leaf: leaf[seed : seed + 1], (explorer.posterior, explorer.data))
    keys = for_purpose(explorer.keys()[seed : seed + 1], f"evaluate/{TASK}")
    policy = task_policy(config.world, posterior, task_named(config.world, TASK), config.solver, data, keys)
    return Controller(policy, keys, config.world.state_dim, budget)


def _run(world: JaxWorld, policy: Controller, steps: int, period: float) -> tuple[float, list[float], list[int]]:
    """The return, the seconds that each action took and its iterations; there is a step every `period` seconds."""
    reward, step = jax.jit(reward_named(world, TASK)), jax.jit(world.step)
    key = for_purpose(policy.keys[0], "world")
    x = world.reset(for_purpose(policy.keys[0], "reset"))
    jax.block_until_ready(reward(x, jnp.zeros(world.action_dim), step(x, jnp.zeros(world.action_dim), key)))  # compiled
    rewards, seconds, iterations = [], [], []
    tick = time.perf_counter()
    for t in range(steps):
        measured, began = np.asarray(x), time.perf_counter()
        u = policy(measured)
        seconds.append(time.perf_counter() - began)
        iterations.append(policy.iterations)
        tick += period
        time.sleep(max(0.0, tick - time.perf_counter()))
        x_next = step(x, u, jax.random.fold_in(key, t))
        rewards.append(reward(x, u, x_next))
        x = x_next
    return float(np.sum(rewards)), seconds, iterations
