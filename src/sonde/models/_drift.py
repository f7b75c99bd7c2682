"""Whether a system has changed: errors where the model was certain.

An explorer visits what it does not know, where its model may err by much more than it promised. So the errors of a round say
nothing about the system by themselves. They do at the points that were known: where the model from before the round was about
as sure of the mean as noise allows. There a measurement can hardly be off by more than noise, unless the system is another one.
The median over these points leaves room for kinks and contacts, about which a smooth model may be wrong in places.
"""

import numpy as np

KNOWN = 2.0
"""Epistemic stds per aleatoric std (root mean square over state dimensions) up to which a point counts as known.
At the points that it was trained on, a Gaussian process has 0.5 to 1, an ensemble 1 to 3."""
FEWEST = 5
"""Known points that a round must have."""
CHANGED = 2.0
"""Median error at the known points, in promised stds (root mean square over state dimensions), above which the system counts as
changed. Errors that are as promised have 0.7 to 0.9; the median of only five of them is above 2 once in a thousand times in one
dimension, and once in 200,000 times in three. Chosen on development seeds (experiments/NOTES.md, "A system that changes")."""


def median_known_error(errors: np.ndarray, epistemic_std: np.ndarray, aleatoric_std: np.ndarray) -> np.ndarray:
    """The median error of a round where the model was certain.

    Args:
        errors: Absolute errors of the mean [S, T, dx].
        epistemic_std: Promised epistemic stds [S, T, dx].
        aleatoric_std: Promised aleatoric stds [S, T, dx].

    Returns:
        Root mean square over state dimensions of the errors in promised stds, median over the known points [S]; NaN where there
        are fewer than `FEWEST`.
    """
    promised = np.hypot(epistemic_std, aleatoric_std)
    with np.errstate(divide="ignore"):
        in_stds = np.divide(errors, promised, out=np.zeros_like(errors), where=errors > 0)
        ratio = np.divide(epistemic_std, aleatoric_std, out=np.zeros_like(errors), where=epistemic_std > 0)
    size = np.sqrt(np.mean(in_stds**2, axis=-1))
    known = np.sqrt(np.mean(ratio**2, axis=-1)) <= KNOWN
    return np.array([np.median(z[k]) if k.sum() >= FEWEST else np.nan for z, k in zip(size, known, strict=True)])
