"""`sonde distil DIR --task T`: turn a planner into a network."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from sonde._internal.errors import SondeError, whole
from sonde._internal.user_code import with_absolute_path
from sonde.cli._console import plain_console
from sonde.evaluation import Distillation
from sonde.runs._store import RunStore


@dataclass
class DistilArguments:
    """Distil the planner of a task into a network that needs no model, and print the return that this loses."""

    folder: tyro.conf.Positional[Path]
    """Folder of the run."""
    task: str
    """The task: one of the world's ('sonde list'), or FILE.py:NAME, a reward or Task of your own."""
    starts: int = 8
    """Starts from which planner and network are compared on the learned model."""
    iterations: int = Distillation.iterations
    """Times that states are collected and the network is trained; the planner acts in the first, the network in the others."""
    rollouts: int = Distillation.rollouts
    """Rollouts on the learned model per iteration."""
    layers: tuple[int, ...] = Distillation.layers
    """Widths of the network's hidden layers."""
    gradient_steps: int = Distillation.gradient_steps
    """Gradient steps after each iteration."""
    out: Path | None = None
    """FILE.safetensors for the network; by default it is saved with the policies of the run."""
    allow_code: bool = False
    """Run code of others that the run names, such as FILE.py:NAME; code that you ran before needs no permission."""


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.
    """
    chosen = tyro.cli(DistilArguments, args=args, prog="sonde distil")
    whole("distil", starts=chosen.starts)
    settings = Distillation(chosen.iterations, chosen.rollouts, chosen.layers, gradient_steps=chosen.gradient_steps)
    if chosen.out is not None and chosen.out.suffix != ".safetensors":
        raise SondeError(f"distil: the network cannot be written to {chosen.out.name!r}: end its name in .safetensors")
    store = RunStore.open(chosen.folder, chosen.allow_code)
    if not store.checkpoints():
        raise SondeError(f"{store.folder} has no finished round yet: run 'sonde resume {store.folder}' first")
    from sonde.runs._deploy import distil_task

    path = distil_task(store, with_absolute_path(chosen.task), settings, chosen.starts, plain_console(), chosen.out)
    print(f"Policy: {path}")
