"""A system that only its owner can run: Sonde knows the names of its numbers, and what it is told."""

from dataclasses import dataclass

from sonde._internal.errors import SondeError
from sonde.worlds._base import World


@dataclass(frozen=True)
class OwnSystem(World):
    """Yours: you run it yourself and say what you measured (`ask` and `tell`)."""

    states: tuple[str, ...] = ("x0",)
    """A short name for each number in a state."""
    actions: tuple[str, ...] = ("u0",)
    """A short name for each number in an action."""

    def __post_init__(self):
        """Refuse names that tell nothing apart."""
        for what, names in (("states", self.states), ("actions", self.actions)):
            if not names or len(set(names)) != len(names) or not all(names):
                raise SondeError(f"own system: {what} must be names, at least one and all different, got {list(names)}")

    @property
    def state_names(self) -> tuple[str, ...]:
        """As given."""
        return self.states

    @property
    def action_names(self) -> tuple[str, ...]:
        """As given."""
        return self.actions

    def reachable(self) -> None:
        """Nobody knows."""
