"""The command line, called in the process of a test."""

import sys

from sonde.cli import _main


def call(monkeypatch, *args: str) -> int:
    """Run `sonde ARGS`; returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["sonde", *args])
    monkeypatch.setattr(_main, "cache_compilations", lambda: None)
    try:
        _main.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0
