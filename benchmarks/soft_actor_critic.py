"""One policy optimisation with soft actor-critic, at the size of the paper's MountainCar: to explore, and for the task."""

import itertools
import time
from typing import Any, cast

import jax
import jax.numpy as jnp

from benchmarks.measuring import gemm_rate, in_lockstep, measure, note
from sonde.data import Data
from sonde.explorer import _condition, _init
from sonde.imagination import Mean, Optimistic
from sonde.objectives import InformationGain, TaskReward
from sonde.presets import preset
from sonde.solvers import SAC, ControlProblem
from sonde.solvers.solve import solve


def gradient_flops(solver: SAC, state_dim: int, control_dim: int) -> int:
    """Of one gradient step, counting matrix products only."""
    layers = lambda sizes: [a * b for a, b in itertools.pairwise(sizes)]
    critic = layers([state_dim + control_dim, *solver.critic, 1])
    actor = layers([state_dim, *solver.actor, 2 * control_dim])
    # per pair of critics: targets forward; loss forward, by weights, by inputs of all layers but the first; for the actor
    # forward and by inputs. The actor: forward twice, by weights, by inputs of all layers but the first
    per_row = 2 * (6 * sum(critic) - critic[0]) + 4 * sum(actor) - actor[0]
    return 2 * solver.batch * per_row


def benchmark(quick: bool) -> dict[str, Any]:
    config = preset("mountain-car")
    solver, world = cast(SAC, config.solver), config.world
    dims, keys = (world.state_dim, world.action_dim), jax.random.split(jax.random.key(0), 1)
    reachable = world.reachable()
    assert reachable is not None
    x, u, x_next = map(jnp.asarray, reachable)
    data = in_lockstep(Data(x, u, x_next, jnp.asarray(len(x))), 1)
    posterior, _ = _condition(config.model, _init(config.model, *dims, keys), data, False, 0.0)
    reward = next(iter(world.tasks.values()))
    problems = {
        "explore": ControlProblem(posterior, Optimistic(config.beta), InformationGain(), *dims, 1, config.model.ensemble_size),
        "task": ControlProblem(posterior, Mean(), TaskReward(reward), *dims, 1),
    }
    results = []
    for name, problem in problems.items():
        note(f"soft actor-critic, {name} ...")
        began = time.perf_counter()
        jax.block_until_ready(jax.tree.leaves(solve(solver, problem, data, keys)))
        first = time.perf_counter() - began
        rate = gemm_rate(jnp.float32, "default")
        result = measure(lambda p=problem: jax.tree.leaves(solve(solver, p, data, keys)), 1 if quick else 3)
        steps = solver.training_steps * solver.gradient_steps
        flops = steps * gradient_flops(solver, world.state_dim, problem.control_dim)
        rate = (rate + gemm_rate(jnp.float32, "default")) / 2
        results.append(
            {
                "policy": name,
                "gradient_steps": steps,
                **result,
                "compile_wall_seconds": first - result["wall_seconds"],
                "gflop_per_second": flops / result["seconds"] / 1e9,
                "gemm_gflop_per_second": rate,
                "share_of_gemm_rate": flops / result["seconds"] / 1e9 / rate,
            }
        )
    return {"policies": results}
