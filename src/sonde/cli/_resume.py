"""`sonde resume DIR`: continue a run."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from sonde._internal.errors import SondeError


@dataclass
class ResumeArguments:
    """Continue a run after its newest checkpoint; a finished run is only drawn again."""

    folder: tyro.conf.Positional[Path]
    """Folder of the run."""
    from_round: int | None = None
    """Go back to the checkpoint after this round (0 to start over); later rounds are deleted."""
    track: tuple[str, ...] = ()
    """Trackers that follow the run: tensorboard, wandb, trackio. Those of earlier processes need to be named again."""
    allow_code: bool = False
    """Run code of others that the run names, such as FILE.py:NAME; code that you ran before needs no permission."""


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.
    """
    chosen = tyro.cli(ResumeArguments, args=args, prog="sonde resume")
    from sonde.cli._console import plain_console  # not above: help does not wait for JAX
    from sonde.cli._run import run_and_draw, say_report
    from sonde.runs._store import RunStore
    from sonde.runs.trackers._names import trackers_named, tracks_in

    trackers = trackers_named(chosen.track)
    store = RunStore.open(chosen.folder, chosen.allow_code)
    available = sorted({0, *store.checkpoints()})
    if chosen.from_round is not None and chosen.from_round not in available:
        raise SondeError(f"no checkpoint after round {chosen.from_round}; there are: {', '.join(map(str, available))}")
    if chosen.from_round is None and available[-1] >= store.config.rounds:
        print(f"All {store.config.rounds} rounds were done before: drawing them again.")
    elif chosen.from_round is None and store.why_stopped():
        print("The run was finished before: drawing it again.")
    if left := [name for name in tracks_in(store.folder) if name not in chosen.track]:
        print(f"This run has tracks that are not followed now; '--track {' '.join(left)}' sends them what they miss.")
    console = plain_console()
    run_and_draw(store, console, chosen.from_round, trackers)
    say_report(store, console)
