"""Reads the weights of a model from a safetensors file.

The file has eight bytes with the length of the JSON after them, the JSON, and the numbers at the offsets in it.
"""

import json
import mmap
import struct
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]


def read_weights(path: Path) -> dict[str, Matrix]:
    """Returns the read-only tensors of 32-bit floats in a file, by name.

    The file is memory-mapped: its pages are loaded when they are needed, and processes share them.
    """
    with path.open("rb") as file:
        mapped_file = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    (size,) = struct.unpack_from("<Q", mapped_file)
    start = 8 + size
    tensors = json.loads(mapped_file[8:start])
    tensors.pop("__metadata__", None)
    return {
        name: np.frombuffer(mapped_file, np.float32, prod(tensor["shape"]), start + tensor["data_offsets"][0]).reshape(
            tensor["shape"]
        )
        for name, tensor in tensors.items()
        if tensor["dtype"] == "F32"
    }
