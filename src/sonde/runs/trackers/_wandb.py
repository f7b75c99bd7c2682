"""Weights & Biases, online or offline.

Its files are in the folder of the run:

    DIR/tracks/wandb/offline-run-TIME-ID-SEED/    what 'wandb sync' uploads

Online, its server says which rounds it has. Offline, uploading a second part of a run would replace the first one. So a process
that goes on offline writes all rounds from the first one into new files, from `metrics.jsonl`, and removes the older ones.
"""

import re
import shlex
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from sonde._internal.errors import SondeError, first_line
from sonde.runs._callbacks import Row
from sonde.runs.trackers._record import own_folder
from sonde.runs.trackers._tracker import Track, Tracker

PATIENCE = 600.0
"""Seconds that the end of a run waits for uploads; what is not uploaded then is in the folder, for 'wandb sync'."""
_RUN = re.compile(r"(offline-)?run-[0-9]{8}_[0-9]{6}-[\w-]+")
_starting = threading.Lock()


@dataclass
class WandB(Tracker):
    """Sends each seed to a run of its own, in a group per run folder."""

    project: str | None = field(default=None, kw_only=True)
    """The project; by default that of your settings (WANDB_PROJECT), or else "sonde"."""
    entity: str | None = field(default=None, kw_only=True)
    """The user or team; by default that of your settings."""
    mode: str | None = field(default=None, kw_only=True)
    """Whether to upload, "online" or "offline"; by default as your settings say (WANDB_MODE)."""

    name: ClassVar[str] = "wandb"
    package: ClassVar[str] = "wandb"

    def __post_init__(self):
        """Reject an unknown mode."""
        super().__post_init__()
        if self.mode not in (None, "online", "offline"):
            raise SondeError(f"wandb: mode must be 'online' or 'offline', got {self.mode!r}")

    def destination(self) -> str:
        """Server, entity and project."""
        settings = self._settings()
        entity = self.entity or settings.entity or "default"
        return f"{settings.base_url}/{entity}/{self._project()}"

    def check(self) -> None:
        """Reject uploads without an account; nobody may be there to be asked for it later."""
        import wandb

        if self._is_offline():
            return
        try:
            known = wandb.login(prompt=False, verify=False)
        except Exception as error:
            raise SondeError(f"wandb: you cannot be logged in ({first_line(error)}); run 'wandb login' again") from None
        if not known:
            raise SondeError(
                "wandb: you are not logged in: run 'wandb login', or set WANDB_MODE=offline to write files for 'wandb sync'"
            )

    def begin(self, track: Track) -> Mapping[int, int]:
        """Open a run per seed, and find out what it holds."""
        self._runs: dict[int, Any] = {}
        folder, offline = _checked(own_folder(track.folder, self.name)), self._is_offline()
        self._older = [path for path in folder.iterdir() if track.id in path.name] if offline else []
        with _starting:
            for seed in track.config.seed_list:
                self._runs[seed] = self._started(track, seed)
        if offline:  # nothing is in the new files yet
            track.record.figures, track.record.films = 0, {}
            return {}
        return {seed: max(run.starting_step - 1, 0) for seed, run in self._runs.items()}

    def log(self, row: Row) -> None:
        """Send the metrics of a seed and round."""
        self._runs[row["seed"]].log({key: value for key, value in row.items() if value is not None}, step=row["round"])

    def log_media(self, kind: str, round_number: int, paths: Sequence[Path]) -> None:
        """Send figures and films to the run of the first seed."""
        import wandb

        show = lambda path: wandb.Image(str(path)) if kind == "figures" else wandb.Video(str(path), format=path.suffix[1:])
        first = next(iter(self._runs.values()))
        first.log({f"{kind}/{path.stem}": show(path) for path in paths}, step=round_number)

    def end(self) -> None:
        """Wait until all is uploaded, or written."""
        runs, self._runs = self._runs, {}
        for run in runs.values():
            run.finish()
        for path in self._older:
            shutil.rmtree(path)

    def where(self, track: Track) -> str:
        """The address of the first seed's run, or the command that uploads."""
        url = None if self._is_offline() else next(iter(self._runs.values())).url
        return url or f"wandb sync {shlex.quote(str(track.folder / 'tracks' / self.name))}"

    def _started(self, track: Track, seed: int) -> Any:
        import wandb

        offline = self._is_offline()
        settings = wandb.Settings(
            console="off",
            silent=True,
            symlink=False,
            disable_git=True,  # the state is in the config, and no code leaves the machine
            disable_code=True,
            x_disable_stats=True,
            finish_timeout=PATIENCE,
        )
        return wandb.init(
            project=self._project(),
            entity=self.entity,
            id=f"{track.id}-{seed}",
            name=f"{track.name}-seed-{seed}",
            group=f"{track.name}-{track.id}",
            config=track.document(seed),
            dir=str(track.folder / "tracks"),
            mode="offline" if offline else "online",
            resume=None if offline else "allow",
            reinit="create_new",
            settings=settings,
        )

    def _project(self) -> str:
        return self.project or self._settings().project or "sonde"

    def _is_offline(self) -> bool:
        return (self.mode or self._settings().mode) in ("offline", "dryrun")

    @staticmethod
    def _settings() -> Any:
        import wandb

        return wandb.setup().settings


def _checked(folder: Path) -> Path:
    """The folder of wandb's files; anything else in it is rejected, since wandb would obey settings that lie there."""
    foreign = [path.name for path in folder.iterdir() if not _RUN.fullmatch(path.name) or path.is_symlink()]
    hidden = folder.with_name(".wandb")  # which wandb prefers
    if foreign or hidden.exists():
        raise SondeError(f"{folder} holds what neither Sonde nor wandb wrote: {', '.join(foreign[:5]) or hidden}; remove it")
    return folder
