"""Callbacks for the workers of a sweep, in a file of one's own as a user would write them."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from sonde.runs import Callback


@dataclass(frozen=True)
class Interrupt(Callback):
    """Ends, or stops, its process after a round; once, as the marker says."""

    after: int
    marker: str
    kill: bool = True

    def on_round_end(self, round_number, rows):
        if round_number == self.after and not Path(self.marker).exists():
            Path(self.marker).touch()
            if self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(600)  # until someone else ends it


@dataclass(frozen=True)
class RoundsInFile(Callback):
    """Notes finished rounds in a file."""

    path: str
    prefix: str = "round"

    def on_round_end(self, round_number, rows):
        with Path(self.path).open("a") as file:
            file.write(f"{self.prefix} {round_number} of {len(rows)} seeds\n")
