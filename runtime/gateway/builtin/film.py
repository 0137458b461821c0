"""`baobab/film`: a video model that makes every feature run without a provider's key.

Every request has the same short film, `film.mp4` beside this file, which says what it is. It was recorded once.
"""

from functools import cache
from importlib.resources import files

MODEL = "baobab/film"
SECONDS = 5


@cache
def read_film() -> bytes:
    """The film as an MP4 file."""
    return files(__package__).joinpath("film.mp4").read_bytes()
