"""How a document is refused."""


class Refused(Exception):
    """`sentence` tells the person who sent the file what is wrong with it, and what to do."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
