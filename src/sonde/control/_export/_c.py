"""Controllers as C99 headers without any dependency."""

import textwrap

from sonde._internal.errors import SondeError
from sonde.control._export._c_feedback import feedback_header, schedule_header
from sonde.control._export._c_model import model_header
from sonde.control._export._header import ABOUT, CHECK, NETWORK, Header, calls_of_layers, result_of_layers
from sonde.control._gain_schedule import GainSchedule
from sonde.control._linear_feedback import LinearFeedback
from sonde.control.deploy import DeployedPolicy
from sonde.models import Posterior

ABOUT_MEMORY = """
A controller in C99: include this file, compile with -lm. It needs nothing else and allocates nothing.

    sonde_memory memory;
    double x[SONDE_STATE_DIM], u[SONDE_ACTION_DIM];
    sonde_reset(&memory);
    if (sonde_act(&memory, x, u) == 0) { ... }

sonde_act writes the action for the state x to u, each entry in [-1, 1], and returns 0; call it once per step, because the past
belongs to the state. sonde_reset forgets the past: call it where an episode begins. If x is not finite, sonde_act returns 1 and
leaves u and the memory as they were.
"""
MEMORY = """
typedef struct {
    double past[SONDE_PAST_DIM];
    double x[SONDE_STATE_DIM];
    double u[SONDE_ACTION_DIM];
    int began;
} sonde_memory;

static inline void sonde_reset(sonde_memory *memory)
{
    int i;
    for (i = 0; i < SONDE_PAST_DIM; i++)
        memory->past[i] = 0.0;
    for (i = 0; i < SONDE_STATE_DIM; i++)
        memory->x[i] = 0.0;
    for (i = 0; i < SONDE_ACTION_DIM; i++)
        memory->u[i] = 0.0;
    memory->began = 0;
}

/* The past, newest first: changes of the state, then actions. */
static inline void sonde_recall(const sonde_memory *memory, const double *x, double *past)
{
    const int at = SONDE_CHANGES * SONDE_STATE_DIM;
    int i;
    for (i = 0; i < SONDE_PAST_DIM; i++) {
        if (!memory->began)
            past[i] = 0.0;
        else if (i < at)
            past[i] = i < SONDE_STATE_DIM ? x[i] - memory->x[i] : memory->past[i - SONDE_STATE_DIM];
        else
            past[i] = i < at + SONDE_ACTION_DIM ? memory->u[i - at] : memory->past[i - SONDE_ACTION_DIM];
    }
}

static inline void sonde_remember(sonde_memory *memory, const double *past, const double *x, const double *u)
{
    int i;
    for (i = 0; i < SONDE_PAST_DIM; i++)
        memory->past[i] = past[i];
    for (i = 0; i < SONDE_STATE_DIM; i++)
        memory->x[i] = x[i];
    for (i = 0; i < SONDE_ACTION_DIM; i++)
        memory->u[i] = u[i];
    memory->began = 1;
}
"""


def to_c(what: DeployedPolicy | LinearFeedback | GainSchedule | Posterior, name: str) -> str:
    """Write a controller or a learned model as one C99 header, which needs only <math.h> and allocates nothing.

    The arithmetic is that of Python: normalisation, linear feedback and Gaussian processes in double precision, networks in
    single precision. A comment at the top of the header says how to use it.

    Args:
        what: A controller that `load_policy` returns, or the posterior of one seed.
        name: What all names in the header begin with.

    Returns:
        Content of the header.
    """
    if isinstance(what, LinearFeedback):
        return feedback_header(what, name)
    if isinstance(what, GainSchedule):
        return schedule_header(what, name)
    if isinstance(what, DeployedPolicy):
        return _policy(what, name)
    if isinstance(what, Posterior):
        return model_header(what, name)
    raise SondeError(f"c: expected what load_policy returns, or the posterior of one seed, got {type(what).__name__}")


def _policy(policy: DeployedPolicy, name: str) -> str:
    past, dx, du = policy.past, policy.state_dim, policy.action_dim
    header = Header(name, ABOUT_MEMORY if past else ABOUT)
    header.define(STATE_DIM=dx, ACTION_DIM=du)
    if past:
        header.define(PAST_DIM=past.size(dx, du), CHANGES=past.changes)
    *hidden, (weight, bias) = policy.layers
    layers = [*hidden, (weight[:, :du], bias[:du])]  # of the last layer, only the mean of the action is needed
    sizes = [len(policy.shift), *(len(bias) for _, bias in layers)]
    header.array("shift", policy.shift)
    header.array("scale", policy.scale)
    header.layers(layers)
    header.code(CHECK + NETWORK + (MEMORY if past else ""))
    header.code(_act(sizes, bool(past)))
    return header.finish()


def _act(sizes: list[int], past: bool) -> str:
    """The function that acts."""
    arguments = "sonde_memory *memory, const double *x" if past else "const double *x"
    buffer = "    double past[SONDE_PAST_DIM];\n" if past else ""
    recall = "    sonde_recall(memory, x, past);\n" if past else ""
    entry = "i < SONDE_STATE_DIM ? x[i] : past[i - SONDE_STATE_DIM]" if past else "x[i]"
    remember = "    sonde_remember(memory, past, x, u);\n" if past else ""
    return f"""
static inline int sonde_act({arguments}, double *u)
{{
    float one[{max(sizes)}], two[{max(sizes)}];
{buffer}    int i;
    if (!sonde_finite(x, SONDE_STATE_DIM))
        return 1;
{recall}    for (i = 0; i < {sizes[0]}; i++)
        one[i] = (float)((({entry}) - sonde_shift[i]) / sonde_scale[i]);
{textwrap.indent(calls_of_layers(sizes), "    ")}
    for (i = 0; i < SONDE_ACTION_DIM; i++)
        u[i] = (double)tanhf({result_of_layers(sizes)}[i]);
{remember}    return 0;
}}
"""
