"""`sonde list`: everything that has a name on the command line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tyro

from sonde.imagination import IMAGINATIONS
from sonde.methods import METHODS, SUMMARIES
from sonde.models import BETA_RULES, KERNELS, MODELS
from sonde.objectives import OBJECTIVES
from sonde.runs import PRESETS
from sonde.runs._config import world_label
from sonde.solvers import SOLVERS
from sonde.worlds import WORLDS

TABLES: dict[str, Mapping[str, Any]] = {
    "models (--model)": MODELS,
    "kernels of Gaussian processes (--model.kernel)": KERNELS,
    "solvers (--solver)": SOLVERS,
    "imaginations (--method.imagination)": IMAGINATIONS,
    "objectives (--method.objective)": OBJECTIVES,
    "rules for beta (--beta-rule)": BETA_RULES,
}


@dataclass
class ListArguments:
    """List presets, worlds and their tasks, methods, models, solvers, and the parts that these are made of."""


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.
    """
    tyro.cli(ListArguments, args=args, prog="sonde list")
    names = {kind: name for table in (MODELS, SOLVERS) for name, kind in table.items()}
    print("presets")
    for name, config in PRESETS.items():
        parts = f"{world_label(config.world)}, {names[type(config.model)]}, {names[type(config.solver)]}"
        steps = f"{config.rollouts} x {config.horizon}" if config.rollouts > 1 else config.horizon
        _print(name, f"{parts}: {config.rounds} rounds of {steps} steps")
    print("worlds and their tasks (--evaluation-tasks)")
    for name, world in WORLDS.items():
        _print(name, ", ".join(world().tasks) or _summary(world))
    _print("FILE.py:NAME", "a task of your own for any world: reward(x, u, x_next), written with jax.numpy")
    print("methods (--method)")
    for name in METHODS:
        _print(name, SUMMARIES[name])
    for title, table in TABLES.items():
        print(title)
        for name, part in table.items():
            _print(name, _summary(part))


def _print(name: str, text: str) -> None:
    print(f"  {name:<23} {text}")


def _summary(part: Any) -> str:
    """First line of the docstring of a class, or of that of an object."""
    if part is None:
        return "the imagination's own, fixed beta"
    kind = part if isinstance(part, type) else type(part)
    return (kind.__doc__ or "").splitlines()[0].rstrip(".")
