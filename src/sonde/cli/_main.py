"""The entry point. Each command is a module of its own, thin over the functions that a Python program calls."""

import importlib
import io
import os
import re
import sys
import warnings
from pathlib import Path

from sonde._internal.compilation_cache import cache_compilations
from sonde._internal.errors import SondeError, first_line, one_of
from sonde._internal.reading import MAX_DIGITS, check_text
from sonde.cli import _interrupts
from sonde.cli._unknown import check_options

USAGE = """usage: sonde COMMAND ...

Learn an unknown dynamical system by choosing the experiments that teach it most, then solve tasks on it zero-shot.

  demo                     explore a pendulum, then swing it up, with explanations (a few minutes)
  explore SYSTEM           explore a preset, a world, gym:ENV, fmu:FILE or a system of your own ('sonde explore --help')
  fit FILE [FILE ...]      make a model from logs alone, judged on a part that it has not seen
  resume DIR               continue a run that was interrupted
  evaluate DIR --task T    solve a task with what a run has learned; film it (--video FILE.mp4), or plan for the worst case
                           (--robust)
  analyse DIR              find the equilibria of the learned system, their stability, and what actions can do there; study any
                           point (--at), design regulators (--lqr, --robust SHARE)
  plot DIR [DIR ...]       draw and compare runs
  report DIR [DIR ...]     write one HTML page about a run, or about several side by side (--open, --follow)
  sweep SYSTEM             run a grid of methods, settings and seeds, on this machine or on a Ray cluster
  export DIR --out FILE    write a run's measurements to FILE.npz, FILE.csv or minari:DATASET-v0
  data check FILE ...      say what logs hold, what a run would use of them, and what to do about the rest
  distil DIR --task T      turn the planner of a task into a network, and print the return that this loses
  deploy DIR --out FILE    write a policy (--task T), gains or the learned model (--model) to FILE.onnx or FILE.h
  list [WHAT]              list presets, worlds and their tasks, models, solvers and methods
  completion SHELL         print a script that completes commands, names and options on Tab (bash, zsh, fish)

'sonde COMMAND --help' explains a command, 'sonde --version' prints the version.
"""
WITHOUT_JAX = ("list", "completion")
COMMANDS = ("demo", "explore", "fit", "resume", "evaluate", "analyse", "plot", "report", "sweep", "export", "data")
COMMANDS = (*COMMANDS, "distil", "deploy", *WITHOUT_JAX)


def main() -> None:
    """Parse the command line and run the command; ends with `SystemExit` unless all went well."""
    args = sys.argv[1:]
    _interrupts.begin()
    _prepare_output()
    try:
        _run(args)
    except BrokenPipeError:  # the reader of our output is gone
        raise SystemExit(_interrupts.PIPE_CLOSED) from None
    except (SondeError, OSError) as error:
        raise _failed(str(error)) from None
    except Exception as error:
        if not _is_out_of_memory(error):
            raise  # a fault of ours, with its traceback
        raise _failed(f"there is not enough memory ({first_line(error)}); choose smaller sizes") from None
    except KeyboardInterrupt:
        _interrupts.stopped()
        raise SystemExit(_interrupts.EXIT_CODE) from None


def _run(args: list[str]) -> None:
    if not args or args[0] in ("-h", "--help"):
        print(USAGE, end="")
        raise SystemExit(0 if args else 2)
    if args[0] == "--version":
        from sonde import __version__

        print(f"sonde {__version__}")
        return
    one_of("command", args[0], COMMANDS)
    _check_words(args)
    if args[0] not in WITHOUT_JAX:
        check_options(args[0], args[1:])
    if args[0] not in WITHOUT_JAX and not {"-h", "--help"} & set(args):
        cache_compilations()
    importlib.import_module(f"sonde.cli._{args[0]}").main(args[1:])


def _failed(message: str) -> SystemExit:
    print(f"sonde: error: {message}", file=sys.stderr)
    return SystemExit(2)


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in str(error))


def _prepare_output() -> None:
    """Make printing safe: characters that the terminal cannot show are escaped, and a stream that was closed takes anything."""
    warnings.formatwarning = _as_sentence  # ty: ignore[invalid-assignment] (the very function, to a type checker)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (until the process ends)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


_format_warning = warnings.formatwarning


def _as_sentence(message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None) -> str:
    """A warning of ours without the line of code that it was raised for."""
    if category is UserWarning and Path(filename).is_relative_to(Path(__file__).parent.parent):
        return f"sonde: warning: {message}\n"
    return _format_warning(message, category, filename, lineno, line)


def _check_words(args: list[str]) -> None:
    """Reject what no option can take: control characters, and whole numbers that do not fit into 64 bits."""
    for word in args:
        check_text(word, "command line")
        for part in re.split(r"[=,()\[\]\s]", word):
            if re.fullmatch(rf"[+-]?[\d_]{{{MAX_DIGITS + 1},}}", part):
                raise SondeError(f"command line: {part[:20]}... has {len(part)} digits; expected at most {MAX_DIGITS}")
