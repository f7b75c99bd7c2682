"""The text of `sonde list`, from the tables of names; as a program, it writes the file that the command prints."""

from collections.abc import Iterator, Mapping
from typing import Any

from sonde.cli._list import LISTING
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


def listing() -> str:
    """Everything that has a name on the command line, as `sonde list` prints it."""
    return "".join(f"{line}\n" for line in _lines())


def _lines() -> Iterator[str]:
    names = {kind: name for table in (MODELS, SOLVERS) for name, kind in table.items()}
    yield "presets"
    for name, config in PRESETS.items():
        parts = f"{world_label(config.world)}, {names[type(config.model)]}, {names[type(config.solver)]}"
        steps = f"{config.rollouts} x {config.horizon}" if config.rollouts > 1 else config.horizon
        yield _entry(name, f"{parts}: {config.rounds} rounds of {steps} steps")
    yield "worlds and their tasks (--evaluation-tasks)"
    for name, world in WORLDS.items():
        yield _entry(name, ", ".join(world().tasks) or _summary(world))
    yield _entry("FILE.py:NAME", "a task of your own for any world: reward(x, u, x_next), written with jax.numpy")
    yield "methods (--method)"
    for name in METHODS:
        yield _entry(name, SUMMARIES[name])
    for title, table in TABLES.items():
        yield title
        for name, part in table.items():
            yield _entry(name, _summary(part))


def _entry(name: str, text: str) -> str:
    return f"  {name:<23} {text}"


def _summary(part: Any) -> str:
    """First line of the docstring of a class, or of that of an object."""
    if part is None:
        return "the imagination's own, fixed beta"
    kind = part if isinstance(part, type) else type(part)
    return (kind.__doc__ or "").splitlines()[0].rstrip(".")


if __name__ == "__main__":
    LISTING.write_text(listing(), encoding="utf-8")
