"""A C99 header: constants, arrays and functions whose names begin alike."""

import itertools
import re
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from sonde._internal.errors import SondeError

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
ABOUT = """
A controller in C99: include this file, compile with -lm. It needs nothing else, allocates nothing and keeps nothing.

    double x[SONDE_STATE_DIM], u[SONDE_ACTION_DIM];
    if (sonde_act(x, u) == 0) { ... }

sonde_act writes the action for the state x to u, each entry in [-1, 1], and returns 0. If x is not finite it returns 1
and leaves u as it was.
"""
CHECK = """
static inline int sonde_finite(const double *values, int count)
{
    int i;
    for (i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return 0;
    return 1;
}
"""
NETWORK = """
static inline void sonde_layer(const float *weight, const float *bias, int inputs, int outputs, const float *from, float *to)
{
    int i, j;
    for (j = 0; j < outputs; j++) {
        float total = 0.0f;
        for (i = 0; i < inputs; i++)
            total += from[i] * weight[j * inputs + i];
        to[j] = total + bias[j];
    }
}

static inline void sonde_swish(float *h, int count)
{
    int i;
    for (i = 0; i < count; i++)
        h[i] = h[i] / (1.0f + expf(-h[i]));
}
"""
"""Fully connected layers; weights are [out][in]."""


class Header:
    """Text of a header, written one part at a time with the prefixes `sonde_` and `SONDE_`."""

    def __init__(self, name: str, about: str):
        """Begin a header.

        Args:
            name: What all its names begin with.
            about: What it is and how it is used, with the prefixes of the other parts.
        """
        if not NAME.fullmatch(name):
            raise SondeError(f"c: the name must be letters, digits and _, and begin with a letter, got {name!r}")
        from sonde import __version__

        self._name = name
        lines = textwrap.dedent(about).strip().splitlines()
        comment = "".join(f" * {line}".rstrip() + "\n" for line in [*lines, "", f"Written by Sonde {__version__}."])
        self._parts = [f"/*\n{comment} */\n#ifndef SONDE_H\n#define SONDE_H\n\n#include <math.h>\n\n"]

    def define(self, **numbers: int) -> None:
        """Add macros.

        Args:
            **numbers: Their values.
        """
        self._parts += [f"#define SONDE_{name} {value}\n" for name, value in numbers.items()]

    def array(self, name: str, values: Any, dtype: Any = np.float64) -> None:
        """Add an array, which is flattened.

        Args:
            name: Its name.
            values: Its numbers.
            dtype: Their precision, or int.
        """
        flat = np.asarray(values).astype(dtype).ravel()
        kind, suffix = {"f": ("float", "f"), "d": ("double", ""), "l": ("int", "")}[flat.dtype.char]
        numbers = textwrap.fill(", ".join(f"{number!s}{suffix}" for number in flat), 120, break_on_hyphens=False)
        body = textwrap.indent(numbers, "    ")
        self._parts.append(f"\nstatic const {kind} sonde_{name}[{flat.size}] = {{\n{body}\n}};\n")

    def layers(self, layers: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """Add the arrays of a network.

        Args:
            layers: Weight [..., in, out] and bias [..., out] of each layer.
        """
        for number, (weight, bias) in enumerate(layers):
            self.array(f"weight{number}", np.swapaxes(np.asarray(weight), -1, -2), np.float32)
            self.array(f"bias{number}", bias, np.float32)

    def code(self, text: str) -> None:
        """Add code.

        Args:
            text: The code.
        """
        self._parts.append(text)

    def finish(self) -> str:
        """The header."""
        text = "".join([*self._parts, "\n#endif\n"])
        return text.replace("SONDE_", f"{self._name.upper()}_").replace("sonde_", f"{self._name}_")


def calls_of_layers(sizes: Sequence[int], offset: str = "") -> str:
    """Statements that evaluate a network from the buffer `one`, with `two` beside it.

    Args:
        sizes: Number of inputs, of units in each hidden layer, and of outputs.
        offset: Number of the member, where the arrays hold those of several.

    Returns:
        The statements; the outputs are in `one` after an even number of layers, and else in `two`.
    """
    lines, buffers = [], ("one", "two")
    for number, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        here, there = buffers[number % 2], buffers[(number + 1) % 2]
        weight, bias = f"sonde_weight{number}", f"sonde_bias{number}"
        if offset:
            weight, bias = f"{weight} + {offset} * {inputs * outputs}", f"{bias} + {offset} * {outputs}"
        lines.append(f"sonde_layer({weight}, {bias}, {inputs}, {outputs}, {here}, {there});")
        if number + 2 < len(sizes):
            lines.append(f"sonde_swish({there}, {outputs});")
    return "\n".join(lines)


def result_of_layers(sizes: Sequence[int]) -> str:
    """The buffer that `calls_of_layers` leaves the outputs in.

    Args:
        sizes: As there.
    """
    return ("one", "two")[(len(sizes) - 1) % 2]
