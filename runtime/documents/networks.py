"""Finds the networks that recognise text. They are those of PP-OCRv6, in the optional package rapidocr."""

from importlib.util import find_spec
from pathlib import Path

_DETECTOR, _READER = "PP-OCRv6_det_small.onnx", "PP-OCRv6_rec_small.onnx"


def find_networks() -> tuple[Path, Path] | None:
    """Returns the files of the network that finds lines and of the one that reads them; None if they, or what runs
    them, are not installed.
    """
    package = find_spec("rapidocr")
    if package is None or package.origin is None or find_spec("onnxruntime") is None:
        return None
    folder = Path(package.origin).parent / "models"
    files = folder / _DETECTOR, folder / _READER
    return files if all(file.is_file() for file in files) else None
