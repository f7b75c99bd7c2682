"""Random command lines, and random changes of a config."""

import dataclasses
import json
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

from sonde.cli._choices import PARTS as CHOICES
from sonde.runs import PRESETS
from sonde.worlds import WORLDS

NUMBERS = (
    *("0", "-1", "1", "2", "3", "5", "10", "0.5", "1e-3", "2147483647", "2147483648", "9223372036854775808", "1" + "0" * 30),
    *("9" * 5000, "1e308", "-1e308", "1e309", "1e400", "1e-320", "nan", "inf", "-inf", "-0.0", "0x10", "1_000", "٣", "1e5"),
)
"""Numbers as a person, a program or a vandal may write them."""
TEXTS = (
    *(
        "",
        " ",
        "x",
        "None",
        "none",
        "null",
        "True",
        "é",
        "日本",
        "\udcff",
        "[red]x[/red]",
        "\x1b[31m",
        "a\nb",
        "a\x00b",
        "x" * 5000,
    ),
    *(
        "--",
        "-",
        "--help",
        "=",
        "../..",
        "~",
        "~nobody",
        "swing-up",
        "no.py:x",
        "log.csv:x",
        "gym:",
        "gym:None-v0",
        "minari:x-v0",
    ),
    *("uncertainty<0.3", "information<300", "uncertainty<", "uncertainty<nan", "<", "uncertainty<1e999", "{}", "[1]", '"'),
)
"""Texts of the same kinds."""
FOLDERS = (
    "run",
    "run",
    "run",
    "run/",
    "./run/../run",
    "foreign",
    "empty",
    "file.txt",
    "new",
    "new/deep/er",
    "",
    ".",
    "log.csv",
)
"""Paths in the folder of a case."""
FILES = ("new.json", "new.png", "new.npz", "new.csv", "new.txt", "run/config.json", "foreign/thesis.txt", "new", "", "a/b.png")
"""Paths for output."""
COMMANDS: dict[str, dict[str, Sequence[str]]] = {
    "explore": {"--out": FOLDERS, "--overwrite": ()},
    "resume": {"--from-round": NUMBERS, "--allow-code": ()},
    "evaluate": {
        **{
            "--task": ("swing-up", "keep-down", *TEXTS),
            "--beta": NUMBERS,
            "--rollouts": NUMBERS,
            "--oracle": (),
            "--robust": (),
        },
        **{"--video": ("new.gif", "new.mp4", "new.txt", *FILES)},
    },
    "analyse": {"--action": NUMBERS, "--seed": NUMBERS, "--samples": NUMBERS, "--truth": (), "--out": FILES, "--theory": ()},
    "plot": {"--out": FILES, "--allow-code": ()},
    "export": {"--out": FILES, "--seed": NUMBERS, "--initial-data": (), "--overwrite": ()},
    "sweep": {
        **{"--set": ("rounds=2,3", "model.steps=1", "rounds", "=", "a=b", "rounds=nan", "horizon=" + "9" * 40, "world=1")},
        **{"--method": ("opax", "random", *TEXTS), "--seeds": NUMBERS, "--rounds": NUMBERS, "--out": FOLDERS},
        **{"--seeds-per-batch": NUMBERS, "--backend": ("local", "ray", "x"), "--workers": NUMBERS, "--address": TEXTS},
    },
    "list": {},
}
"""Commands with options of their own and values for them."""
SYSTEMS = (*(name for name in PRESETS if not name.startswith("fetch")), *WORLDS, *TEXTS)
"""What `explore` and `sweep` begin with."""


@cache
def config_options(preset: str) -> tuple[tuple[str, Any], ...]:
    """All options that change a preset, with their values.

    Args:
        preset: Name of the preset.
    """
    found = []

    def visit(part: Any, prefix: str) -> None:
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            name = field.name.replace("_", "-")
            if dataclasses.is_dataclass(value):
                visit(value, prefix if field.name == "confidence" else f"{prefix}{name}.")
            else:
                found.append((f"--{prefix}{name}", value))

    visit(PRESETS[preset], "")
    return tuple(found)


def command_line(rng: Random) -> list[str]:
    """A command line: mostly a valid one with one to four things in it that may not be.

    Args:
        rng: Which one.
    """
    if rng.random() < 0.02:
        return [rng.choice((*TEXTS, *NUMBERS, "--version", "-h", "Explore")) for _ in range(rng.randrange(4))]
    command = rng.choice(("explore",) * 6 + tuple(COMMANDS))
    own = COMMANDS[command]
    words = [command]
    if command in ("explore", "sweep"):
        preset = rng.choice(("pendulum-gp-lite", "pendulum-pe-lite", "mountain-car", "pendulum-gp-h-ucrl"))
        words.append(preset if rng.random() < 0.9 else rng.choice(SYSTEMS))
    elif command != "list":
        preset = "pendulum-gp-lite"
        words.append(rng.choice(FOLDERS))
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4))):
        if command == "explore" and rng.random() < 0.8:
            words += _config_words(preset, rng)
        elif own:
            option = rng.choice(tuple(own))
            words += [option, *_values(own[option], rng)]
        if rng.random() < 0.05:
            words.append(rng.choice((*TEXTS, *NUMBERS)))
    if command == "evaluate" and "--task" not in words and rng.random() < 0.9:
        words += ["--task", "swing-up"]
    if command in ("export", "plot") and "--out" not in words and rng.random() < 0.9:
        words += ["--out", "new.npz" if command == "export" else "new.png"]
    return words


def _values(choices: Sequence[str], rng: Random) -> list[str]:
    if not choices:
        return []
    return [rng.choice(choices) for _ in range(rng.choice((0, 1, 1, 1, 1, 1, 1, 1, 2, 3)))]


def _config_words(preset: str, rng: Random) -> list[str]:
    if rng.random() < 0.2:
        part = rng.choice(tuple(CHOICES))
        return [f"--{part}", rng.choice((*CHOICES[part].table, rng.choice(TEXTS)))]
    option, value = rng.choice(config_options(preset))
    if isinstance(value, bool):
        return [rng.choice((option, option.replace("--", "--no-", 1)))]
    pool = NUMBERS if isinstance(value, int | float) else (*TEXTS, *NUMBERS)
    values = [str(value)] if rng.random() < 0.15 else _values(pool, rng)
    return [f"{option}={values[0]}"] if values and rng.random() < 0.1 else [option, *values]


VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 0.5, -0.0, 1e308, 1e-320, 2**31, 2**63, 10**30, -(10**18), float("nan"), float("inf")),
    *(
        "",
        "x",
        "swing-up",
        "no.py:x",
        "os:system",
        "x" * 5000,
        "\x00",
        "\x1b[31m",
        "\udcff",
        [],
        {},
        [[]],
        [1, 2],
        ["swing-up"] * 2,
    ),
    *(
        {"class": "sonde.models:GaussianProcess"},
        {"class": "sonde.worlds:Pendulum"},
        {"class": "os:system"},
        {"class": 3},
        {"a": 1},
    ),
)
"""Values in the place of another one in a config."""


def changed_config(text: str, rng: Random) -> str:
    """Change one to three entries of a config.

    Args:
        text: The config as JSON.
        rng: Which ones, and how.
    """
    document = json.loads(text)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        owner, key = _place(document, rng)
        how = rng.random()
        if how < 0.65:
            owner[key] = rng.choice(VALUES)
        elif how < 0.8 and isinstance(owner[key], int | float) and not isinstance(owner[key], bool):
            owner[key] = owner[key] * rng.choice((2, 0.5, -1, 1000, 1 + 1e-12))
        elif how < 0.9:
            del owner[key]
        elif isinstance(owner, dict):
            owner[rng.choice(("extra", "", "class", "format", "x" * 300, "é"))] = rng.choice(VALUES)
        else:
            owner.append(rng.choice(VALUES))
    changed = json.dumps(document, indent=rng.choice((None, 2)))
    if rng.random() < 0.03:
        changed = changed.replace("{", '{"rounds": 3, ', 1)  # a key twice
    return changed


def _place(document: Any, rng: Random) -> tuple[Any, Any]:
    """A random entry, at any depth: its owner and its key."""
    places, left = [], [document]
    while left:
        node = left.pop()
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(value, dict | list):
                left.append(value)
    return rng.choice(places) if places else ({"x": 1}, "x")
