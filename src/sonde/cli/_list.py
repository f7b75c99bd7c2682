"""`sonde list`."""

from dataclasses import dataclass

import tyro

from sonde.methods import METHODS, SUMMARIES
from sonde.models import KERNELS, MODELS
from sonde.runs import PRESETS
from sonde.runs._config import world_label
from sonde.solvers import SOLVERS
from sonde.worlds import WORLDS


@dataclass
class ListArguments:
    """List presets, worlds and their tasks, models, kernels, solvers and methods."""


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
        _line(name, f"{parts}: {config.rounds} rounds of {steps} steps")
    print("worlds and their tasks")
    for name, world in WORLDS.items():
        _line(name, ", ".join(world().tasks) or _summary(world))
    _line("FILE.py:NAME", "a task of your own for any world: reward(x, u, x_next), written with jax.numpy")
    for title, table in (("models", MODELS), ("solvers", SOLVERS)):
        print(title)
        for name, kind in table.items():
            _line(name, _summary(kind))
    print("kernels of Gaussian processes")
    for name, kernel in KERNELS.items():
        _line(name, _summary(type(kernel)))
    print("methods")
    for name in METHODS:
        _line(name, SUMMARIES[name])


def _line(name: str, text: str) -> None:
    print(f"  {name:<23} {text}")


def _summary(kind: type) -> str:
    return (kind.__doc__ or "").splitlines()[0]
