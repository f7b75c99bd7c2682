"""Which measurements a model learns from, and how far its uncertainty is trusted."""

from dataclasses import dataclass

from sonde._internal.errors import SondeError, whole
from sonde.models._base import Model
from sonde.models._beta import BetaRule


@dataclass(frozen=True)
class Confidence:
    """Which measurements a model learns from, and settings of the confidence region around its mean."""

    window: int | None = None
    """Learn from this many of the latest measurements of each seed, for systems that change slowly; by default from all. The
    others stay on disk."""
    forget_at_alarm: bool = False
    """Forget what was measured before the round in which the alarm of a change (the metric drift) rings; each seed does so by
    itself, and goes on as if its run had begun there. For systems that change suddenly. Measurements stay on disk."""
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
        whole("confidence", window=1 if self.window is None else self.window)
        if not 0 <= self.holdout <= 0.5:
            raise SondeError(f"confidence: holdout must lie in [0, 0.5], got {self.holdout}")
        if self.recalibrate and self.holdout == 0:
            raise SondeError(
                "confidence: recalibrate needs measurements that no fit sees: set holdout above 0, for example to 0.2"
            )
        if self.beta_rule is not None:
            self.beta_rule.check(model, self.in_window(capacity), self.holdout, self.recalibrate)

    @property
    def forgets(self) -> bool:
        """Whether the model may leave measurements out."""
        return self.window is not None or self.forget_at_alarm

    def in_window(self, measurements: int) -> int:
        """How many of some measurements the model learns from.

        Args:
            measurements: Their number.
        """
        return measurements if self.window is None else min(self.window, measurements)
