"""Policies, gains and models of a run for other programs: distilled networks and exported files."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from sonde._internal.errors import SondeError, did_you_mean
from sonde._internal.files import check_folder, write_atomically
from sonde._internal.lockstep import one_seed
from sonde._internal.precision import double_precision
from sonde._internal.user_code import task_label
from sonde.control import GainSchedule, LinearFeedback, to_c, to_onnx
from sonde.control.deploy import DeployedPolicy, load_policy
from sonde.evaluation import Distillation, Learned, distil, plan_task, run_task
from sonde.evaluation._distil import check_distillable
from sonde.models import Posterior
from sonde.runs._run import restore_explorer
from sonde.runs._store import RunStore
from sonde.worlds import has_simulator

CONTROLLER_FILES, MODEL_FILES = (".onnx", ".h", ".safetensors"), (".onnx", ".h")
"""How names of files end that a controller and a model can be written to."""


@double_precision
def distil_task(
    store: RunStore, task: str, settings: Distillation, starts: int, console: Console, out: Path | None = None
) -> Path:
    """Distil the planner of a task into a network, save it, and print what is lost.

    Args:
        store: The run.
        task: Name of the task, or FILE.py:NAME.
        settings: How.
        starts: Starts from which planner and network are compared on the learned model.
        console: Where to print.
        out: Where to save the network; by default with the policies of the run.

    Returns:
        The file.
    """
    label, setup = task_label(task), store.config.task_setup(task)
    check_distillable(setup)
    explorer = restore_explorer(store)
    learned, keys = Learned(explorer.posterior, explorer.recent), explorer.keys()
    with console.status(f"distilling {label} ..."):
        found = distil(replace(setup, rollouts=starts), learned, keys, settings)
    path = out or store.folder / "policies" / f"{label}.safetensors"
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, found.policy.to_bytes())
    columns = {"planner": found.planner.mean(axis=1), "network": found.network.mean(axis=1), "lost": found.lost}
    simulated = has_simulator(store.config.world)
    if simulated:
        with console.status("running both on the true system ..."):
            for name, policy in {"planner": plan_task(setup, learned, keys), "network": found.policy}.items():
                columns[f"{name}, true"] = run_task(setup, policy, explorer.evaluation_keys()).returns
    title = f"{label}: returns of {setup.horizon} steps on the learned model, mean over {starts} starts"
    console.print(title, markup=False, highlight=False)
    console.print(_table(explorer.seeds, columns))
    console.print("lost: planner minus network" + ("; true: on the true system, from its own starts" if simulated else ""))
    return path


def _table(seeds: tuple[int, ...], columns: dict[str, np.ndarray]) -> Table:
    table = Table("seed", *columns)
    for i, seed in enumerate(seeds):
        table.add_row(str(seed), *(f"{values[i]:z.2f}" for values in columns.values()))
    for column in table.columns:
        column.justify = "right"
    return table


def controller_of(
    source: Path, task: str | None, seed: int | None, allow_code: bool
) -> DeployedPolicy | LinearFeedback | GainSchedule:
    """Load the controller of a run, or one from a file.

    Args:
        source: Folder of the run, or the file.
        task: Name of the task; None for a file.
        seed: The seed; None for the first.
        allow_code: Whether code that the run names may run.
    """
    if source.suffix == ".safetensors":
        if task is not None:
            raise SondeError(f"deploy: {source} is one controller already: leave out --task")
        return load_policy(source, seed or 0)
    if source.is_file():
        raise SondeError(f"deploy: expected the folder of a run, or FILE.safetensors with a policy or gains, got {source}")
    if task is None:
        raise SondeError("deploy: name what to write: --task T for the policy of a task, --model for the learned model")
    index, label = _index(RunStore.open(source, allow_code), seed), task_label(task)
    path = source / "policies" / f"{label}.safetensors"
    if not path.exists():
        known = sorted(other.stem for other in path.parent.glob("*.safetensors"))
        listed = f"; there are {', '.join(known)}" if known else ""
        raise SondeError(
            f"{source} has no policy for {label!r}{listed};{did_you_mean(label, known)} the solver sac saves policies, and "
            f"'sonde distil {source} --task {task}' makes one from a planner"
        )
    return load_policy(path, index)


def model_of(source: Path, seed: int | None, allow_code: bool) -> Posterior:
    """Load what one seed of a run has learned.

    Args:
        source: Folder of the run.
        seed: The seed; None for the first.
        allow_code: Whether code that the run names may run.
    """
    store = RunStore.open(source, allow_code)
    index = _index(store, seed)
    if not store.checkpoints():
        raise SondeError(f"{store.folder} has no finished round yet: run 'sonde resume {store.folder}' first")
    return one_seed(restore_explorer(store).posterior, index)


def _index(store: RunStore, seed: int | None) -> int:
    seeds = store.config.seed_list
    if seed is not None and seed not in seeds:
        raise SondeError(f"{store.folder} has no seed {seed}; it has {', '.join(map(str, seeds))}")
    return 0 if seed is None else seeds.index(seed)


def check_out(out: Path, model: bool) -> None:
    """Reject a file that cannot be written, before anything is computed.

    Args:
        out: The file.
        model: Whether a model is to be written, and not a controller.
    """
    kinds = MODEL_FILES if model else CONTROLLER_FILES
    if out.suffix not in kinds:
        raise SondeError(
            f"deploy: {'a model' if model else 'a controller'} can be written to {', '.join(kinds)}, got {out.name!r}"
        )
    check_folder(out)


def write_for_deployment(
    what: DeployedPolicy | LinearFeedback | GainSchedule | Posterior,
    out: Path,
    batch: int | None = None,
    name: str | None = None,
) -> None:
    """Write a controller or a model in the format that the file's name says.

    Args:
        what: The controller or model.
        out: The file.
        batch: Rows per call of an ONNX graph; None for any number.
        name: What the names in a C header begin with; None for the name of the file.
    """
    if batch is not None and out.suffix != ".onnx":
        raise SondeError(f"deploy: --batch is for ONNX graphs, and {out.name} is none: leave it out")
    if name is not None and out.suffix != ".h":
        raise SondeError(f"deploy: --name is for C headers, and {out.name} is none: leave it out")
    if isinstance(what, LinearFeedback | GainSchedule) and out.suffix == ".safetensors":
        what.save(out)
        return
    if out.suffix == ".onnx":
        content = to_onnx(what, batch)
    elif out.suffix == ".h":
        if name is None and not out.stem[:1].isalpha():
            raise SondeError(f"deploy: names in C begin with a letter, and {out.name} does not: give them one with --name")
        content = to_c(what, name or re.sub(r"\W", "_", out.stem, flags=re.ASCII)).encode()
    else:
        assert isinstance(what, DeployedPolicy)
        content = what.to_bytes()
    write_atomically(out, content)
