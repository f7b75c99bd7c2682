"""What an explorer computes with its model for all seeds, as compiled programs."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from sonde._internal.compilation import QuickJit
from sonde._internal.lockstep import lockstep
from sonde.data import Data
from sonde.models._base import Model, Posterior, Prediction, predict_many
from sonde.models._calibration import Calibration, PosteriorWithBeta, RecalibratedPosterior, calibrate, calibration_bytes
from sonde.models._confidence import Confidence
from sonde.models._outputs import seed_by_seed


@eqx.filter_jit
def init_all(model: Model, state_dim: int, input_dim: int, keys):
    """Params of all seeds before the first fit.

    Args:
        model: The model.
        state_dim: Number of state dimensions.
        input_dim: Number of inputs beside the state.
        keys: Randomness of each seed.
    """
    return jax.vmap(lambda key: model.init(state_dim, input_dim, key))(keys)


def _fit_all(model: Model, params: Any, data: Data, filled, keys, holdout: float):
    fit = lambda params, data, key: model.fit(params, data.without(holdout), filled, key)
    return lockstep(fit)(params, data, keys)


_quick_fit, _fast_fit = QuickJit(_fit_all), eqx.filter_jit(_fit_all)


def fit_program(model: Model) -> Any:
    """The fit of all seeds, compiled as is best for the model.

    Args:
        model: The model.
    """
    return _quick_fit if model.fits_by_linear_algebra else _fast_fit


def _with_and_without(model: Model, params: Any, data: Data, holdout: float) -> tuple[Posterior, Posterior]:
    """The posteriors after all measurements, and after those that are not held out."""
    if holdout == 0:
        posterior = model.condition(params, data)
        return posterior, posterior
    seen = lambda hidden: lambda: model.condition(params, data.without(hidden))
    # one after the other: in parallel, their batched decompositions can deadlock on few cores
    both = jax.lax.map(lambda every: jax.lax.cond(every, seen(0.0), seen(holdout)), jnp.array([True, False]))
    return jax.tree.map(lambda leaf: leaf[0], both), jax.tree.map(lambda leaf: leaf[1], both)


@QuickJit
def condition_all(model: Model, params: Any, data: Data, confidence: Confidence) -> tuple[Posterior, Calibration | None]:
    """The posteriors of all seeds, and their calibrations if measurements are held out.

    Args:
        model: The model.
        params: Params [S, ...].
        data: Measurements [S, capacity, ...].
        confidence: What is held out, and how far the uncertainty is trusted.
    """
    holdout = confidence.holdout

    def one_seed(params: Any, data: Data) -> tuple[Posterior, Calibration | None]:
        plain, unseen = _with_and_without(model, params, data, holdout)
        posterior, calibration = plain, None
        if holdout > 0:
            needed = calibration_bytes(data.capacity, data.states.shape[-1])
            calibration = seed_by_seed(calibrate, unseen, data, data.held_out(holdout), bytes_each=needed)
            if confidence.recalibrate:
                posterior, unseen = (RecalibratedPosterior(each, calibration.factors) for each in (plain, unseen))
        if confidence.beta_rule is not None:
            posterior = PosteriorWithBeta(posterior, confidence.beta_rule.beta(plain, unseen, data, holdout))
        return posterior, calibration

    return lockstep(one_seed)(params, data)


@jax.jit
def all_finite(tree: Any):
    """Whether all numbers are.

    Args:
        tree: Arrays.
    """
    # on the device: a posterior of many seeds is large to transfer
    return jnp.all(jnp.stack([jnp.asarray(True), *(jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree))]))


@eqx.filter_jit
def predict_all(posterior: Posterior, x, u) -> Prediction:
    """Predict for one point or many of each seed.

    Args:
        posterior: The posteriors of all seeds.
        x: States [S, dx] or [S, n, dx].
        u: Inputs [S, du] or [S, n, du].
    """
    return jax.vmap(predict_many if x.ndim == 3 else lambda p, x, u: p.predict(x, u))(posterior, x, u)
