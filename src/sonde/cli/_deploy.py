"""`sonde deploy DIR --task T --out FILE`: write a policy, gains or the learned model for other programs."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from sonde._internal.errors import SondeError


@dataclass
class DeployArguments:
    """Write a policy, gains or the learned model as an ONNX graph, a C99 header, or a file for the package sonde-deploy."""

    source: tyro.conf.Positional[Path]
    """Folder of the run, or FILE.safetensors with a policy or gains."""
    out: Path
    """FILE.onnx (needs the extra 'onnx'), FILE.h, or for a controller FILE.safetensors."""
    task: str | None = None
    """The task whose policy is written: one that was trained (solver sac) or distilled ('sonde distil')."""
    model: bool = False
    """Write the learned model: mean, epistemic and aleatoric std of the next state."""
    seed: int | None = None
    """Seed to write; the first by default. Of FILE.safetensors with several seeds: its position, from 0."""
    batch: int | None = None
    """Rows per call of an ONNX graph; any number by default."""
    name: str | None = None
    """What all names in a C header begin with; by default the name of the file."""
    allow_code: bool = False
    """Run code of others that the run names, such as FILE.py:NAME; code that you ran before needs no permission."""


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.
    """
    chosen = tyro.cli(DeployArguments, args=args, prog="sonde deploy")
    if chosen.model and chosen.task is not None:
        raise SondeError("deploy: --task and --model are two files: ask for one at a time")
    from sonde.runs._deploy import check_out, controller_of, model_of, write_for_deployment

    check_out(chosen.out, chosen.model)
    if chosen.model:
        what = model_of(chosen.source, chosen.seed, chosen.allow_code)
    else:
        what = controller_of(chosen.source, chosen.task, chosen.seed, chosen.allow_code)
    write_for_deployment(what, chosen.out, chosen.batch, chosen.name)
    print(f"{'Model' if chosen.model else 'Controller'}: {chosen.out}")
