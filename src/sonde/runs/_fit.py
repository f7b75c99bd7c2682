"""A run from measurements alone: a model fitted to logs, and judged by what it predicts of a part that it has not seen."""

import warnings
from pathlib import Path

import numpy as np

from sonde._internal.errors import SondeError, whole
from sonde._internal.files import write_atomically
from sonde._internal.lockstep import one_seed
from sonde._internal.precision import double_precision
from sonde.data import SystemSpec, Trajectory
from sonde.data._initial import initial_inputs
from sonde.explorer import Explorer
from sonde.runs._config import RunConfig
from sonde.runs._initial_data import save_initial_data
from sonde.runs._judgement import HeldOut, Judge, Judgement, judged, judgement_path, last_share
from sonde.runs._loaded import Run, load
from sonde.runs._run import build_explorer, checkpoint_of
from sonde.runs._store import RunStore

EXAMPLES, EXAMPLE_STEPS = 3, 5
"""Simulations that are drawn, and how much longer than a judged one they are at most."""


def fit(
    config: RunConfig,
    folder: str | Path,
    *,
    holdout: float = 0.2,
    steps: int = 20,
    refit: bool = True,
    overwrite: bool = False,
) -> Run:
    """Make a run from measurements alone, without exploration.

    The model is fitted without the last share of the measurements and judged by what it predicts of them; after that it is
    fitted to all of them. The run can be loaded, analysed, evaluated, and continued by exploration.

    Args:
        config: The run; `data` names the measurements, `world` the system: `OwnSystem` for one without a simulator.
        folder: Folder of the run, which is new.
        holdout: Share of the measurements that the model is judged on: the last ones.
        steps: Steps of the simulations that it is judged by.
        refit: Whether the model of the run is fitted to all measurements in the end; otherwise it never sees the held-out ones.
        overwrite: Replace a run that exists.

    Returns:
        The run; `Run.judgement` says how well its model predicts.
    """
    whole("fit", steps=steps)
    if not config.data:
        raise SondeError("fit: there is nothing to fit: name measurements as data, such as RunConfig(data='log.csv', ...)")
    store = RunStore.start(Path(folder), config, overwrite)
    with store.locked():
        _fitted(store, holdout, steps, refit)
    return load(store.folder)


@double_precision
def _fitted(store: RunStore, holdout: float, steps: int, refit: bool) -> None:
    """Fit, judge and write everything."""
    measured = store.load_initial_data()
    assert measured is not None
    first, said = last_share(measured, holdout)
    known, hidden = (_rows(measured, part) for part in (slice(None, first), slice(first, None)))
    spec, explorer = store.config.spec, build_explorer(store.config, measured)
    judge = Judge(_as_given(known, spec), _as_given(hidden, spec), spec.past, steps)
    explorer.start_from(known)
    facts = {
        "states": spec.state_names,
        "fitted": first,
        "held_out": len(measured.states) - first,
        "split": said,
        "final": "all measurements" if refit else "the same measurements, without the held-out ones",
    }
    posteriors = [one_seed(explorer.posterior, index) for index in range(explorer.num_seeds)]
    judgement = judged(judge, posteriors, facts)
    write_atomically(judgement_path(store.folder), judgement.to_json().encode())
    _draw(store, judge, judgement, explorer)
    if refit:
        explorer = build_explorer(store.config, measured)
        explorer.start_from(measured)
    else:
        save_initial_data(store.folder, known, store.config.world.spec)
    store.save_checkpoint(0, checkpoint_of(explorer))


def _rows(measured: Trajectory, rows: slice) -> Trajectory:
    return Trajectory(measured.states[rows], measured.actions[rows], measured.next_states[rows])


def _as_given(measured: Trajectory, spec: SystemSpec) -> HeldOut:
    """Measurements [N, ...] as models are given them: with their past, as far as it is known."""
    found = initial_inputs(measured.checked(1, spec), spec)
    return HeldOut(*(np.asarray(array[0]) for array in (found.states, found.actions, found.next_states)))


def _draw(store: RunStore, judge: Judge, judgement: Judgement, explorer: Explorer) -> None:
    from sonde.runs.figures._fit import draw_fit  # only where a figure is drawn

    longest = EXAMPLE_STEPS * judge.steps[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of simulations that left all numbers
        examples = judge.examples(one_seed(explorer.posterior, 0), EXAMPLES, longest)
        seconds = store.config.world.seconds_per_step or store.config.log.dt
        draw_fit(judgement, examples, store.folder / "figures" / "fit.png", seconds)
