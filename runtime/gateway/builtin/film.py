"""`baobab/film`: a video model with which every feature works without a provider's key.

Every request gives the same short film, `film.mp4` beside this file, which says what it is.
"""

from functools import cache
from importlib.resources import files

MODEL = "baobab/film"
SECONDS = 5


@cache
def read_film() -> bytes:
    """Returns the film as an MP4 file."""
    return files(__package__).joinpath("film.mp4").read_bytes()
