"""TensorBoard: event files in the folder of the run.

    DIR/tracks/tensorboard/seed-0/events.out.tfevents.TIME.sonde.metrics.000003    metrics of round 3
    DIR/tracks/tensorboard/run/events.out.tfevents.TIME.sonde.figures.000010       figures, config, git state and versions

Each file holds one round and appears whole or not at all, so what the track holds is what is in its folder.
"""

import re
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sonde._internal.files import write_atomically
from sonde.runs._callbacks import Row
from sonde.runs.trackers._events import event_file, picture, scalar, text
from sonde.runs.trackers._record import own_folder
from sonde.runs.trackers._tracker import Track, Tracker

RUN = "run"
"""The folder of what belongs to all seeds."""
_FILE = re.compile(r"events\.out\.tfevents\.[0-9]+\.sonde\.(?P<kind>[a-z]+)\.(?P<round>[0-9]{6,})")


@dataclass
class TensorBoard(Tracker):
    """Writes event files into the folder of the run, one TensorBoard run per seed; metrics have single precision there."""

    name: ClassVar[str] = "tensorboard"
    package: ClassVar[str] = "tensorboardX"
    films: ClassVar[tuple[str, ...]] = (".gif",)
    can_go_back: ClassVar[bool] = True

    def destination(self) -> str:
        """The folder of the run, wherever that is."""
        return "tracks/tensorboard"

    def begin(self, track: Track) -> Mapping[int, int]:
        """Delete files of rounds that the run does not have any more, and find those that are left."""
        self._folder, self._restarted, kept = track.folder, set[str](), len(track.record.rounds)
        held = dict.fromkeys(track.config.seed_list, 0)
        for name, seed in [(RUN, None), *((f"seed-{seed}", seed) for seed in held)]:
            for path in own_folder(track.folder, self.name, name).iterdir():
                found = _FILE.fullmatch(path.name)
                if path.name.endswith(".part") or (found and int(found["round"]) > kept):
                    path.unlink()
                elif found and seed is not None:
                    held[seed] = max(held[seed], int(found["round"]))
        first = min(held.values()) + 1
        texts = {"config": track.document(), "git": track.origin["git"], "versions": track.origin["versions"]}
        self._write(RUN, "origin", first, [text(tag, value) for tag, value in texts.items() if value])
        return held

    def log(self, row: Row) -> None:
        """Write the metrics of a seed and round; `stopped` is a text."""
        numbers = [scalar(key, value) for key, value in row.items() if isinstance(value, int | float)]
        texts = [text(key, value) for key, value in row.items() if isinstance(value, str)]
        self._write(f"seed-{row['seed']}", "metrics", row["round"], [*numbers, *texts])

    def log_media(self, kind: str, round_number: int, paths: Sequence[Path]) -> None:
        """Write pictures; browsers play films in GIF format."""
        self._write(RUN, kind, round_number, [picture(f"{kind}/{path.stem}", path) for path in paths])

    def end(self) -> None:
        """All files are on disk already."""

    def where(self, track: Track) -> str:
        """The command that shows the track."""
        return f"tensorboard --logdir {shlex.quote(str(track.folder / 'tracks' / self.name))}"

    def _write(self, folder: str, kind: str, round_number: int, values: Iterable[Any]) -> None:
        """Write a file of summaries; a viewer that is open forgets what it has seen of this round and later ones."""
        now, place = time.time(), own_folder(self._folder, self.name, folder)
        restarts = kind == "metrics" and folder not in self._restarted
        self._restarted |= {folder} if restarts else set()
        content = event_file(round_number, list(values), now, restarts)
        name = f"sonde.{kind}.{round_number:06d}"
        for older in place.glob(f"events.out.tfevents.*.{name}"):
            older.unlink()
        write_atomically(place / f"events.out.tfevents.{int(now):010d}.{name}", content)
