"""Writes models in the ONNX format, which onnxruntime runs: protocol buffers, of which a few fields suffice.

graph = Graph()
products = graph.add("MatMul", "rows", graph.add_weight(weights))
model = graph.serialise("rows", (1, "tokens", 384), products, (1, "tokens", 384))
"""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's own operators."""

_IR_VERSION, _OPERATORS, _MICROSOFT_OPERATORS = 9, 18, 1
_FLOAT = 1
_ELEMENTS = {np.dtype(np.float32): _FLOAT, np.dtype(np.int8): 3, np.dtype(np.int64): 7}

Shape = Sequence[int | str]
"""An axis whose length is known only when the model runs has a name."""


class Graph:
    """The operators of a model, in the order in which they run."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._weights: list[bytes] = []
        self._names = 0

    def add_weight(self, numbers: NDArray[Any]) -> str:
        """Adds numbers that are part of the model: 32-bit floats, or integers of 8 or 64 bits. Returns their name."""
        name = self._make_name()
        fields = [_encode(1, length) for length in numbers.shape]
        fields += [_encode(2, _ELEMENTS[numbers.dtype]), _encode(8, name), _encode(9, numbers.tobytes())]
        self._weights.append(b"".join(fields))
        return name

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: float) -> str:
        """Adds an operator with one output, and returns its name. An input that is left out is an empty text."""
        (output,) = self.split(operator, *inputs, domain=domain, outputs=1, **attributes)
        return output

    def split(
        self, operator: str, *inputs: str, outputs: int, domain: str = "", **attributes: float
    ) -> tuple[str, ...]:
        """Adds an operator with several outputs, and returns their names."""
        names = tuple(self._make_name() for _ in range(outputs))
        fields = [_encode(1, name) for name in inputs] + [_encode(2, name) for name in names]
        fields += [_encode(4, operator), _encode(7, domain)]
        fields += [_encode(5, _encode_attribute(name, value)) for name, value in attributes.items()]
        self._nodes.append(b"".join(fields))
        return names

    def serialise(self, input_name: str, input_shape: Shape, output_name: str, output_shape: Shape) -> bytes:
        """Returns the model, which turns one input into one output, both of 32-bit floats."""
        fields = [_encode(1, node) for node in self._nodes] + [_encode(2, "graph")]
        fields += [_encode(5, weight) for weight in self._weights]
        fields += [
            _encode(11, _encode_value(input_name, input_shape)),
            _encode(12, _encode_value(output_name, output_shape)),
        ]
        versions = [("", _OPERATORS), (MICROSOFT, _MICROSOFT_OPERATORS)]
        sets = [_encode(8, _encode(1, domain) + _encode(2, version)) for domain, version in versions]
        return b"".join([_encode(1, _IR_VERSION), *sets, _encode(7, b"".join(fields))])

    def _make_name(self) -> str:
        self._names += 1
        return f"value {self._names}"


def _encode_attribute(name: str, value: float) -> bytes:
    field, kind = (3, 2) if isinstance(value, int) else (2, _FLOAT)
    return _encode(1, name) + _encode(field, value) + _encode(20, kind)


def _encode_value(name: str, shape: Shape) -> bytes:
    axes = b"".join(_encode(1, _encode(1 if isinstance(axis, int) else 2, axis)) for axis in shape)
    tensor = _encode(1, _FLOAT) + _encode(2, axes)
    return _encode(1, name) + _encode(2, _encode(1, tensor))


def _encode(field: int, value: float | str | bytes) -> bytes:
    """Returns a field of a protocol buffer: an integer, a 32-bit float, or bytes with their length before them."""
    if isinstance(value, float):
        return _encode_integer(field << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return _encode_integer(field << 3) + _encode_integer(value & (1 << 64) - 1)
    content = value.encode() if isinstance(value, str) else value
    return _encode_integer(field << 3 | 2) + _encode_integer(len(content)) + content


def _encode_integer(value: int) -> bytes:
    encoded_bytes = bytearray()
    while value > 0x7F:
        encoded_bytes.append(value & 0x7F | 0x80)
        value >>= 7
    encoded_bytes.append(value)
    return bytes(encoded_bytes)
