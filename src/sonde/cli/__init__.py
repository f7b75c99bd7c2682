"""The command line."""

from sonde.cli._main import main

__all__ = ["main"]
