"""The process of batches on this machine: `python -m sonde.runs.sweep._process MODULE:FUNCTION CALLBACKS FOLDER ...`.

It ends when its parent does, which it notices by the end of its standard input.
"""

import os
import sys
import threading
from pathlib import Path

from sonde._internal.compilation_cache import cache_compilations
from sonde._internal.consent import allow_code
from sonde._internal.errors import SondeError
from sonde.runs.sweep._worker import explore_in_lockstep, work


def _end_with_parent() -> None:
    def wait() -> None:
        while os.read(0, 1):  # not through sys.stdin, whose lock would be held when the process ends
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """Entry point of the process."""
    worker, callbacks, *folders = sys.argv[1:]
    _end_with_parent()
    cache_compilations()
    try:
        with allow_code():  # the process that made the folder has loaded the same code
            if len(folders) == 1:
                work(worker, Path(folders[0]), callbacks)
            elif not explore_in_lockstep([Path(folder) for folder in folders], callbacks):
                raise SystemExit(2)
    except SondeError as error:
        print(f"sonde: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
