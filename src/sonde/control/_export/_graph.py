"""A graph in the format ONNX, written one operation at a time with `onnx.helper`."""

from typing import Any

import numpy as np

from sonde._internal.errors import SondeError

OPSET, IR_VERSION = 17, 8
"""Versions of the operations and of the format: those of 2022, which runtimes on small computers have too."""
FLOAT, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def import_onnx() -> Any:
    """The package onnx."""
    try:
        import onnx
    except ImportError:
        raise SondeError("ONNX needs the package onnx: pip install 'sonde[onnx]'") from None
    return onnx


class Graph:
    """Operations on rows: each value is named, and has a leading axis of rows unless it is a constant."""

    def __init__(self, batch: int | None):
        """Begin with nothing.

        Args:
            batch: Number of rows; None for any number.
        """
        self._onnx = import_onnx()
        self._rows = "batch" if batch is None else batch
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._constants: list[Any] = []
        self._nodes: list[Any] = []

    def input(self, name: str, size: int) -> str:
        """Add an input in double precision.

        Args:
            name: Its name.
            size: Numbers in a row.

        Returns:
            The name.
        """
        self._inputs.append(self._described(name, size))
        return name

    def output(self, name: str, value: str, size: int) -> None:
        """Add an output in double precision.

        Args:
            name: Its name.
            value: What it is.
            size: Numbers in a row.
        """
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._described(name, size))

    def _described(self, name: str, size: int) -> Any:
        return self._onnx.helper.make_tensor_value_info(name, self._onnx.TensorProto.DOUBLE, [self._rows, size])

    def constant(self, value: Any, dtype: Any = DOUBLE) -> str:
        """Add a constant.

        Args:
            value: An array or a number.
            dtype: Its precision.

        Returns:
            Its name.
        """
        name = f"constant{len(self._constants)}"
        array = np.ascontiguousarray(value, dtype) if np.ndim(value) else np.asarray(value, dtype)
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, operation: str, *inputs: str, **attributes: Any) -> str:
        """Add an operation with one output.

        Args:
            operation: Its name in ONNX.
            *inputs: Names of its inputs.
            **attributes: Its attributes.

        Returns:
            The name of the output.
        """
        name = f"{operation.lower()}{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(operation, list(inputs), [name], **attributes))
        return name

    def cast(self, value: str, dtype: np.dtype) -> str:
        """Change the precision of a value.

        Args:
            value: The value.
            dtype: The precision.
        """
        return self.add("Cast", value, to=self._onnx.helper.np_dtype_to_tensor_dtype(dtype))

    def repeated(self, value: str, like: str) -> str:
        """Give a value the shape of another one.

        Args:
            value: The value, whose shape can be broadcast to that shape.
            like: The other one.
        """
        return self.add("Expand", value, self.add("Shape", like))

    def columns(self, value: str, start: int, stop: int) -> str:
        """Take columns of a value.

        Args:
            value: The value.
            start: The first.
            stop: The one after the last.
        """
        bounds = (self.constant([bound], np.int64) for bound in (start, stop, -1))
        return self.add("Slice", value, *bounds)

    def sum(self, value: str) -> str:
        """Add up each row.

        Args:
            value: The value.

        Returns:
            The sums, with an axis of length 1.
        """
        return self.add("ReduceSum", value, self.constant([-1], np.int64), keepdims=1)

    def finish(self, name: str, description: str) -> bytes:
        """Check the graph.

        Args:
            name: Its name.
            description: What its inputs and outputs are.

        Returns:
            Content of a file.
        """
        from sonde import __version__

        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, name, self._inputs, self._outputs, self._constants)
        opset = [helper.make_opsetid("", OPSET)]
        about = {"producer_name": "sonde", "producer_version": __version__, "doc_string": description}
        model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, **about)
        self._onnx.checker.check_model(model, full_check=True)
        return model.SerializeToString()
