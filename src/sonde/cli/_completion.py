"""`sonde completion SHELL`: print the script that completes commands, names and options on Tab.

The scripts are short: they ask `sonde completion --answer SHELL ...` what may come next (`_answers`), and look for files and
folders themselves.
"""

from pathlib import Path
from typing import Literal, get_args

from sonde._internal.errors import one_of

Shell = Literal["bash", "zsh", "fish"]
SHELLS: tuple[str, ...] = get_args(Shell)


def script(shell: str) -> str:
    """The script for a shell.

    Args:
        shell: One of `SHELLS`.
    """
    return Path(__file__).with_name(f"completion.{shell}").read_text(encoding="utf-8")


def arguments() -> type:
    """The dataclass of the arguments, made when it is needed: the parser takes longer to import than the script to print."""
    from dataclasses import dataclass

    import tyro

    @dataclass
    class CompletionArguments:
        """Print a script that completes commands, names and options on Tab.

        To install it, once:

        bash:  echo 'eval "$(sonde completion bash)"' >> ~/.bashrc

        zsh:   echo 'eval "$(sonde completion zsh)"' >> ~/.zshrc

        fish:  sonde completion fish > ~/.config/fish/completions/sonde.fish
        """

        shell: tyro.conf.Positional[Shell]
        """The shell."""

    return CompletionArguments


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.
    """
    if args[:1] == ["--answer"]:
        from sonde.cli._answers import answer_lines

        for line in answer_lines(args[1], args[2:]):
            print(line)
    elif len(args) == 1 and not args[0].startswith("-"):
        one_of("shell", args[0], SHELLS)
        print(script(args[0]), end="")
    else:  # help, or a mistake
        import tyro

        tyro.cli(arguments(), args=args, prog="sonde completion")
