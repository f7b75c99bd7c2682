"""The place of a run: which folder may become one, which may be replaced, and how a new run takes its place.

    NAME           a run; or nothing yet, or an empty folder
    .NAME.draft    a run that is being started; it becomes NAME when there is something to keep
    .NAME.old      the run that is being replaced, between two renames

A process that changes any of the three holds the lock of `.NAME.draft`; one that writes into NAME, or replaces it, holds the
lock of NAME. Locks end with their process. A process that is killed at any moment leaves NAME as it was or as it will be, or
one of these, which the next start puts in order (`tidy`):

    .NAME.draft that is not locked          the run had no finished round: it is deleted
    .NAME.old without NAME                  killed between the two renames: it is moved back
    .NAME.old and NAME                      killed after both renames: it is deleted
"""

import contextlib
import fcntl
import os
import re
import shutil
import time
from collections.abc import Generator, Iterator
from pathlib import Path

from sonde._internal.errors import SondeError
from sonde._internal.files import open_to_append, sync_folder
from sonde._internal.reading import MAX_JSON_BYTES, parse_json, read_limited

FOLDERS = ("data", "checkpoints", "figures")
"""Folders that every run has."""
LOCK = ".lock"
REPORT = "report.html"
REPLACED = "replaced"
"""In a draft: a run that was replaced and is being deleted."""
FILES = {
    ".": r"config\.json|fit\.json|metrics\.(jsonl|sha256)|\.lock|log\.txt|machines\.jsonl|report\.html",
    "data": r"[0-9]{4,}\.safetensors|initial\.(safetensors|sha256)",
    "checkpoints": r"[0-9]{4,}\.(safetensors|json)",
    "policies": r".+\.safetensors",
    "figures": r"(curves|states|calibration|theory|fit)\.(png|pdf|svg)",
    "tracks": r"[a-z][a-z0-9_-]*\.json",
}
"""All that Sonde writes into a run: names of files (regular expressions) by folder. What else is there is not Sonde's."""
TREES = {
    "tracks/tensorboard": r"(run|seed-[0-9]+)/events\.out\.tfevents\.[0-9]+\.sonde\.[a-z]+\.[0-9]{6,}",
    "tracks/wandb": r"(offline-)?run-[0-9]{8}_[0-9]{6}-[\w-]+/.+",
}
"""The same for folders of trackers: paths of files below a folder."""
LINKS = re.compile(r"tracks/wandb/[^/]+/logs/[\w-]+\.log")
"""Links that wandb makes, to its log elsewhere; what is deleted with the folder is the link."""


def foreign_entries(folder: Path) -> list[str]:
    """What a folder holds that Sonde does not write into a run; links are never Sonde's.

    Args:
        folder: The folder.

    Returns:
        Paths within it, sorted.
    """
    found = []
    for name, pattern in FILES.items():
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            own = re.compile(rf"{pattern}|\.({pattern})\.part")
            for entry in os.scandir(folder / name):
                known = FILES if name == "." else TREES
                is_folder = Path(name, entry.name).as_posix() in known and entry.is_dir(follow_symlinks=False)
                is_file = own.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
                if not is_folder and not is_file:
                    found.append(entry.name if name == "." else f"{name}/{entry.name}")
    return sorted([*found, *_foreign_in_trees(folder)])


def _foreign_in_trees(folder: Path) -> Iterator[str]:
    """What the folders of trackers hold that these do not write; what is in a folder that is a link is not looked at."""
    for name, pattern in TREES.items():
        linked = any((folder / part).is_symlink() for part in (name, Path(name).parent))
        own = re.compile(rf"{pattern}|[^/]+/\.[^/]+\.part")
        for place, folders, files in os.walk(folder / name) if not linked else ():  # does not follow links
            paths = [Path(place, entry) for entry in (*folders, *files)]
            for path in paths:
                within = path.relative_to(folder / name).as_posix()
                if path.is_symlink():
                    is_own = LINKS.fullmatch(f"{name}/{within}")
                else:
                    is_own = path.is_dir() or (path.is_file() and own.fullmatch(within))
                if not is_own:
                    yield f"{name}/{within}"


def reject_links(folder: Path) -> None:
    """Reject a run whose folders are links: what is written into them would land elsewhere.

    Args:
        folder: Folder of the run.
    """
    links = [name for name in FILES if name != "." and (folder / name).is_symlink()]
    if links:
        raise SondeError(f"{folder}: {', '.join(links)} must be a folder, not a link to one; replace the link by what it names")


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files of a process that was killed; the caller holds the lock of the run.

    Args:
        folder: Folder of the run.
    """
    for name, pattern in FILES.items():
        if name != "figures" and (folder / name).is_dir():  # figures are also drawn by processes that hold no lock
            for path in (folder / name).glob(".*.part"):
                # like figures, a report is also written by processes that hold no lock
                if re.fullmatch(rf"\.({pattern})\.part", path.name) and path.name != f".{REPORT}.part":
                    path.unlink(missing_ok=True)


def lock(folder: Path) -> int:
    """Lock a folder against other processes.

    Args:
        folder: The folder, which exists.

    Returns:
        The descriptor of the lock, which is released when it is closed, or with the process.
    """
    path = folder / LOCK
    while True:
        descriptor = open_to_append(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=False)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise SondeError(f"{folder} is in use by another process; wait for it or stop it") from None
        except FileNotFoundError:
            pass
        os.close(descriptor)  # the folder was moved or replaced since its lock was opened


@contextlib.contextmanager
def locked(folder: Path) -> Generator[None]:
    """Hold the lock of a run.

    Args:
        folder: Folder of the run.
    """
    descriptor = lock(folder)
    try:
        yield
    finally:
        os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of a folder; nothing is written.

    To find out, the lock is shared for a moment, in which nobody else can have it: do not ask often.

    Args:
        folder: The folder.
    """
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


class Draft:
    """A run that is being started: a hidden and locked folder, until it takes its place."""

    def __init__(self, place: Path, overwrite: bool = False):
        """Make the draft, empty.

        Args:
            place: Where the run will be; nothing there is changed yet.
            overwrite: Whether a run that is there may be replaced.
        """
        self.place, self.folder, self.published = place, _draft_of(place), False
        if not _old_of(place).exists():
            _check_place(place, overwrite)  # before anything is made
        missing = [folder for folder in place.parents if not folder.exists()]
        place.parent.mkdir(parents=True, exist_ok=True)
        self._made, self._open = missing, contextlib.ExitStack()
        self._lock = _claim(place)
        self._open.callback(os.close, self._lock)
        try:
            _put_in_order(place)
            self._found = _check_place(place, overwrite)
            if self._found == "run":  # from now on it does not change until it is replaced
                self._open.callback(os.close, lock(place))
        except BaseException:
            self.discard()
            raise

    def publish(self) -> None:
        """Move the draft to its place; what was there is deleted once that is done."""
        old, place, made = _old_of(self.place), self.place, False
        try:
            if self._found == "run":
                place.rename(old)
                _check_place(old, True)  # once more, where nobody looks for it: it may have changed since the start
            if self._found != "empty":
                # a rename would silently replace an empty folder that somebody else has just made; mkdir does not
                place.mkdir()
                made = True
            self.folder.rename(place)
        except BaseException as error:
            with contextlib.suppress(OSError):  # what cannot be put back now is put back by the next start
                if made:
                    place.rmdir()
                if self._found == "run":
                    old.rename(place)
            if isinstance(error, SondeError | OSError):
                why = str(error).replace(str(old), str(place))
                raise SondeError(f"{place} changed while the run was being started: {why}") from None
            raise
        self.folder, self.published = place, True
        sync_folder(place.parent)
        with contextlib.suppress(OSError):  # the new run is in place; what cannot be deleted now is deleted by the next start
            tidy(place)

    def release(self) -> None:
        """Unlock the folder."""
        self._open.close()

    def discard(self) -> None:
        """Delete the folder, and those above it that were made for it, unless there is something else in them."""
        try:
            if os.path.samestat(os.fstat(self._lock), (self.folder / LOCK).stat()):  # not the draft of another process
                _delete(self.folder)
                for folder in self._made:
                    folder.rmdir()
        except OSError:  # not empty, or in use by a process that has found it in the meantime
            pass
        finally:
            self.release()


def tidy(place: Path) -> None:
    """Put in order what a process that was killed has left beside a run; does nothing while another process is at it.

    Args:
        place: Folder of the run, whether it exists or not.
    """
    if _draft_of(place).exists() or _old_of(place).exists():
        try:
            descriptor = _claim(place)
        except SondeError:
            return
        try:
            _put_in_order(place)
        finally:
            _delete(_draft_of(place))
            os.close(descriptor)


def wait_until_in_place(place: Path) -> None:
    """Wait for the moment in which one run replaces another to pass, or undo what was left of it.

    Args:
        place: Folder of the run.
    """
    for _ in range(100):
        if (place / "config.json").exists() or not _old_of(place).exists():
            return
        tidy(place)
        time.sleep(0.01)


def is_unfinished(place: Path) -> bool:
    """Whether a run was begun at a place and has no finished round yet, so that there is no folder.

    Args:
        place: Folder of the run.
    """
    return not place.exists() and _draft_of(place).exists()


def is_being_started(place: Path) -> bool:
    """Whether a process works on the first round of a run.

    Args:
        place: Folder of the run.
    """
    return is_unfinished(place) and is_locked(_draft_of(place))


def _draft_of(place: Path) -> Path:
    return place.parent / f".{place.name}.draft"


def _old_of(place: Path) -> Path:
    return place.parent / f".{place.name}.old"


def _check_place(place: Path, overwrite: bool) -> str | None:
    """What a new run may replace: "run", "empty" (a folder) or None; other things are rejected."""
    if place.is_symlink():
        raise SondeError(f"{place} is a link; name the folder itself")
    if not place.exists():
        return None
    if not place.is_dir():
        raise SondeError(f"{place} is not the folder of a run, so it is not replaced; choose another --out")
    if not any(place.iterdir()):
        return "empty"
    if not overwrite:
        raise SondeError(
            f"{place} exists; choose another --out, continue it with 'sonde resume', or replace it with --overwrite"
        )
    if not _has_config(place):
        raise SondeError(f"{place} is not the folder of a run, so it is not replaced; choose another --out")
    foreign = foreign_entries(place)
    if foreign:
        more = f" and {len(foreign) - 5} more" if len(foreign) > 5 else ""
        raise SondeError(
            f"{place} holds what Sonde did not write, so it is not replaced: {', '.join(foreign[:5])}{more}; "
            "move that away, or choose another --out"
        )
    return "run"


def _has_config(folder: Path) -> bool:
    """Whether config.json is that of a run; the config is not loaded, since it may name code."""
    try:
        entries = parse_json(read_limited(folder / "config.json", MAX_JSON_BYTES), "config.json")
    except (OSError, SondeError):
        return False
    return isinstance(entries, dict) and {"format", "world", "rounds"} <= entries.keys()


def _claim(place: Path) -> int:
    """Lock the draft of a place, and empty it: it is new, or a process that was killed has left it."""
    draft = _draft_of(place)
    while True:
        draft.mkdir(exist_ok=True)  # fails if it is anything but a folder
        if draft.is_symlink():
            raise SondeError(f"{draft} is a link, and Sonde does not write through it; remove it")
        try:
            descriptor = lock(draft)
        except FileNotFoundError:  # it was moved to its place, or deleted
            continue
        except SondeError:
            raise SondeError(
                f"{place} is in use by another process, which is starting a run there; wait for it or stop it"
            ) from None
        foreign = [entry for entry in foreign_entries(draft) if entry != REPLACED]
        if foreign:
            os.close(descriptor)
            raise SondeError(f"{draft} holds what Sonde did not write: {', '.join(foreign[:5])}; move that away")
        _empty(draft)
        return descriptor


def _put_in_order(place: Path) -> None:
    """Undo or finish what a process began that was killed between two renames; the caller holds the draft."""
    old = _old_of(place)
    if not old.is_dir():
        return
    if not place.exists() or (place.is_dir() and not any(place.iterdir())):
        old.rename(place)
    elif _has_config(place):
        old.rename(_draft_of(place) / REPLACED)  # a draft is deleted whenever it is found: nobody takes it for a run
        _empty(_draft_of(place))
    else:
        raise SondeError(f"{old} is the run that was at {place} before something else was put there; move one of them away")
    sync_folder(place.parent)


def _empty(folder: Path) -> None:
    """Delete all but the lock of a folder."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        elif entry.name != LOCK:
            Path(entry).unlink()


def _delete(folder: Path) -> None:
    """Delete a folder whose lock the caller holds."""
    _empty(folder)
    (folder / LOCK).unlink(missing_ok=True)
    folder.rmdir()
