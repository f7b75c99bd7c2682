"""Physics of MuJoCo's worlds as factors on what their models say, for systems that differ from the standard ones."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sonde._internal.errors import not_negative, positive
from sonde.worlds._base import HostWorld
from sonde.worlds._mujoco import load_mujoco


class Scales(NamedTuple):
    """Factors on the physics of a model; 1 changes nothing."""

    gravity: float = 1.0
    """On the gravitational acceleration."""
    mass: float = 1.0
    """On masses and inertias."""
    friction: float = 1.0
    """On the friction of contacts."""
    damping: float = 1.0
    """On the damping of joints, and on density and viscosity of the medium."""
    torque: float = 1.0
    """On the forces of actuators."""


STANDARD = Scales()
"""The physics of the model itself."""


@dataclass(frozen=True, kw_only=True)
class ScaledPhysics(HostWorld):
    """A world whose physics can be scaled. At 1, the default, a factor leaves the model as it is, to the last bit."""

    gravity_scale: float = 1.0
    """Factor on gravity."""
    mass_scale: float = 1.0
    """Factor on masses and inertias (fetch-construction: those of the blocks)."""
    friction_scale: float = 1.0
    """Factor on the friction of contacts."""

    def __post_init__(self):
        """Reject factors that cannot be."""
        name = getattr(self, "domain", type(self).__name__)
        not_negative(name, gravity_scale=self.gravity_scale, friction_scale=self.friction_scale)
        positive(name, mass_scale=self.mass_scale)

    @property
    def scales(self) -> Scales:
        """The factors."""
        return Scales(self.gravity_scale, self.mass_scale, self.friction_scale)


def scale_physics(model: Any, scales: Scales, bodies: np.ndarray | None = None) -> Any:
    """Scale the physics of a model.

    Args:
        model: MuJoCo's model, modified in place.
        scales: The factors.
        bodies: Indices of the bodies whose masses are scaled; by default all.

    Returns:
        The model.
    """
    if scales == STANDARD:
        return model
    which = slice(None) if bodies is None else bodies
    model.opt.gravity[:] *= scales.gravity
    model.body_mass[which] *= scales.mass
    model.body_inertia[which] *= scales.mass
    model.geom_friction[:] *= scales.friction
    model.dof_damping[:] *= scales.damping
    model.opt.density *= scales.damping
    model.opt.viscosity *= scales.damping
    for of_actuators in (model.actuator_gainprm, model.actuator_biasprm, model.actuator_forcerange):
        of_actuators[:] *= scales.torque
    mujoco = load_mujoco()
    mujoco.mj_setConst(model, mujoco.MjData(model))  # what MuJoCo derives from masses
    return model
