"""Real time: swing up a pendulum at 50 Hz with what was learned of it, and compare with a planner without a deadline.

The pendulum is simulated, and each action acts from the instant at which the state was measured, so the delay of the action
itself is not part of the comparison. What the rate costs here is the planning that does not fit, and the actions of older plans
that replace it.
"""

import time
from dataclasses import replace
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measuring import note
from sonde._internal.precision import double_precision
from sonde._internal.randomness import for_purpose
from sonde.control import Controller, rollout
from sonde.control._deadline import seconds_per_action
from sonde.evaluation import Learned, plan_task
from sonde.evaluation._tasks import reward_named
from sonde.explorer import Explorer
from sonde.runs import RunConfig, preset
from sonde.runs._run import build_explorer
from sonde.solvers import ICEM
from sonde.worlds import JaxWorld

RATE, TASK, SEEDS = 50.0, "swing-up", 5
PRESETS = "pendulum-gp-lite", "pendulum-pe-lite"


class _Played(NamedTuple):
    """One rollout."""

    value: float
    """The return."""
    seconds: list[float]
    """Time that each action took."""
    iterations: list[int]
    """Iterations of the planner for each action."""


@double_precision
def benchmark(quick: bool) -> dict[str, Any]:
    """Measure all presets.

    Args:
        quick: Whether one seed is enough.

    Returns:
        Per preset: times per action in ms, late actions, iterations, and the returns of each seed at the rate and without a
        deadline.
    """
    return {name: _swing_up(replace(preset(name), seeds=1 if quick else SEEDS)) for name in PRESETS}


def _swing_up(config: RunConfig) -> dict[str, Any]:
    explorer, world, steps = _explored(config), cast(JaxWorld, config.world), config.evaluation_horizon
    seconds, iterations, late = list[float](), list[int](), 0
    returns: dict[str, list[float]] = {"at_rate": [], "without_deadline": []}
    for seed in range(explorer.num_seeds):
        at_rate = _controller(config, explorer, seed, seconds_per_action(None, RATE))
        played = _run(world, at_rate, steps, 1 / RATE)
        note(
            f"    seed {seed} at {RATE:g} Hz: {at_rate.timing}, {np.mean(played.iterations):.1f} iterations, "
            f"return {played.value:.1f}"
        )
        seconds, iterations, late = seconds + played.seconds, iterations + played.iterations, late + at_rate.late
        returns["at_rate"].append(played.value)
        unlimited = _controller(config, explorer, seed, None)
        returns["without_deadline"].append(_run(world, unlimited, steps, 0.0).value)
        note(f"    seed {seed} without a deadline: {unlimited.timing}, return {returns['without_deadline'][-1]:.1f}")
    mean = {name: float(np.mean(values)) for name, values in returns.items()}
    return {
        "rate": RATE,
        "actions": len(seconds),
        "late": late,
        **{f"p{share}_ms": 1e3 * float(np.percentile(seconds, share)) for share in (50, 99)},
        "max_ms": 1e3 * max(seconds),
        "iterations": float(np.mean(iterations)),
        "iterations_without_deadline": cast(ICEM, config.solver).iterations,
        "returns": returns,
        "return_lost": (mean["without_deadline"] - mean["at_rate"]) / abs(mean["without_deadline"]),
    }


def _explored(config: RunConfig) -> Explorer:
    """The explorer after all rounds of the preset."""
    explorer = build_explorer(config)
    for number in range(1, config.rounds + 1):
        note(f"{config.method.name} explores, {explorer.num_seeds} seed(s), round {number} of {config.rounds} ...")
        explorer.tell(rollout(config.world, explorer.ask(), config.horizon))
    return explorer


def _controller(config: RunConfig, explorer: Explorer, seed: int, budget: float | None) -> Controller:
    """The controller of one seed, as if it had been alone."""
    posterior, data = jax.tree.map(lambda leaf: leaf[seed : seed + 1], (explorer.posterior, explorer.data))
    setup, keys = config.task_setup(TASK), explorer.keys()[seed : seed + 1]
    policy = plan_task(setup, Learned(posterior, data), keys)
    return Controller(policy, setup.keys(keys), config.world.state_dim, budget)


def _run(world: JaxWorld, policy: Controller, steps: int, period: float) -> _Played:
    """Run a policy with a step every `period` seconds."""
    reward, step = jax.jit(reward_named(world, TASK)), jax.jit(world.step)
    key = for_purpose(policy.keys[0], "world")
    x = world.reset(for_purpose(policy.keys[0], "reset"))
    jax.block_until_ready(reward(x, jnp.zeros(world.action_dim), step(x, jnp.zeros(world.action_dim), key)))  # compiles
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
    return _Played(float(np.sum(rewards)), seconds, iterations)
