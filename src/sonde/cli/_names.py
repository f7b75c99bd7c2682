"""The names that the command line knows: what `sonde list` prints and what Tab completes.

The tables hold classes, whose modules import JAX, and that takes seconds. So the names are in a file, which `_listing` writes
from the tables and a test compares with them.
"""

import json
from pathlib import Path
from typing import Any

NAMES = Path(__file__).with_name("names.json")
"""The file; `python -m sonde.cli._listing` writes it."""


def known_names() -> dict[str, Any]:
    """Read the file.

    Returns:
        `tables`: what `sonde list` prints. `commands`: a summary, the positional words and the options of each. `systems`:
        a summary, the parts and further options of each preset and world. `methods`: the parts of each. `parts`: the
        options that each part brings, by the option that chooses it; also those of worlds. `worlds`: class and tasks of each.
    """
    return json.loads(NAMES.read_text(encoding="utf-8"))
