"""All names of the command line, from the tables and dataclasses; as a program, it writes the file that `_names` reads."""

import dataclasses
import importlib
import inspect
import json
from collections.abc import Iterator, Mapping
from typing import Any

from sonde.cli._choices import PARTS
from sonde.cli._main import COMMANDS
from sonde.cli._names import NAMES
from sonde.cli._options import Option, first_sentence, options_of_class, options_of_value
from sonde.cli._prior import RANGES, RANGES_HELP
from sonde.imagination import IMAGINATIONS
from sonde.methods import METHODS, SUMMARIES
from sonde.models import BETA_RULES, KERNELS, MODELS
from sonde.objectives import OBJECTIVES
from sonde.runs import PRESETS, RunConfig, default_config
from sonde.runs._codec import class_reference
from sonde.runs._config import world_label
from sonde.solvers import SOLVERS
from sonde.worlds import WORLDS, FmuWorld, GymWorld, OwnSystem

NOT_EXPLORED = (GymWorld, FmuWorld, OwnSystem)
"""Worlds that are not explored by their name alone."""
TABLES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "models": ("--model", MODELS),
    "kernels": ("of Gaussian processes: --model.kernel", KERNELS),
    "solvers": ("--solver", SOLVERS),
    "imaginations": ("--method.imagination, --evaluation-imagination", IMAGINATIONS),
    "objectives": ("--method.objective", OBJECTIVES),
    "beta-rules": ("--beta-rule", BETA_RULES),
}
"""Tables that have a name and a summary for each part, and the options that take the names."""
OF_SYSTEMS = ("explore", "sweep")
"""Commands that take a system, and options that choose its parts."""
OWN_TASKS = "Any world also takes tasks of your own, as FILE.py:NAME: reward(x, u, x_next), written with jax.numpy."


def current_names() -> dict[str, Any]:
    """What `known_names` reads, as it is now."""
    return {
        "tables": {**_system_tables(), **dict(_part_tables())},
        "commands": {name: _command(name) for name in COMMANDS},
        "systems": dict(_systems()),
        "methods": {name: _parts_of_method(method) for name, method in METHODS.items()},
        "parts": {option: dict(_options_of_parts(option)) for option in ("world", *PARTS)},
        "worlds": {name: {"class": class_reference(kind), "tasks": list(kind().tasks)} for name, kind in WORLDS.items()},
    }


def text() -> str:
    """The content of the file: one line for each name, so that differences can be read."""
    return json.dumps(current_names(), indent=1, ensure_ascii=False) + "\n"


# ---- tables ------------------------------------------------------------------------------------------------------------------


def _system_tables() -> dict[str, Any]:
    presets = [["name", "world", "model", "solver", "rounds", "steps"]]
    for name, config in PRESETS.items():
        parts = _parts(config)
        sizes = (str(config.rounds), str(config.steps))
        presets.append([name, world_label(config.world), parts["model"], parts["solver"], *sizes])
    worlds = [["name", "tasks", "what it is"]]
    worlds += [[name, ", ".join(kind().tasks) or "your own", _summary(kind)] for name, kind in WORLDS.items()]
    return {
        "presets": {"title": "presets: sonde explore NAME", "rows": presets},
        "worlds": {"title": "worlds and their tasks: --evaluation-tasks, --task", "rows": worlds, "note": OWN_TASKS},
    }


def _part_tables() -> Iterator[tuple[str, Any]]:
    yield "methods", {"title": "methods: --method", "rows": [["name", "what it does"], *map(list, SUMMARIES.items())]}
    for name, (options, table) in TABLES.items():
        between = " " if options.startswith("of") else ": "
        rows = [["name", "what it is"], *([part, _summary(value)] for part, value in table.items())]
        yield name, {"title": f"{name.replace('beta-rules', 'rules for beta')}{between}{options}", "rows": rows}


def _summary(part: Any) -> str:
    """First line of the docstring of a class, or of that of an object."""
    if part is None:
        return "the imagination's own, fixed beta"
    kind = part if isinstance(part, type) else type(part)
    return (kind.__doc__ or "").splitlines()[0].rstrip(".")


# ---- completion --------------------------------------------------------------------------------------------------------------


def _command(name: str) -> dict[str, Any]:
    """Summary, options and positional words of a command, without the options of a system's parts."""
    module = importlib.import_module(f"sonde.cli._{name}")
    kind = module.arguments() if hasattr(module, "arguments") else getattr(module, f"{name.capitalize()}Arguments")
    options, positional = options_of_class(kind)
    summary = first_sentence(inspect.getdoc(kind) or "")
    if name in OF_SYSTEMS:
        positional = [{"help": "what to explore", "takes": "systems"}]
        # options given twice are those of the command: a sweep has several methods
        options = {f"--{part}": {"help": PARTS[part].meaning, "takes": "parts", **_owners(part)} for part in PARTS} | options
        options |= {RANGES: {"help": RANGES_HELP, "many": True}}
    if name == "fit":
        for part in PARTS:
            options |= {f"--{part}": {"help": PARTS[part].meaning, "takes": "parts"}}
            for of_part in dict(_options_of_parts(part)).values():
                options |= of_part
        options |= {RANGES: {"help": RANGES_HELP, "many": True}}
    if name in ("explore", "fit"):
        options |= _shared_options(RunConfig())
    if name == "evaluate":
        options |= {"--solver": {"help": PARTS["solver"].meaning, "takes": "parts"}}
        for of_solver in dict(_options_of_parts("solver")).values():
            options |= of_solver
    return {"help": summary, "options": options, "positional": positional}


def _owners(option: str) -> dict[str, Any]:
    """`of`: the parts that have such a part, as only some models have a kernel."""
    owner, dot, field = option.partition(".")
    if not dot:
        return {}
    table = PARTS[owner].table
    having = [name for name, kind in table.items() if field in {found.name for found in dataclasses.fields(kind)}]
    return {} if len(having) == len(table) else {"of": having}


def _systems() -> Iterator[tuple[str, dict[str, Any]]]:
    """What can be explored by name, with the parts that it starts from."""
    tables = _system_tables()
    rows = {row[0]: row for row in tables["presets"]["rows"]}
    for name, config in PRESETS.items():
        _, world, model, solver, rounds, steps = rows[name]
        yield name, _system(config, f"{world}, {model}, {solver}: {rounds} rounds of {steps} steps")
    for name, kind in WORLDS.items():
        if name not in PRESETS and kind not in NOT_EXPLORED:
            yield name, _system(default_config(kind()), _summary(kind))


def _system(config: RunConfig, summary: str) -> dict[str, Any]:
    everywhere = _shared_options(RunConfig())
    more = {name: option for name, option in _shared_options(config).items() if name not in everywhere}
    return {"help": first_sentence(summary), "parts": _parts(config), "options": more}


def _shared_options(config: RunConfig) -> dict[str, Option]:
    """The options of a config that belong to none of its parts."""
    of_parts = tuple(f"--{option}." for option in ("world", *PARTS))
    return {name: option for name, option in options_of_value(config) if not name.startswith(of_parts)}


def _parts(config: RunConfig) -> dict[str, str]:
    """Names of the parts of a config, by the option that would choose them."""
    rule = config.confidence.beta_rule
    found = {
        "world": _named(WORLDS, config.world),
        "model": _named(MODELS, config.model),
        "solver": _named(SOLVERS, config.solver),
        "method": config.method.name,
        "beta-rule": "none" if rule is None else _named(BETA_RULES, rule),
        "evaluation-imagination": _named(IMAGINATIONS, config.evaluation_imagination),
        **_parts_of_method(config.method),
    }
    kernel = getattr(config.model, "kernel", None)
    return found if kernel is None else found | {"model.kernel": _named(KERNELS, kernel)}


def _parts_of_method(method: Any) -> dict[str, str]:
    parts = {"imagination": IMAGINATIONS, "objective": OBJECTIVES}
    values = {name: getattr(method, name) for name in parts}
    return {f"method.{name}": "none" if value is None else _named(parts[name], value) for name, value in values.items()}


def _named(table: Mapping[str, Any], part: Any) -> str:
    """Name of the class of a part."""
    return next(name for name, known in table.items() if known is type(part) or type(known) is type(part))


def _options_of_parts(option: str) -> Iterator[tuple[str, dict[str, Option]]]:
    """The options that each part of a table brings, without those of the parts that it has itself."""
    table = WORLDS if option == "world" else PARTS[option].table
    inner = tuple(f"--{other}." for other in PARTS if other.startswith(f"{option}."))
    place = "confidence.beta_rule." if option == "beta-rule" else f"{option.replace('-', '_')}."
    for name, part in table.items():
        value = part() if isinstance(part, type) else part
        value = None if option == "prior" else value  # its fields are given with its name
        found = dict(options_of_value(value, f"{option}.", place)) if dataclasses.is_dataclass(value) else {}
        yield name, {key: entry for key, entry in found.items() if not key.startswith(inner or ("\n",))}


if __name__ == "__main__":
    NAMES.write_text(text(), encoding="utf-8")
    print(f"Written: {NAMES}")
