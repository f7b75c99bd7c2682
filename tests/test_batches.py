"""Batches of the ensembles' training: passes over all rows, and the share of them that is new."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sonde._internal.errors import SondeError
from sonde._internal.precision import double_precision
from sonde.data import Data
from sonde.models import ProbabilisticEnsemble
from sonde.models._ensemble import _Member, _Rows

CAPACITY, COUNT, TOLD = 160, 130, 90


def batches(model: ProbabilisticEnsemble, mask: np.ndarray, told: int | None) -> np.ndarray:
    """The rows of each gradient step of one member [steps, batch_size]."""
    found = []

    def loop(step, start, batch, total):
        found.append(np.asarray(jax.jit(jax.vmap(batch))(jnp.arange(int(total)))))
        return start

    columns = jnp.zeros((CAPACITY, 1), jnp.float32)
    per_epoch = jnp.asarray(-(-int(mask.sum()) // model.batch_size))
    network = jax.tree.map(lambda leaf: leaf[0], model.init(1, 1, jax.random.key(0)).networks)
    member = _Member(network, None, None, jax.random.key(3), jnp.asarray(1))
    model._train(
        loop, member, _Rows(columns, columns, jnp.asarray(mask), per_epoch, None if told is None else jnp.asarray(told))
    )
    return found[0]


def ensemble(**changes) -> ProbabilisticEnsemble:
    return ProbabilisticEnsemble(**{"members": 2, "width": 4, "batch_size": 20, "epochs": 10, "patience": 0, **changes})


def filled(hidden: float = 0.0) -> np.ndarray:
    empty = Data.empty(CAPACITY, 1, 1)
    return np.asarray(Data(empty.states, empty.actions, empty.next_states, jnp.asarray(COUNT), hidden).mask())


def is_permutation(rows: np.ndarray, of: np.ndarray) -> bool:
    return sorted(rows.tolist()) == of.tolist()


@pytest.mark.parametrize("hidden", [0.0, 0.3])
@pytest.mark.parametrize(("share", "new"), [(0.25, 5), (0.5, 10), (0.93, 19)])
def test_each_batch_has_its_share_of_new_rows_and_both_streams_are_passes_without_gaps(share, new, hidden):
    mask = filled(hidden)
    every, later = np.flatnonzero(mask), np.flatnonzero(mask & (np.arange(CAPACITY) >= TOLD))
    assert 0 < len(later) < len(every) and (hidden == 0 or len(every) < COUNT)
    rows = batches(ensemble(new_share=share, epochs=40), mask, TOLD)
    from_all, from_new = rows[:, : 20 - new], rows[:, 20 - new :]
    assert np.all(from_new >= TOLD) and np.all(mask[rows])
    for stream, members in ((from_all, every), (from_new, later)):
        steps = -(-len(members) // stream.shape[1])
        passes = [stream[start : start + steps].ravel()[: len(members)] for start in range(0, len(stream) - steps + 1, steps)]
        assert len(passes) >= 2 and all(is_permutation(one, members) for one in passes)
        assert not np.array_equal(passes[0], passes[1])


def test_without_new_share_a_batch_is_the_next_part_of_a_pass_over_all_rows():
    mask = filled()
    rows = batches(ensemble(), mask, None)
    assert is_permutation(rows[:7].ravel()[:COUNT], np.arange(COUNT))
    # on average, new rows are drawn as often as others
    assert np.mean(rows[:7].ravel()[:COUNT] >= TOLD) == pytest.approx((COUNT - TOLD) / COUNT)


@pytest.mark.parametrize("told", [0, COUNT])
def test_all_rows_count_as_new_at_the_first_fit_and_where_no_row_is_new(told):
    rows = batches(ensemble(new_share=0.5), filled(), told)
    assert is_permutation(rows[:13, 10:].ravel(), np.arange(COUNT))


def test_new_rows_of_a_bootstrap_sample_are_those_of_the_sample():
    sample = batches(ensemble(bootstrap=True), filled(), None)[:7].ravel()[:COUNT]
    rows = batches(ensemble(bootstrap=True, new_share=0.5, epochs=40), filled(), TOLD)
    later = np.sort(sample[sample >= TOLD])
    assert len(set(later)) < len(later)  # it is drawn with replacement
    assert is_permutation(rows[:, 10:].ravel()[: len(later)], later)
    assert is_permutation(rows[:13, :10].ravel(), np.sort(sample))


@pytest.mark.parametrize(("share", "size"), [(-0.1, 64), (1.0, 64), (float("nan"), 64), (0.001, 64), (0.999, 64), (0.5, 1)])
def test_shares_that_leave_no_new_or_no_other_rows_are_rejected(share, size):
    with pytest.raises(SondeError, match="new_share must be 0 or a share below 1"):
        ProbabilisticEnsemble(new_share=share, batch_size=size)


@pytest.mark.slow
@double_precision
def test_new_measurements_are_learned_sooner_and_their_number_is_kept_only_if_needed():
    draws = np.random.default_rng(0)
    states = draws.uniform(-1, 0, (CAPACITY, 1))
    states[TOLD:] += 1  # where nothing was measured before
    empty, changes = Data.empty(CAPACITY, 1, 1), np.sin(6 * states)
    error = {}
    for share in (0.0, 0.5):
        model = ProbabilisticEnsemble(members=2, width=32, noise="fixed", patience=0, max_steps=150, new_share=share)
        params = model.init(1, 1, jax.random.key(0))
        fit = jax.jit(model.fit)
        for number, count in enumerate((TOLD - 80, CAPACITY)):  # many old rows, fitted once when they were few
            data = Data(jnp.asarray(states), empty.actions, jnp.asarray(states + changes), jnp.asarray(count))
            params = fit(params, data, jnp.asarray(count), jax.random.key(number))
        assert (params.told is None) if share == 0 else (int(params.told) == CAPACITY)
        assert model.condition(params, data).params.told is None
        mean = jax.vmap(model.condition(params, data).predict)(data.states, data.actions).mean
        error[share] = np.sqrt(np.mean((np.asarray(mean) - states - changes)[TOLD:] ** 2))
    assert error[0.5] < error[0.0]
