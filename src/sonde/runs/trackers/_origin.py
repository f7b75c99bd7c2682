"""Where a run comes from: its config, the versions and the machine, and the git state of the user's working directory."""

import json
import subprocess
from pathlib import Path
from typing import Any

from sonde._internal.machine import this_machine
from sonde.runs._codec import to_json
from sonde.runs._config import RunConfig

SECONDS = 10.0
"""How long git may take."""
# settings of a repository may name programs that git would run
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


def git_state(folder: Path) -> dict[str, Any]:
    """The commit of a working directory, and whether tracked files differ from it.

    Args:
        folder: The working directory.

    Returns:
        `commit` and `dirty`; nothing where there is no repository, no commit or no git.
    """
    try:
        commit = _git(folder, "rev-parse", "--verify", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"commit": commit.strip(), "dirty": bool(changed.strip())}


def origin() -> dict[str, Any]:
    """Git state and versions of this process."""
    return {"git": git_state(Path.cwd()), "versions": this_machine()}


def config_document(config: RunConfig) -> dict[str, Any]:
    """A config as nested dictionaries, as in `config.json`.

    Args:
        config: The config.
    """
    return json.loads(to_json(config))


def _git(folder: Path, *words: str) -> str:
    command = [*_GIT, "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS).stdout
