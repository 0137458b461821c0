"""The exception that refuses a document."""


class Refused(Exception):
    """The document cannot be read. `sentence` tells the person who sent it what is wrong and what to do."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
