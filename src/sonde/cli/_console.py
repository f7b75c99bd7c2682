"""The console of the commands."""

from rich.console import Console


def plain_console() -> Console:
    """A console that prints texts as they are: a folder may be called [bold] or :cat:."""
    return Console(markup=False, emoji=False)
