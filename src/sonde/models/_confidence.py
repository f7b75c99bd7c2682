"""How far a model's uncertainty is trusted: held-out measurements, recalibration, and the rule for beta."""

from dataclasses import dataclass

from sonde._internal.errors import SondeError
from sonde.models._base import Model
from sonde.models._beta import BetaRule


@dataclass(frozen=True)
class Confidence:
    """Settings of the confidence region around a model's mean."""

    holdout: float = 0.0
    """Fraction of the measurements that fits do not see; the model is evaluated and recalibrated on them. 0 for none."""
    recalibrate: bool = False
    """Rescale the model's stds so that its intervals have the stated coverage on the held-out measurements."""
    beta_rule: BetaRule | None = None
    """How wide the confidence region is, in epistemic stds per output, found after each round; None: as wide as the method's
    imagination says (its `beta`)."""

    def check(self, model: Model, capacity: int) -> None:
        """Reject settings that cannot work.

        Args:
            model: The model that they are for.
            capacity: Number of transitions that a seed can collect.
        """
        if not 0 <= self.holdout <= 0.5:
            raise SondeError(f"confidence: holdout must lie in [0, 0.5], got {self.holdout}")
        if self.recalibrate and self.holdout == 0:
            raise SondeError(
                "confidence: recalibrate needs measurements that no fit sees: set holdout above 0, for example to 0.2"
            )
        if self.beta_rule is not None:
            self.beta_rule.check(model, capacity, self.holdout, self.recalibrate)
