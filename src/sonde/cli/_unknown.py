"""Options that a command does not have: said at once, before JAX is imported, and with the one that was meant."""

from collections.abc import Mapping, Sequence
from typing import Any

from sonde._internal.errors import SondeError, did_you_mean, one_of
from sonde._internal.user_code import is_in_file
from sonde.cli._answers import GivenCommand
from sonde.cli._names import known_names

NO_VALUE = "None"
"""What stands for no value, where an option may have none."""


def check_options(command: str, args: Sequence[str]) -> None:
    """Reject options that a command does not have, and values that are not among the names that one takes.

    Args:
        command: Name of the command.
        args: Words after it.
    """
    names = known_names()
    given = GivenCommand(names, command, args)
    if (given.of_systems and not given.line.positional) or {"-h", "--help"} & set(args):
        return  # a mistake that says more, or none
    for option, values in given.line.options.items():
        _check_option(given, option.replace("_", "-"))
        names_of_values = given.options.get(option, {}).get("takes")
        for value in values if isinstance(names_of_values, list) else ():
            if value != NO_VALUE:
                one_of(option, value, names_of_values)
    most = len(given.entry["positional"])
    if len(given.line.positional) > most and not any(word.get("many") for word in given.entry["positional"]):
        word = given.line.positional[most]
        meant = did_you_mean(f"--{word.lstrip('-')}", given.options)
        raise SondeError(f"{command}: {word!r} belongs to no option;{meant} {_help(given)}")


def _check_option(given: GivenCommand, name: str) -> None:
    flags = [f"--no-{flag.removeprefix('--')}" for flag, option in given.options.items() if "flag" in option]
    if name in given.options or name in flags or _is_users_own(given, name):
        return
    settings = given.names["commands"]["explore"]["options"] if given.name == "sweep" else {}
    if name in settings:
        return  # a sweep has another form for it, and says so
    _check_parts(given, name)
    meant = did_you_mean(name, [*given.options, *settings])
    raise SondeError(f"{given.name}: unknown option {name!r};{meant} {_help(given)}")


def _is_users_own(given: GivenCommand, name: str) -> bool:
    """Whether an option may belong to a part in a user's file."""
    chosen = {option: values[-1] for option, values in given.line.options.items() if values}
    own = [f"{option}." for option, value in chosen.items() if is_in_file(value)]
    system = given.line.positional[0] if given.line.positional else ""
    return name.startswith((*own, *(["--world."] if is_in_file(system) else [])))


def _check_parts(given: GivenCommand, name: str) -> None:
    """Say which parts have an option, if the chosen one is another."""
    parts: Mapping[str, Any] = given.names["parts"] if given.of_systems else {}
    for part, table in parts.items():
        having, chosen = [other for other, options in table.items() if name in options], given.parts.get(part)
        if having and chosen is not None and given.name != "sweep":
            change = "" if part == "world" else f"; choose another one with --{part}, or leave it out"
            raise SondeError(
                f"{given.name}: {name} is an option of the {part} {' or '.join(having)}, and this {part} is {chosen}{change}"
            )


def _help(given: GivenCommand) -> str:
    words = ["sonde", given.name, *(given.line.positional[:1] if given.of_systems else [])]
    return f"'{' '.join(words)} --help' lists all"
