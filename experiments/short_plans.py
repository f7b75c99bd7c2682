"""The settings behind recorded results on the pendulum from before `pendulum-gp-lite` had plans of 60 steps.

They plan one second ahead, at every step, and are what scripts of `experiments.scripts` ran with; `NOTES.md` and pages of the
documentation have the results.
"""

from dataclasses import replace

from sonde.imagination import Optimistic
from sonde.methods import METHODS
from sonde.runs import preset
from sonde.solvers import ICEM

_FULL = preset("pendulum-gp")

SHORT_PLANS = replace(
    _FULL,
    rounds=4,
    method=replace(METHODS["opax"], imagination=Optimistic(particles=3, beta=2.0)),
    solver=ICEM(samples=100, elites=10, iterations=4),
)
"""A pendulum, a Gaussian process and plans of 20 steps."""
