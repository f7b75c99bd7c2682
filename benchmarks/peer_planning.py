"""Planning with an ensemble: `pytorch-icem` with an ensemble in plain PyTorch, and mbrl-lib, against ours at the same work.

Equal in both: samples, kept plans, iterations, horizon, particles, members, layers, widths, both heads, the imagined noise,
the optimistic choice among plausible states, and the information gain of every step. Weights are random in both, since the
work does not depend on them. Differences: PyTorch uses single precision throughout, where our states are double; `pytorch-icem`
counts kept plans among its samples, so it is given `samples + kept`, and it does not clip plans; ours also imagines the best
plan once more. mbrl-lib (`benchmarks/peer_mbrl.py`) keeps no plans in the last iteration, so it imagines a few less.
"""

import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from benchmarks import engine, peer_mbrl, work
from benchmarks.ensembles import CHEETAH_WITH_NOISE, FETCH, PENDULUM_WITH_NOISE, TINY, Setting, problem_of
from benchmarks.measuring import Plan, in_turns, installed, network_products, note
from benchmarks.rows import Row
from benchmarks.torch_ensemble import TorchEnsemble
from sonde._internal.errors import first_line


def _planner(torch: Any, icem: Any, ensemble: TorchEnsemble) -> Callable[[], Any]:
    """One planning step of `pytorch-icem`."""
    setting, solver = ensemble.setting, ensemble.setting.solver
    controls = setting.action_dim + setting.state_dim
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package copies a tensor in a way that PyTorch warns about
        planner = icem.iCEM(
            ensemble.dynamics,
            ensemble.cost,
            nx=setting.state_dim * setting.particles,
            nu=1,
            sigma=solver.initial_std,
            num_samples=solver.samples + solver.kept_elites,
            num_elites=solver.elites,
            elites_keep_fraction=(solver.kept_elites + 0.5) / solver.elites,
            horizon=solver.horizon,
            alpha=solver.momentum,
            noise_beta=solver.exponent,
            warmup_iters=solver.iterations,
            online_iters=solver.iterations,
        )
    # version 0.1.0 rejects more than one control by mistake: it compares their number with the number of axes
    planner.nu, planner.sigma = controls, torch.full((controls,), float(solver.initial_std))
    planner.reset()
    start = torch.zeros(setting.state_dim * setting.particles)

    def step():
        with torch.inference_mode():
            return planner.command(start)

    return step


def _faster(torch: Any, icem: Any, setting: Setting) -> tuple[TorchEnsemble, Callable[[], Any], str]:
    """PyTorch with or without its compiler, whichever is faster here."""
    plain = TorchEnsemble(torch, setting)
    compiled = TorchEnsemble(torch, setting)
    step = _planner(torch, icem, plain)
    try:
        compiled.step = torch.compile(compiled._step)
        compiled_step = _planner(torch, icem, compiled)
        compiled_step()
        first, second = in_turns({"plain": step, "compiled": compiled_step}, 1).values()
    except Exception as error:  # its compiler needs a C++ compiler, and fails in several ways
        note(f"torch.compile does not work here: {first_line(error)}")
        return plain, step, "eager"
    return (compiled, compiled_step, "compiled") if second.wall_seconds < first.wall_seconds else (plain, step, "eager")


def _peers(setting: Setting) -> Iterator[tuple[str, TorchEnsemble, Callable[[], Any]]]:
    """Name, ensemble and planning step of each package that can be used here."""
    if installed("torch", "pytorch_icem"):
        torch, icem = import_module("torch"), import_module("pytorch_icem")
        torch.manual_seed(0)
        ensemble, step, how = _faster(torch, icem, setting)
        yield f"pytorch-icem + PyTorch ({how})", ensemble, step
    if installed("torch", "mbrl"):
        try:
            yield "mbrl-lib", *peer_mbrl.planner(import_module("torch"), setting)
        except Exception as error:  # its pinned hydra-core 1.0.3 cannot be imported by Python 3.11
            note(f"peers: mbrl-lib does not work here, left out: {first_line(error)}")


def compare(plan: Plan) -> Iterator[Row]:
    """Rows of all packages for each size."""
    quick = CHEETAH_WITH_NOISE, FETCH
    for setting in {"tiny": (TINY,), "quick": quick, "full": (PENDULUM_WITH_NOISE, *quick)}[plan.effort]:
        note(f"peers: planning, {setting.name} ...")
        problem = problem_of(setting, 1)
        work_of = {"sonde": engine.planning(problem, setting.solver, 1)}
        transitions = {"sonde": work.imagined_transitions(setting.solver, problem.simulated_particles)}
        for name, ensemble, step in _peers(setting):
            step()  # the second call has plans from the first, as all later ones
            ensemble.transitions = 0
            step()
            work_of[name], transitions[name] = step, ensemble.transitions
        if len(work_of) == 1:
            return
        for name, timing in in_turns(work_of, plan.repeats).items():
            yield Row(
                "peers",
                f"planning, {setting.name}",
                1,
                timing.seconds,
                timing.wall_seconds,
                flop=work.ensemble_queries(setting.model, setting.state_dim, setting.action_dim, transitions[name]),
                products=network_products(),
                extra={"by": name, "transitions": transitions[name]},
            )
