"""Write a report: open the runs, compute what the page shows, and put it into one file."""

from collections.abc import Callable, Sequence
from pathlib import Path

from sonde._internal.errors import SondeError
from sonde._internal.files import write_atomically
from sonde.runs._place import REPORT
from sonde.runs.report._content import Content, collect
from sonde.runs.report._page import write
from sonde.runs.report._subjects import Source, opened, subjects
from sonde.runs.report._tasks import Say, TaskWork

SEVERAL = Path("sonde-report.html")
"""Default file of a report on several runs."""
SUFFIXES = (".html", ".htm")


def write_report(
    folders: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    films: bool = True,
    promises: bool = True,
    oracle: bool = False,
    allow_code: bool = False,
    say: Say | None = None,
) -> Path:
    """Write one self-contained HTML file about a run, or about several runs side by side.

    Args:
        folders: Folder of a run, or folders of several; runs that differ only in their seeds are pooled.
        out: The file; by default report.html in the folder of a single run, and sonde-report.html here for several.
        films: Whether tasks are planned once more and filmed.
        promises: Whether tasks are planned once more and run on the model, to compare what it promises with what is achieved.
        oracle: Whether tasks are also planned on the true system, where it is written in JAX.
        allow_code: Whether code that the runs name may run, even if the user never allowed it before.
        say: Called with what is being done.

    Returns:
        The path of the file.
    """
    named = [Path(folders)] if isinstance(folders, str | Path) else [Path(folder) for folder in folders]
    path = report_path(named, None if out is None else Path(out))
    sources = [opened(folder, allow_code) for folder in named]
    save(collect(subjects(sources), TaskWork(films, promises, oracle), say or (lambda _: None)), path)
    return path


def report_path(folders: Sequence[Path], out: Path | None) -> Path:
    """Where a report is written; files that it cannot be, and folders that are named twice, are rejected before any work.

    Args:
        folders: Folders of the runs.
        out: The file that was asked for, if any.
    """
    if not folders:
        raise SondeError("report: name at least one folder of a run")
    twice = [folder for i, folder in enumerate(folders) if folder.resolve() in [other.resolve() for other in folders[:i]]]
    if twice:
        raise SondeError(f"report: {twice[0]} is named twice; name every run once")
    path = out or (folders[0] / REPORT if len(folders) == 1 else SEVERAL)
    if path.suffix.lower() not in SUFFIXES:
        raise SondeError(f"a report cannot be written to {path.name!r}: end its name in {' or '.join(SUFFIXES)}")
    if path.is_dir():
        raise SondeError(f"{path} is a folder: name a file for the report")
    return path


def report_of(source: Source, work: TaskWork, say: Callable[[str], None]) -> Path:
    """Write the report of a run whose explorer is at hand, into its folder.

    Args:
        source: The run.
        work: What to compute for tasks.
        say: Called with what is being done.
    """
    path = report_path([source.store.folder], None)
    save(collect(subjects([source]), work, say), path)
    return path


def save(content: Content, path: Path, renew: float | None = None, status: str | None = None) -> None:
    """Write a page, whole or not at all.

    Args:
        content: What it shows.
        path: The file.
        renew: Seconds after which the page loads itself again; None for a page that stays.
        status: A sentence about the run at the top of the page.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, write(content, renew, status).encode(errors="backslashreplace"))  # folders may have any name
