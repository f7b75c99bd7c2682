"""`sonde report DIR [DIR ...]`: one HTML file about runs."""

import webbrowser
from dataclasses import dataclass
from pathlib import Path

import tyro

from sonde._internal.errors import SondeError


@dataclass
class ReportArguments:
    """Write one HTML file about a run, or about several runs side by side; it needs no network and can be sent to anybody."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs on one system; runs that differ only in their seeds are pooled."""
    out: Path | None = None
    """The file; by default DIR/report.html for one run, and sonde-report.html here for several."""
    open: bool = False
    """Show it in the browser."""
    follow: bool = False
    """Write it again whenever a round of a running exploration ends, until the run ends; the page renews itself."""
    films: bool = True
    """Plan the tasks once more and film them; about as long as the run's last evaluation."""
    promises: bool = True
    """Plan the tasks once more, and compare the return that the model promises with the one that is achieved."""
    oracle: bool = False
    """Also plan the tasks on the true system, where it is written in JAX."""
    allow_code: bool = False
    """Run code of others that a run names, such as FILE.py:NAME; code that you ran before needs no permission."""


def main(args: list[str]) -> None:
    """Run the command.

    Args:
        args: Words after the command.
    """
    chosen = tyro.cli(ReportArguments, args=args, prog="sonde report")
    if not chosen.folders:
        raise SondeError("report: name at least one folder of a run")
    if chosen.follow and len(chosen.folders) > 1:
        raise SondeError(f"report: --follow is for one run, got {len(chosen.folders)} folders")
    from sonde.cli._console import plain_console  # not above: help does not wait for JAX
    from sonde.cli._interrupts import saying
    from sonde.runs.report._follow import follow_report
    from sonde.runs.report._tasks import TaskWork
    from sonde.runs.report._write import report_path, write_report

    path = report_path(chosen.folders, chosen.out)
    console = plain_console()

    def show(written: Path) -> None:
        console.print(f"Report: {written}", soft_wrap=True)
        if chosen.open and not webbrowser.open(written.absolute().as_uri()):
            console.print("No browser could be opened: open the file yourself.")

    with console.status("reading the runs ...") as status:
        say = lambda doing: status.update(f"{doing} ...")
        tasks = {"films": chosen.films, "promises": chosen.promises, "oracle": chosen.oracle}
        if chosen.follow:
            with saying(lambda: f"Stopped following. The run goes on by itself; its report so far: {path}"):
                work = TaskWork(**tasks)
                ended = follow_report(chosen.folders[0], path, work=work, allow_code=chosen.allow_code, say=say, on_first=show)
            console.print(ended, soft_wrap=True)
        else:
            show(write_report(chosen.folders, path, **tasks, allow_code=chosen.allow_code, say=say))
