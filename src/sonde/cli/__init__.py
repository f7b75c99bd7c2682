"""The command line.

This module is all that is imported before Ctrl-C is listened for, so it imports nothing heavy.
"""

from sonde.cli import _interrupts


def main() -> None:
    """Run `sonde` or `python -m sonde`: the entry point of the process, which ends with it."""
    _interrupts.listen()
    try:
        from sonde.cli import _main

        _main.main()
    except SystemExit as end:
        _interrupts.end(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)
    except BaseException:  # an import that is interrupted may raise anything
        if not _interrupts.received():
            raise
    _interrupts.end(0)


__all__ = ["main"]
