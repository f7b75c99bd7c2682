"""What may come next on a command line: the answers to the scripts of `sonde completion`."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sonde.cli._names import known_names

GYM, FMU = "gym:", "fmu:"
GYM_ENVS = (
    *("Pendulum-v1", "MountainCarContinuous-v0", "BipedalWalker-v3", "Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5"),
    *("HumanoidStandup-v5", "InvertedDoublePendulum-v5", "InvertedPendulum-v5", "Pusher-v5", "Reacher-v5", "Swimmer-v5"),
    "Walker2d-v5",
)
"""Gymnasium's environments with continuous observations and actions."""
HELP = {"--help": "explain the command"}
MAX_CONFIG_BYTES = 1 << 20


class Answer(NamedTuple):
    """What may come next."""

    words: Mapping[str, str] = {}
    """Whole words, and a short help for each."""
    paths: str = "none"
    """Whether also 'files' or 'folders' may come, which the shell looks for."""
    goes_on: bool = False
    """Whether the words are beginnings, so that no space follows."""


class Line(NamedTuple):
    """The words between a command and the one that is being completed."""

    positional: list[str]
    """Those that belong to no option."""
    options: dict[str, list[str]]
    """Values of the options."""
    pending: str | None
    """The option that the next word may be a value of."""


def answer_lines(shell: str, words: Sequence[str]) -> Iterator[str]:
    """Answer a script.

    Args:
        shell: The shell that asks.
        words: For zsh and fish all words after `sonde`, the last of which is being completed and may be empty; for bash the
            characters at which it splits words, and the line up to the cursor.

    Returns:
        In the first line 'none', 'files' or 'folders', and whether no space follows ('open') or one does ('closed'). Then a
        line for each word, and after a tab its help.
    """
    if shell == "bash":
        breaks, line = words
        raw, given = split_line(line)
        found = answer(given)
        # readline replaces what follows the last character at which it splits
        cut = 0 if raw[:1] in ("'", '"') else max((raw.rfind(sign) + 1 for sign in ":=" if sign in breaks), default=0)
        escape = (lambda word: word) if raw[:1] in ("'", '"') else _escaped
        entries = [escape(word)[cut:] for word in found.words if word.startswith(given[-1])]
    else:
        found = answer(words)
        entries = [f"{word}\t{text}" for word, text in found.words.items() if word.startswith(words[-1])]
    yield f"{found.paths} {'open' if found.goes_on else 'closed'}"
    yield from entries


def split_line(line: str) -> tuple[str, list[str]]:
    """Split a line as a shell does; a quotation may be open.

    Args:
        line: The line up to the cursor.

    Returns:
        The last word as it was written, and all words after the first without quotation marks.
    """
    for end in ("", "'", '"'):
        try:
            words = shlex.split(line + end)
        except ValueError:
            continue
        if not end and (not line or line[-1].isspace()):
            return "", [*words[1:], ""]
        *_, raw = re.findall(r"""(?:'[^']*'?|"(?:\\.|[^"\\])*"?|\\.|[^\s'"\\])+""", line)
        return raw, words[1:]
    return "", [""]


def _escaped(word: str) -> str:
    """A word with a backslash before what is special to bash."""
    return re.sub(r"([^\w@%+=:,./~-])", r"\\\1", word)


def answer(words: Sequence[str]) -> Answer:
    """What the last word may become.

    Args:
        words: The words after `sonde`, of which the last may be empty.
    """
    names, current = known_names(), words[-1]
    if len(words) == 1:
        commands = {name: entry["help"] for name, entry in names["commands"].items()}
        return Answer({**commands, "--help": "list the commands", "--version": "print the version"})
    if words[0] not in names["commands"]:
        return Answer()
    return GivenCommand(names, words[0], words[1:-1]).answer(current)


class GivenCommand:
    """A command with the words that were given to it so far."""

    def __init__(self, names: dict[str, Any], name: str, words: Sequence[str]):
        """Read the words.

        Args:
            names: What `known_names` returns.
            name: Name of the command.
            words: The words after it.
        """
        self.names, self.name, self.entry = names, name, names["commands"][name]
        self.of_systems = any(word["takes"] == "systems" for word in self.entry["positional"])
        self.options: dict[str, Any] = dict(self.entry["options"])
        self.line = self._read(words)
        self.parts: dict[str, str | None] = self._parts() if self.of_systems else {}
        if self.of_systems and self.name != "sweep":
            self.options |= self._options_of_parts()
            self.line = self._read(words)

    def answer(self, current: str) -> Answer:
        """What a word may become.

        Args:
            current: The word that is being completed, which may be empty.
        """
        name, equals, value = current.partition("=")
        if current.startswith("-") and equals:
            found = self._values(name, value)
            return found._replace(words={f"{name}={word}": text for word, text in found.words.items()})
        if current.startswith("-"):
            return Answer(self._unused_options())
        if self.line.pending is not None:
            found = self._values(self.line.pending, current)
            more = self.options.get(self.line.pending, {}).get("many") and self.line.options[self.line.pending]
            return found if not more else found._replace(words={**found.words, **self._unused_options()})
        positional, number = self.entry["positional"], len(self.line.positional)
        if number < len(positional) or (positional and positional[-1].get("many")):
            return self._kind(positional[min(number, len(positional) - 1)], current)
        return Answer(self._unused_options())

    def _read(self, words: Sequence[str]) -> Line:
        """Tell options from their values and from other words."""
        positional, options, pending, left = list[str](), dict[str, list[str]](), None, 0
        for word in words:
            if word.startswith("--"):
                pending, equals, value = word.partition("=")
                options.setdefault(pending, []).extend([value] if equals else [])
                # one that is not known may belong to a part in a user's file, and take any number of values
                option = self.options.get(pending.replace("_", "-").replace("--no-", "--"), {"many": True})
                left = 0 if "flag" in option else len(words) if "many" in option else option.get("count", 1)
            elif pending is not None:
                options[pending].append(word)
            else:
                positional.append(word)
            left -= not word.startswith("--") or "=" in word
            pending = pending if left > 0 else None
        return Line(positional, options, pending)

    def _unused_options(self) -> dict[str, str]:
        free = {name: option for name, option in self.options.items() if "again" in option or name not in self.line.options}
        return {name: option["help"] for name, option in free.items() if self._has_owner(name, option)} | HELP

    def _has_owner(self, name: str, option: Mapping[str, Any]) -> bool:
        """Whether the part that the option belongs to has such a part."""
        owner = self.parts.get(name.removeprefix("--").split(".")[0])
        return owner is None or owner in option.get("of", [owner])

    # Systems and their parts

    def _system(self) -> dict[str, Any]:
        name = self.line.positional[0] if self.line.positional else ""
        world = {"world": name.partition(":")[0]} if name.startswith((GYM, FMU)) else {}
        return self.names["systems"].get(name, {"parts": world, "options": {}})

    def _parts(self) -> dict[str, str | None]:
        """Name of each part, by the option that chooses it; None where it is not known."""
        parts = dict.fromkeys(self.names["parts"]) | self._system()["parts"]
        for option in self.names["parts"]:
            given = self.line.options.get(f"--{option}")
            if given and option != "world":
                known = given[-1] in self.names["parts"][option]
                parts[option] = given[-1] if known else None
                if option == "method":
                    parts |= self.names["methods"].get(given[-1], dict.fromkeys(("method.imagination", "method.objective")))
        return parts

    def _options_of_parts(self) -> dict[str, Any]:
        """The options of the parts that were chosen; of all that there are where that is not known."""
        found = dict(self._system()["options"])
        for option, table in self.names["parts"].items():
            chosen = self.parts[option]
            for entries in table.values() if chosen is None else [table.get(chosen, {})]:
                found |= entries
        return found

    # Values

    def _values(self, name: str, current: str) -> Answer:
        option = self.options.get(name, {})
        if option.get("takes") == "parts":
            return self._named_parts(name.removeprefix("--"))
        return self._kind(option, current)

    def _kind(self, option: Mapping[str, Any], current: str) -> Answer:
        """Words of a kind, as `_options` names it."""
        kind = option.get("takes", "")
        if isinstance(kind, list):
            return Answer(dict.fromkeys(kind, ""))
        kinds = {
            "files": lambda: Answer({}, "files"),
            "folders": lambda: Answer({}, "folders"),
            "systems": lambda: self._systems(current),
            "methods": lambda: self._named_parts("method"),
            "tasks": lambda: Answer(dict.fromkeys(self._tasks(), "a task"), "files"),
            "rules": lambda: Answer({"uncertainty<": "state units", "information<": "nats"}, goes_on=True),
            "data": lambda: Answer({"minari:": "a local Minari dataset"} if current else {}, "files", goes_on=bool(current)),
            "settings": lambda: self._settings(current),
        }
        return kinds[kind]() if kind in kinds else Answer()

    def _systems(self, current: str) -> Answer:
        if current.startswith(GYM):
            return Answer({f"{GYM}{env}": "Gymnasium" for env in GYM_ENVS})
        if current.startswith(FMU):
            return _fmus(current.removeprefix(FMU))
        begun = {GYM: "any Gymnasium environment", FMU: "a plant of another tool"}
        if current and any(begin.startswith(current) for begin in begun):
            return Answer(begun, goes_on=True)
        return Answer({name: entry["help"] for name, entry in self.names["systems"].items()}, "files" if current else "none")

    def _named_parts(self, option: str) -> Answer:
        summaries = {row[0]: row[1] for table in self.names["tables"].values() for row in table["rows"][1:]}
        words = {name: summaries[name] for name in self.names["parts"][option]}
        return Answer(words, "files")

    def _tasks(self) -> list[str]:
        """Tasks of the world that is explored, or that the run in the folder explored."""
        worlds = self.names["worlds"]
        if self.of_systems:
            world = self.parts["world"]
            return [] if world is None else worlds[world]["tasks"]
        kind = next((found for folder in self.line.positional if (found := _world_of_run(Path(folder)))), None)
        return [task for world in worlds.values() if kind in (None, world["class"]) for task in world["tasks"]]

    def _settings(self, current: str) -> Answer:
        """PATH=V1,V2 of a sweep."""
        every = {**self.names["commands"]["explore"]["options"], **self._options_of_parts()}
        paths = {option.get("path") or name.removeprefix("--").replace("-", "_"): option for name, option in every.items()}
        path, equals, values = current.partition("=")
        if not equals:
            shown = {f"{name}=": option["help"] for name, option in paths.items() if "no_" not in name.split(".")[-1][:3]}
            return Answer(shown, goes_on=True)
        option, before = paths.get(path, {}), f"{path}={values[: values.rfind(',') + 1]}"
        if option.get("takes") == "parts":
            words = list(self.names["parts"][path.replace("_", "-")])
        elif "flag" in option:
            words = ["true", "false"]
        else:
            words = option["takes"] if isinstance(option.get("takes"), list) else []
        return Answer({f"{before}{word}": "" for word in words}, goes_on=True)


def _fmus(begun: str) -> Answer:
    """FMUs, and folders in which more may be, whose paths go on from a beginning."""
    folder, slash, _ = begun.rpartition("/")
    place = f"{folder}{slash}"
    try:
        found = sorted(Path(place or ".").expanduser().iterdir())
    except OSError:
        found = []
    files = {f"{FMU}{place}{path.name}": "FMU" for path in found if path.suffix == ".fmu"}
    folders = {f"{FMU}{place}{path.name}/": "folder" for path in found if path.is_dir() and not path.name.startswith(".")}
    return Answer(files | folders, goes_on=bool(folders))


def _world_of_run(folder: Path) -> str | None:
    """The class of the world that a run explored, as its config names it; nothing is loaded."""
    try:
        with (folder.expanduser() / "config.json").open(encoding="utf-8") as file:
            found = json.loads(file.read(MAX_CONFIG_BYTES))["world"]["class"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, str) else None
