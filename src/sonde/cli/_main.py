"""The entry point. Each command is a module of its own, thin over the functions that a Python program calls."""

import importlib
import os
import sys
from pathlib import Path

from sonde._internal.errors import SondeError, one_of

USAGE = """usage: sonde COMMAND ...

Learn an unknown dynamical system by choosing the experiments that teach it most, then solve tasks on it zero-shot.

  demo                     explore a pendulum, then swing it up, with explanations (a few minutes)
  explore SYSTEM           explore a preset, a world, gym:ENV or a system of your own ('sonde explore --help')
  resume DIR               continue a run that was interrupted
  evaluate DIR --task T    solve a task with what a run has learned; film it (--video FILE.mp4), or plan for the worst case
                           (--robust)
  analyse DIR              find the equilibria of the learned system, their stability, and what actions can do there
  plot DIR [DIR ...]       draw and compare runs
  sweep SYSTEM             run a grid of methods, settings and seeds, on this machine or on a Ray cluster
  export DIR --out FILE    write a run's measurements to FILE.npz, FILE.csv or minari:DATASET-v0
  list                     list presets, worlds and their tasks, models, solvers and methods

'sonde COMMAND --help' explains a command, 'sonde --version' prints the version.
"""
COMMANDS = ("demo", "explore", "resume", "evaluate", "analyse", "plot", "sweep", "export", "list")


def main() -> None:
    """Run the command line: `sonde` and `python -m sonde`."""
    args = sys.argv[1:]
    if not args or args[0] in ("-h", "--help"):
        print(USAGE, end="")
        raise SystemExit(0 if args else 2)
    if args[0] == "--version":
        from sonde import __version__

        print(f"sonde {__version__}")
        return
    try:
        one_of("command", args[0], COMMANDS)
        cache_compilations()
        importlib.import_module(f"sonde.cli._{args[0]}").main(args[1:])
    except BrokenPipeError:  # the reader of our output is gone
        sys.stderr.close()
    except (SondeError, OSError) as error:
        print(f"sonde: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def cache_compilations() -> None:
    """Keep compiled programs between processes, in the user's cache folder, unless JAX is configured otherwise."""
    import jax

    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(base / "sonde" / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
