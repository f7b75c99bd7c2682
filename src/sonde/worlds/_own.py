"""A system that only the user can run: Sonde knows its dimensions and the measurements it is given."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from sonde.data import StateLayout, SystemSpec
from sonde.worlds._base import World


@dataclass(frozen=True)
class OwnSystem(World):
    """A system without a simulator: you run it and pass the measurements (`ask` and `tell`)."""

    states: tuple[str, ...] = ("x0",)
    """A short name for each state dimension."""
    actions: tuple[str, ...] = ("u0",)
    """A short name for each action dimension."""
    objects: Annotated[StateLayout | None, tyro.conf.Suppress] = None
    """How the state is made of an agent and equal objects, for models that use it (in Python only); None where it is not."""

    def __post_init__(self):
        """Reject empty and ambiguous names, by the rules of `SystemSpec`."""
        SystemSpec(self.states, self.actions, layout=self.objects)

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names given as `states`."""
        return self.states

    @property
    def action_names(self) -> tuple[str, ...]:
        """The names given as `actions`."""
        return self.actions

    @property
    def layout(self) -> StateLayout | None:
        """What was given as `objects`."""
        return self.objects

    def reachable(self) -> None:
        """Unknown, since Sonde cannot run the system."""
