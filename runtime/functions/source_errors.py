"""How a source is refused."""


class BadSource(Exception):
    """A source that cannot become a function. line, column: where in it, counted from 1, if that is known."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column
