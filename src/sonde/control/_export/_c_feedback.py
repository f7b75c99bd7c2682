"""Linear feedbacks and gain schedules as C99 headers."""

import numpy as np

from sonde.control._export._header import ABOUT, CHECK, Header
from sonde.control._gain_schedule import GainSchedule
from sonde.control._linear_feedback import LinearFeedback

FEEDBACK = """
static inline void sonde_limit(const double *gain, const double *state, const double *action, const double *x, double *u)
{
    int i, j;
    for (j = 0; j < SONDE_ACTION_DIM; j++) {
        double change = 0.0, wanted;
        for (i = 0; i < SONDE_STATE_DIM; i++)
            change += gain[j * SONDE_STATE_DIM + i] * (x[i] - state[i]);
        wanted = action[j] - change;
        u[j] = wanted < -1.0 ? -1.0 : (wanted > 1.0 ? 1.0 : wanted);
    }
}
"""
ACT = """
static inline int sonde_act(const double *x, double *u)
{
    if (!sonde_finite(x, SONDE_STATE_DIM))
        return 1;
    sonde_limit(sonde_gain, sonde_state, sonde_action, x, u);
    return 0;
}
"""
ABOUT_SCHEDULE = """
A gain schedule in C99: include this file, compile with -lm. It needs nothing else, allocates nothing and keeps nothing.

    double x[SONDE_STATE_DIM], u[SONDE_ACTION_DIM];
    double values[SONDE_AXES];
    if (sonde_act(x, values, u) == 0) { ... }

sonde_act writes the action for the state x and the scheduling values to u, each entry in [-1, 1], and returns 0. If x or values
are not finite, or values lie outside of a table that refuses this, it returns 1 and leaves u as it was.
"""
SCHEDULED = """
static inline int sonde_act(const double *x, {argument}double *u)
{{
    double gain[SONDE_ACTION_DIM * SONDE_STATE_DIM] = {{0.0}}, state[SONDE_STATE_DIM] = {{0.0}};
    double action[SONDE_ACTION_DIM] = {{0.0}}, share[SONDE_AXES];
    const double *axis = sonde_axis;
    int left[SONDE_AXES], corner, i, k;
{values}    if (!sonde_finite(x, SONDE_STATE_DIM) || !sonde_finite(values, SONDE_AXES))
        return 1;
    for (k = 0; k < SONDE_AXES; k++) {{
        const int last = sonde_points[k] - 1;
        double value = values[k];
        if (value < axis[0] || value > axis[last]) {{
{outside}
        }}
        left[k] = 0;
        while (left[k] + 2 <= last && axis[left[k] + 1] <= value)
            left[k]++;
        share[k] = last == 0 ? 0.0 : (value - axis[left[k]]) / (axis[left[k] + 1] - axis[left[k]]);
        axis += last + 1;
    }}
    for (corner = 0; corner < 1 << SONDE_AXES; corner++) {{
        double weight = 1.0;
        int at = 0;
        for (k = 0; k < SONDE_AXES; k++) {{
            const int right = corner >> k & 1;
            weight *= right ? share[k] : 1.0 - share[k];
            at = at * sonde_points[k] + left[k] + (right && sonde_points[k] > 1);
        }}
        for (i = 0; i < SONDE_ACTION_DIM * SONDE_STATE_DIM; i++)
            gain[i] += weight * sonde_gains[at * SONDE_ACTION_DIM * SONDE_STATE_DIM + i];
        for (i = 0; i < SONDE_STATE_DIM; i++)
            state[i] += weight * sonde_states[at * SONDE_STATE_DIM + i];
        for (i = 0; i < SONDE_ACTION_DIM; i++)
            action[i] += weight * sonde_actions[at * SONDE_ACTION_DIM + i];
    }}
    sonde_limit(gain, state, action, x, u);
    return 0;
}}
"""
HOLD = "            value = value < axis[0] ? axis[0] : axis[last];"
REFUSE = "            return 1;"


def feedback_header(feedback: LinearFeedback, name: str) -> str:
    """Write a linear feedback.

    Args:
        feedback: The controller.
        name: What all names in the header begin with.
    """
    header = Header(name, ABOUT)
    action_dim, state_dim = feedback.gain.shape
    header.define(STATE_DIM=state_dim, ACTION_DIM=action_dim)
    for part in ("gain", "state", "action"):
        header.array(part, getattr(feedback, part))
    header.code(CHECK + FEEDBACK + ACT)
    return header.finish()


def schedule_header(schedule: GainSchedule, name: str) -> str:
    """Write a gain schedule.

    Args:
        schedule: The controller.
        name: What all names in the header begin with.
    """
    header = Header(name, ABOUT if schedule.scheduled else ABOUT_SCHEDULE)
    header.define(STATE_DIM=schedule.states.shape[-1], ACTION_DIM=schedule.actions.shape[-1], AXES=len(schedule.axes))
    header.array("points", [len(axis) for axis in schedule.axes], np.int64)
    header.array("axis", np.concatenate(schedule.axes))
    for part in ("gains", "states", "actions"):
        header.array(part, getattr(schedule, part))
    values = ""
    if schedule.scheduled:
        entries = "".join(f"    values[{k}] = x[{entry}];\n" for k, entry in enumerate(schedule.scheduled))
        values = f"    double values[SONDE_AXES];\n{entries}"
    written = {
        "argument": "" if schedule.scheduled else "const double *values, ",
        "values": values,
        "outside": HOLD if schedule.outside == "hold" else REFUSE,
    }
    header.code(CHECK + FEEDBACK + SCHEDULED.format(**written))
    return header.finish()
