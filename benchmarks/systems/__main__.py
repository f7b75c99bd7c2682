"""`python -m benchmarks.systems`: the command line."""

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from benchmarks.systems.cells import Results, Suite, run
from benchmarks.systems.development import DEVELOPMENT
from benchmarks.systems.learning import DEFAULT
from benchmarks.systems.plants import SYSTEMS
from benchmarks.systems.report import save_picture, show
from sonde._internal.compilation_cache import cache_compilations
from sonde._internal.errors import SondeError, one_of, whole
from sonde.models import MODELS

INTERRUPTED = 130


@dataclass
class Arguments:
    """Judge models on small plants with known equations, beside other ways to learn them from the same measurements."""

    systems: tuple[str, ...] = tuple(SYSTEMS)
    """Plants; `development` stands for those on which settings may be chosen (arm, predator-prey, ...)."""
    data: tuple[str, ...] = ("random", "prbs")
    """Kinds of measurements: random and prbs (open-loop inputs), opax (chosen by Sonde; a minute or more per cell)."""
    noise: tuple[Literal["yes", "no"], ...] = ("no", "yes")
    """With process noise of 1 % of each state's spread, without, or both."""
    seeds: int = 1
    """Number of seeds."""
    measurements: int = 500
    """Measurements that are learned from."""
    models: tuple[str, ...] = (DEFAULT, "gp", "pe")
    """Models; `default` is the one that Sonde takes for a system without a preset, others have their own defaults."""
    out: Path | None = None
    """Folder for cells.jsonl, from which an interrupted comparison goes on, and systems.png."""

    def suite(self) -> Suite:
        """The cells that are asked for; names that do not exist are rejected."""
        whole("systems", seeds=self.seeds)
        systems = [name for given in self.systems for name in (DEVELOPMENT if given == "development" else (given,))]
        for model in self.models:
            one_of("model", model, (DEFAULT, *MODELS))
        noise = tuple(answer == "yes" for answer in self.noise)
        once = lambda names: tuple(dict.fromkeys(names))
        suite = Suite(once(systems), once(self.data), once(noise), self.seeds, self.measurements, once(self.models))
        if not suite.cells or not suite.models:
            raise SondeError("systems: name at least one system, one model, one kind of data and one kind of noise")
        return suite


def main(args: Sequence[str]) -> int:
    """Compare, print and save.

    Args:
        args: Words after `python -m benchmarks.systems`.

    Returns:
        The exit code.
    """
    chosen = tyro.cli(Arguments, args=args, prog="python -m benchmarks.systems")
    try:
        suite = chosen.suite()
        _check_packages()
        if chosen.out is not None:
            if chosen.out.exists() and not chosen.out.is_dir():
                raise SondeError(f"systems: --out must be a folder, got the file {chosen.out}")
            chosen.out.mkdir(parents=True, exist_ok=True)
        return _compare(suite, Results(chosen.out))
    except (SondeError, OSError) as error:
        print(f"benchmarks.systems: error: {error}", file=sys.stderr)
        return 2


def _compare(suite: Suite, results: Results) -> int:
    code = 0
    try:
        run(suite, results)
    except KeyboardInterrupt:
        print("Stopped; results so far:", file=sys.stderr)
        code = INTERRUPTED
    show(suite, results, Console())
    if results.folder is not None and any(results.of(suite)):
        print(f"Results: {save_picture(suite, results, results.folder)}")
    return code


def _check_packages() -> None:
    missing = [name for name in ("pysindy", "sklearn", "threadpoolctl") if importlib.util.find_spec(name) is None]
    if missing:
        raise SondeError(
            f"systems: the peers need {', '.join(missing)}: pip install 'sonde[benchmarks]', or pip install pysindy"
        )


if __name__ == "__main__":
    cache_compilations()
    raise SystemExit(main(sys.argv[1:]))
