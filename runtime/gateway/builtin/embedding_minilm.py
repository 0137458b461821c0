"""The sentence model all-MiniLM-L6-v2 (Apache-2.0), with its published weights and tokenizer."""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from baobab.runtime.gateway.builtin.embedding_network import Network
from baobab.runtime.gateway.builtin.embedding_weights import read_weights
from baobab.runtime.gateway.builtin.embeddings import MINILM

# Vectors are stored for years and compared with later ones, so the id stands for exactly these files.
_DIGESTS = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
# 32 characters for each token that is read: enough for any text, and a limit to the cost of a long one.
_CHARACTERS = 8192
# So many texts are tokenised at a time.
_TEXTS = 32


class MiniLm:
    """Turns English sentences and short paragraphs into vectors. Tokens are pieces of words, and one for each end.

    It takes about 5 ms for a question of ten words, and 60 ms for the longest text, on one processor, without
    holding the GIL.
    """

    id = MINILM
    dimensions = 384
    max_tokens = 256

    def __init__(self, folder: Path) -> None:
        """folder: holds `model.safetensors` and `tokenizer.json`. Raises ValueError when they are not the published
        ones, and OSError when they cannot be read.
        """
        for name, digest in _DIGESTS.items():
            with (folder / name).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    raise ValueError(f"{folder / name} is not the file that all-MiniLM-L6-v2 was published with.")
        self._network = Network(read_weights(folder / "model.safetensors"))
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        # The file truncates and pads to 128 tokens; the model's own limit is `max_tokens`.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def embed(self, texts: Sequence[str]) -> list["array[float]"]:
        return self.embed_counted(texts)[0]

    def embed_counted(self, texts: Sequence[str]) -> tuple[list["array[float]"], int]:
        vectors: list[array[float]] = []
        count = 0
        for tokens in self._tokenise(texts):
            vectors.append(array("f", self._network.compute_vector(self._truncate_tokens(tokens)).tobytes()))
            count += len(tokens)
        return vectors, count

    def count(self, text: str) -> int:
        return len(next(self._tokenise([text])))

    def _tokenise(self, texts: Sequence[str]) -> Iterator[list[int]]:
        for start in range(0, len(texts), _TEXTS):
            # `encode` would take one text at a time and hold the GIL.
            batch = [text[:_CHARACTERS] for text in texts[start : start + _TEXTS]]
            for encoding in self._tokenizer.encode_batch_fast(batch):
                yield encoding.ids

    def _truncate_tokens(self, tokens: list[int]) -> list[int]:
        """Cuts a text to `max_tokens` and keeps the last token, which marks its end."""
        return tokens if len(tokens) <= self.max_tokens else [*tokens[: self.max_tokens - 1], tokens[-1]]
