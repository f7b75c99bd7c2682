"""Robust policies: training against an adversary that chooses among what the model considers plausible; guaranteed returns."""

from sonde.solvers.adversarial._guarantees import REGION_SHARES, ModelReturns, mean_returns, most_robust, with_region_share

__all__ = ["REGION_SHARES", "ModelReturns", "mean_returns", "most_robust", "with_region_share"]
