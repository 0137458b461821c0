"""Chunks, rankings and measures of retrieval."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from baobab.runtime.retrieval.chunks import split_text
from baobab.runtime.retrieval.rankings import choose_diverse, fuse_rankings, measure_ndcg, measure_recall


@dataclass
class Part:
    kind: str
    level: int | None
    page: int | None
    start: int
    end: int


_TEXTS = st.text(st.sampled_from("ab .\n#é語😀"), max_size=800)


@given(_TEXTS, st.integers(100, 300), st.integers(0, 99), st.lists(st.integers(0, 799), max_size=5))
def test_chunks_keep_every_word_and_their_length(text: str, size: int, overlap: int, headings: list[int]) -> None:
    blocks = [Part("heading", 1, None, at, at + 1) for at in sorted(set(headings)) if at < len(text)]
    chunks = split_text(text, blocks, size=size, overlap=overlap)
    covered_places = [False] * len(text)
    for chunk in chunks:
        assert 0 < chunk.end - chunk.start <= size
        assert text[chunk.start : chunk.end].strip() == text[chunk.start : chunk.end]
        covered_places[chunk.start : chunk.end] = [True] * (chunk.end - chunk.start)
    assert all(is_in or character.isspace() for is_in, character in zip(covered_places, text, strict=True))
    assert [chunk.start for chunk in chunks] == sorted({chunk.start for chunk in chunks})


def test_a_chunk_ends_before_a_heading_and_knows_those_above_it() -> None:
    text = "# One\n" + "a " * 60 + "\n## Two\n" + "b " * 60
    two = text.index("## Two")
    blocks = [Part("heading", 1, 1, 0, 5), Part("heading", 2, 2, two, two + 6)]
    first, second = split_text(text, blocks, size=200, overlap=50)
    assert (first.headings, first.page) == (("One",), 1)
    assert (second.start, second.headings, second.page) == (two, ("One", "Two"), 2)


@given(_TEXTS, st.integers(100, 300), st.integers(0, 99), st.lists(st.integers(1, 799), max_size=8))
def test_a_chunk_is_of_one_page(text: str, size: int, overlap: int, breaks: list[int]) -> None:
    starts = [0, *sorted({at for at in breaks if at < len(text)})]
    ends = [*starts[1:], len(text)]
    blocks = [
        Part("paragraph", None, page, start, end) for page, (start, end) in enumerate(zip(starts, ends, strict=True), 1)
    ]
    for chunk in split_text(text, blocks, size=size, overlap=overlap):
        assert chunk.page is not None
        assert starts[chunk.page - 1] <= chunk.start < chunk.end <= ends[chunk.page - 1]


def test_what_two_rankings_agree_on_comes_first() -> None:
    assert next(iter(fuse_rankings([{"a": 1, "b": 1, "c": 1}, {"d": 1, "b": 1}]))) == "b"
    assert list(fuse_rankings([{"a": 1, "b": 1}])) == ["a", "b"]
    assert list(fuse_rankings([{"a": 1, "b": 1}, {"b": 0, "a": 0}])) == ["a", "b"]


def test_the_second_choice_differs_from_the_first() -> None:
    relevance = {"a": 1.0, "b": 0.99, "c": 0.5}
    similarity = {one: {other: 1.0 if {one, other} <= {"a", "b"} else 0.0 for other in "abc"} for one in "abc"}
    assert choose_diverse(relevance, similarity, 2, 0.5) == ["a", "c"]
    assert choose_diverse(relevance, similarity, 2, 0.0) == ["a", "b"]


def test_measures_are_those_of_the_textbook() -> None:
    assert measure_recall(["a", "x"], {"a", "b"}) == 0.5
    assert measure_ndcg(["a", "b"], {"a", "b"}, 10) == 1.0
    assert round(measure_ndcg(["x", "a"], {"a"}, 10), 4) == 0.6309
