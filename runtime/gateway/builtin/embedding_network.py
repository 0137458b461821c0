"""The forward pass of a small BERT, in numpy.

Texts are not padded to one length: their tokens are the rows of one matrix, and only attention treats the texts one by
one. So nothing is computed in vain, and no text influences another.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np

from baobab.runtime.gateway.builtin.embedding_weights import Matrix

_LAYERS = 6
_HEADS = 12
_WIDTH = 384
_HEAD = _WIDTH // _HEADS
# Elementwise functions take so many rows at a time, so that they stay in the processor's cache.
_ROWS = 64
# Weights are multiplied with at most so many rows (tokens) in blocks of so many columns. One product with all of a
# matrix would first copy it, which costs more than to multiply it with the few tokens of a question.
_FEW_ROWS = 48
_BLOCK = 32


class Network:
    """Turns token ids into one vector for each text: the mean of its tokens' vectors, scaled to length 1.

    Several threads may use it at once. numpy releases the GIL for nearly all of the work.
    """

    def __init__(self, weights: Mapping[str, Matrix]) -> None:
        self._weights = weights
        # (blocks, inputs, columns of a block) each: 42 MB, made when the first short text comes.
        self._blocks: dict[str, Matrix] = {}

    def compute_vectors(self, texts: Sequence[Sequence[int]]) -> Matrix:
        """Returns a matrix (texts, 384) in the order of the texts, each of 1 to 512 token ids.

        Neighbouring texts of equal length go through attention together.
        """
        lengths = [len(text) for text in texts]
        hidden = self._embed_tokens(texts)
        for layer in range(_LAYERS):
            hidden = self._apply_layer(f"encoder.layer.{layer}", hidden, lengths)
        starts = np.cumsum([0, *lengths[:-1]])
        # The sum has the direction of the mean, and its length is normalised.
        sums: Matrix = np.add.reduceat(hidden, starts, axis=0)
        sums /= np.linalg.norm(sums, axis=1, keepdims=True)
        return sums

    def _embed_tokens(self, texts: Sequence[Sequence[int]]) -> Matrix:
        tokens = np.concatenate([np.asarray(text) for text in texts])
        positions = np.concatenate([np.arange(len(text)) for text in texts])
        hidden: Matrix = self._weights["embeddings.word_embeddings.weight"][tokens]
        hidden += self._weights["embeddings.position_embeddings.weight"][positions]
        hidden += self._weights["embeddings.token_type_embeddings.weight"][0]
        return self._normalise_rows("embeddings.LayerNorm", hidden)

    def _apply_layer(self, name: str, hidden: Matrix, lengths: Sequence[int]) -> Matrix:
        attended = self._apply_linear(f"{name}.attention.output.dense", self._apply_attention(name, hidden, lengths))
        attended += hidden
        hidden = self._normalise_rows(f"{name}.attention.output.LayerNorm", attended)
        wide = self._apply_linear(f"{name}.intermediate.dense", hidden)
        for row in range(0, len(wide), _ROWS):
            _apply_gelu(wide[row : row + _ROWS])
        output = self._apply_linear(f"{name}.output.dense", wide)
        output += hidden
        return self._normalise_rows(f"{name}.output.LayerNorm", output)

    def _apply_attention(self, name: str, hidden: Matrix, lengths: Sequence[int]) -> Matrix:
        queries, keys, values = (
            self._apply_linear(f"{name}.attention.self.{part}", hidden) for part in ("query", "key", "value")
        )
        queries *= np.float32(_HEAD**-0.5)
        attended = np.empty_like(hidden)
        for rows, texts, length in _group_lengths(lengths):
            # (texts, heads, length, 32) each
            query, key, value = (
                part[rows].reshape(texts, length, _HEADS, _HEAD).transpose(0, 2, 1, 3)
                for part in (queries, keys, values)
            )
            shares = query @ key.swapaxes(2, 3)
            shares -= shares.max(axis=3, keepdims=True)
            np.exp(shares, out=shares)
            shares /= shares.sum(axis=3, keepdims=True)
            attended[rows] = (shares @ value).transpose(0, 2, 1, 3).reshape(texts * length, _WIDTH)
        return attended

    def _apply_linear(self, name: str, rows: Matrix) -> Matrix:
        result = self._multiply_few(name, rows) if len(rows) <= _FEW_ROWS else rows @ self._weights[f"{name}.weight"].T
        result += self._weights[f"{name}.bias"]
        return result

    def _multiply_few(self, name: str, rows: Matrix) -> Matrix:
        blocks = self._blocks.get(name)
        if blocks is None:
            weight = self._weights[f"{name}.weight"]
            # Two threads may both make it: they make the same.
            blocks = self._blocks[name] = np.ascontiguousarray(
                weight.reshape(-1, _BLOCK, weight.shape[1]).swapaxes(1, 2)
            )
        products: Matrix = rows @ blocks
        return products.swapaxes(0, 1).reshape(len(rows), -1)

    def _normalise_rows(self, name: str, rows: Matrix) -> Matrix:
        """Changes the rows in place to mean 0 and variance 1, then scales and shifts them."""
        rows -= rows.mean(axis=1, keepdims=True)
        variances = np.einsum("ij,ij->i", rows, rows) / np.float32(_WIDTH)
        rows /= np.sqrt(variances + np.float32(1e-12))[:, None]
        rows *= self._weights[f"{name}.weight"]
        rows += self._weights[f"{name}.bias"]
        return rows


def _group_lengths(lengths: Sequence[int]) -> Iterator[tuple[slice, int, int]]:
    """Yields groups of neighbouring texts of equal length: the rows of their tokens, their number and the length."""
    start = 0
    for length, group in groupby(lengths):
        texts = sum(1 for _ in group)
        yield slice(start, start + texts * length), texts, length
        start += texts * length


def _apply_gelu(rows: Matrix) -> None:
    """Applies GELU in place, as max(x, 0) - |x| * erfc(|x| / sqrt 2) / 2, which loses no digits to cancellation.

    numpy has no erfc. This uses formula 7.1.26 of Abramowitz and Stegun, whose error is below 1.5e-7, about that of
    32-bit floats.
    """
    size = np.abs(rows)
    scaled = size * np.float32(0.3275911 / np.sqrt(2))
    scaled += 1
    np.reciprocal(scaled, out=scaled)
    tail = scaled * np.float32(1.061405429 / 2)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail += np.float32(coefficient / 2)
        tail *= scaled
    np.multiply(size, size, out=scaled)
    scaled *= np.float32(-0.5)
    np.exp(scaled, out=scaled)
    tail *= scaled
    tail *= size
    np.maximum(rows, 0, out=rows)
    rows -= tail
