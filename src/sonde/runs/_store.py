"""The folder of a run.

    DIR/config.json                    what was asked for
    DIR/metrics.jsonl                  one line per round and seed
    DIR/metrics.sha256                 the checksum of the lines of each round
    DIR/data/0001.safetensors          the measurements of round 1, all seeds [S, T, ...]
    DIR/data/initial.safetensors       the measurements that the run started from, if any
    DIR/policies/swing-up.safetensors  trained policies of the last round, all seeds, to use without planner (`load_policy`)
    DIR/checkpoints/0001.safetensors   what was learned in round 1 and before (the last two are kept)
    DIR/checkpoints/0001.json          its checksums; a checkpoint exists once this file does
    DIR/checkpoints/0000.*             what was fitted to the initial data, where `sonde fit` made the run
    DIR/fit.json                       how well that model predicts, where `sonde fit` made the run
    DIR/figures/                       pictures
    DIR/report.html                    the report, once it was asked for

A round is first written to `data`, then to `metrics.jsonl`, then to `checkpoints`. What an interruption leaves after the newest
checkpoint is ignored, or written again with the same content. A run that is being started lies in a hidden folder beside DIR
until there is something to keep (`sonde.runs._place`).
"""

import contextlib
import json
import os
import shutil
from collections.abc import Generator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import jax

from sonde._internal import consent
from sonde._internal.errors import SondeError
from sonde._internal.files import write_atomically
from sonde._internal.precision import double_precision
from sonde._internal.reading import check_text
from sonde.data import Trajectory
from sonde.evaluation._tasks import check_goal_support, task_named
from sonde.runs._checkpoints import Checkpoints
from sonde.runs._codec import from_json, to_json
from sonde.runs._config import RunConfig, with_absolute_paths
from sonde.runs._folder import RunFolder, check_complete, read_config
from sonde.runs._initial_data import read_measurements, save_initial_data
from sonde.runs._memory import check_memory
from sonde.runs._metrics_file import append_lines, drop_lines, saved_lines
from sonde.runs._place import (
    FOLDERS,
    Draft,
    foreign_entries,
    locked,
    remove_leftovers,
    tidy,
)
from sonde.runs._saved import FLAGS, MEASURED, PLANNED, measurements_to_bytes
from sonde.solvers import Policy
from sonde.worlds import has_simulator

ARRAYS = (*MEASURED, *FLAGS, *PLANNED)
"""Arrays of a trajectory that are saved."""
Result = TypeVar("Result")


class RunStore(RunFolder):
    """Reads and writes the folder of one run."""

    def __init__(self, folder: Path, config: RunConfig, draft: Draft | None = None):
        """Use `create`, `start` or `open` instead.

        Args:
            folder: Folder of the run, which exists.
            config: Its config.
            draft: The draft that the folder is, if the run is being started.
        """
        super().__init__(folder)
        self.config, self._draft = config, draft

    @classmethod
    def start(cls, folder: Path, config: RunConfig, overwrite: bool = False, *, runs_here: bool = True) -> "RunStore":
        """Start a run, locked and in a hidden folder; it takes its place with its first checkpoint, or by `publish`.

        Args:
            folder: Where the run will be.
            config: The config of the run; what it names in files of one's own is loaded and checked first.
            overwrite: Replace a run that is there, when the new one takes its place.
            runs_here: Whether this process will run it, and not another one; see `check_memory`.
        """
        check_text(str(folder), "folder of the run")
        folder, config = Path(os.path.normpath(folder.absolute())), with_absolute_paths(config)
        text = _checked_config(config)
        initial_data = None if config.data is None else read_measurements(config.data, config.world, config.log)
        check_memory(config, 0 if initial_data is None else initial_data.states.shape[-2], runs_here)
        draft = Draft(folder, overwrite)
        try:
            for name in FOLDERS:
                (draft.folder / name).mkdir()
            if initial_data is not None:
                save_initial_data(draft.folder, initial_data, config.world.spec)
            write_atomically(draft.folder / "config.json", text.encode())
        except BaseException:
            draft.discard()
            raise
        return cls(draft.folder, config, draft)

    @classmethod
    def create(cls, folder: Path, config: RunConfig, *, runs_here: bool = True) -> "RunStore":
        """Make the folder of a new run, for this process or another one to run.

        Args:
            folder: Where to make it.
            config: The config of the run, which is checked as by `start`.
            runs_here: Whether this process will run it.
        """
        draft = cls.start(folder, config, runs_here=runs_here)._draft
        assert draft is not None
        try:
            draft.publish()
        except BaseException:
            draft.discard()
            raise
        draft.release()
        return cls(draft.folder, with_absolute_paths(config))

    @classmethod
    def open(cls, folder: Path, allow_code: bool = False) -> "RunStore":
        """Open a run that exists, with all parts of its config.

        Args:
            folder: Folder of the run.
            allow_code: Whether code that its config names may run, even if the user never allowed it before.
        """
        text = read_config(folder)
        with consent.allow_code() if allow_code else contextlib.nullcontext():
            store = cls(folder.absolute(), from_json(RunConfig, text, str(folder / "config.json")))
        check_complete(folder)
        return store

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Lock the run against other processes; the lock ends with the process, however it ends.

        A run that was started by this process and has nothing to keep at the end, leaves no folder.
        """
        if self._draft is None:
            tidy(self.folder)
            with locked(self.folder):
                remove_leftovers(self.folder)
                yield
            return
        try:
            yield
        finally:
            draft, self._draft = self._draft, None
            if draft is not None and draft.published and not self.is_blank:
                draft.release()
            elif draft is not None:
                draft.discard()

    def publish(self) -> None:
        """Move a run that is being started to its place, if it is not there yet."""
        if self._draft is not None and not self._draft.published:
            self._draft.publish()
            self.folder = self._draft.folder
            self._checkpoints = Checkpoints(self.folder)

    @property
    def place(self) -> Path:
        """Where the run is, or will be once there is something to keep."""
        return self.folder if self._draft is None else self._draft.place

    @property
    def is_blank(self) -> bool:
        """Whether nothing was measured yet, and nothing else is in the folder either: then nothing is lost with it."""
        policies = self.folder / "policies"
        return not (self.checkpoints() or self.has_data(1) or policies.exists() or foreign_entries(self.folder))

    # Measurements

    def save_data(self, round_number: int, trajectory: Trajectory, known: Mapping[str, float] = MappingProxyType({})) -> None:
        """Write the measurements of a round.

        Args:
            round_number: The round, from 1.
            trajectory: Measurements [S, T, ...].
            known: Metrics of the round that do not follow from them, such as how many actions were late.
        """
        given = {name: getattr(trajectory, name) for name in ARRAYS}
        arrays = {name: array for name, array in given.items() if array is not None}
        content = measurements_to_bytes(arrays, self.config.world.spec, known)
        write_atomically(self.data_path(round_number), content)

    def drop_data(self, round_number: int) -> None:
        """Delete the measurements of a round.

        Args:
            round_number: The round, from 1.
        """
        self.data_path(round_number).unlink(missing_ok=True)

    def save_policies(self, policies: Mapping[str, Policy]) -> list[Path]:
        """Write those policies that are trained and can be used without a planner, in place of the last ones.

        Args:
            policies: Policies by name.

        Returns:
            The files.
        """
        paths = []
        for name, policy in policies.items():
            content = policy.to_bytes()
            if content is not None:
                (self.folder / "policies").mkdir(exist_ok=True)
                paths.append(self.folder / "policies" / f"{name}.safetensors")
                write_atomically(paths[-1], content)
        return paths

    # Checkpoints

    def save_checkpoint(self, round_number: int, params: Any) -> None:
        """Write what was learned, which finishes the round; only the last two checkpoints are kept.

        Args:
            round_number: The round; 0 for what was learned from initial data alone.
            params: What was learned: the model's params, or with them what else measurements do not tell.
        """
        self._checkpoints.save(round_number, params)
        self.publish()

    def load_checkpoint(self, round_number: int, like: Any) -> Any:
        """Read what was learned; a checkpoint that is damaged, incomplete or of another run is rejected.

        Args:
            round_number: The round, from 1.
            like: Params of the same structure and shapes.
        """
        try:
            return self._checkpoints.load(round_number, like)
        except SondeError as error:
            older = [n for n in self.checkpoints() if n < round_number and self._checkpoints.is_usable(n, like)]
            if round_number == 0 or not has_simulator(self.config.world):
                note, _ = self._checkpoints.paths(round_number)
                hint = f"restore it from a copy; or, if data/ is complete, remove {note}: the round is then learned again"
            elif older:
                hint = f"an older checkpoint is good: 'sonde resume {self.folder} --from-round {older[-1]}' uses it"
            else:
                hint = f"no older checkpoint is good: 'sonde resume {self.folder} --from-round 0' starts the run over"
            raise SondeError(f"{error}; {hint}") from None

    # Metrics

    def append_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Add the metrics of a round, and drop those of later rounds, which were not finished.

        Args:
            rows: One dictionary per seed.
        """
        append_lines(self.folder, rows[0]["round"], "".join(json.dumps(row) + "\n" for row in rows).encode())

    def why_stopped(self) -> str | None:
        """Why the run stopped early by its stopping rule, in words; None if it did not."""
        rows = self.load_metrics()
        return rows[-1].get("stopped") if rows else None

    def forget_after(self, round_number: int) -> None:
        """Delete checkpoints, metrics and policies of later rounds, after an interruption or to go back.

        Args:
            round_number: The last round that stays; its metrics and those of earlier rounds are checked first.
        """
        lines, saved = self._metrics_after(round_number), saved_lines(self.folder)
        # checkpoints first: a run never continues from one whose metrics are gone
        self._checkpoints.delete_after(round_number)
        if any(number > round_number for number in saved):  # then the policies are those of a later round
            shutil.rmtree(self.folder / "policies", ignore_errors=True)
        drop_lines(self.folder, lines)


def _checked_config(config: RunConfig) -> str:
    """The config as JSON, once all that it names was found, and the JSON was read back."""
    for task in config.evaluation_tasks:
        check_goal_support(task_named(config.world, task), config.settings_for(task).solver, task)
    if config.exploration_task is not None:
        task_named(config.world, config.exploration_task)
    if config.stopping_rule is not None:
        config.stopping_rule.check_world(config.world)
    _check_model(config)
    text = to_json(config)
    with consent.allow_code():  # what the caller's config names; it may be loaded again later
        from_json(RunConfig, text, "config")  # a run whose config cannot be read could not be resumed
    return text


@double_precision
def _check_model(config: RunConfig) -> None:
    """Reject settings of the model that do not fit the system, without computing anything."""
    spec, model = config.spec, config.model.for_system(config.spec)
    jax.eval_shape(lambda key: model.init(spec.state_dim, spec.input_dim, key), jax.random.key(0))
