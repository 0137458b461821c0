"""Files of vectors: deleted while others have them open, and with so many that signs choose what is compared."""

from pathlib import Path

import numpy as np
import pytest

from baobab.storage.vectors import vector_file
from baobab.storage.vectors.folders import VectorFolder, delete_folder, list_folders, name_folder
from baobab.storage.vectors.vector_file import Key, VectorFile

ONE, TWO = ("one", 1), ("two", 1)
EAST, NORTH = (np.array(numbers, "<f2").tobytes() for numbers in ([1, 0], [0, 1]))


def find(file: VectorFile, query: bytes, *keys: Key) -> list[Key]:
    return [hit.key for hit in file.search(query, file.select(keys), 5)]


def fill(file: VectorFile, vectors: dict[Key, list[bytes]]) -> None:
    assert file.find_missing(list(vectors)) == list(vectors)
    file.append(vectors)


def test_a_deleted_folder_is_made_anew_by_whoever_had_it_open(tmp_path: Path) -> None:
    folder = name_folder(tmp_path, "app", "collection", 2)
    first, second = VectorFile(folder, 2), VectorFile(folder, 2)
    fill(first, {ONE: [EAST], TWO: [NORTH]})
    assert second.find_missing([ONE, TWO]) == []
    delete_folder(folder)
    fill(second, {TWO: [NORTH], ONE: [EAST]})
    for file in (first, second):
        assert file.find_missing([ONE, TWO]) == []
        assert find(file, NORTH, ONE, TWO) == [TWO, ONE]
        assert find(file, EAST, ONE, TWO) == [ONE, TWO]


def test_nothing_is_written_into_a_folder_that_is_gone(tmp_path: Path) -> None:
    folder = name_folder(tmp_path, "app", "collection", 2)
    file = VectorFile(folder, 2)
    file.find_missing([ONE])
    delete_folder(folder)
    with pytest.raises(FileNotFoundError):
        file.append({ONE: [EAST]})
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_one_collection_is_deleted_and_the_others_stay(tmp_path: Path) -> None:
    one, other = (name_folder(tmp_path, "app", name, 2) for name in ("a-b-c", "d-e-f"))
    for folder in (one, other):
        fill(VectorFile(folder, 2), {ONE: [EAST]})
    assert list_folders(tmp_path) == [VectorFolder("app", "a-b-c", one), VectorFolder("app", "d-e-f", other)]
    delete_folder(one)
    delete_folder(one)
    assert list_folders(tmp_path) == [VectorFolder("app", "d-e-f", other)]


def test_signs_choose_the_same_as_comparing_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Around topics, as vectors of texts are; the last of their 64-bit words is not full.
    random, dimensions, of_each = np.random.default_rng(3), 100, 50
    topics = random.standard_normal((40, dimensions))

    def draw(count: int) -> list[bytes]:
        rows = topics[random.integers(0, len(topics), count)] + random.standard_normal((count, dimensions))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return [row.astype("<f2").tobytes() for row in rows]

    keys = [(f"document-{number}", 1) for number in range(60)]
    file, queries = VectorFile(tmp_path / "vectors", dimensions), draw(20)
    wholes, parts = dict[int, int](), dict[int, int]()

    def check(among: list[Key]) -> None:
        for hit_counts, wanted_keys in ((wholes, among), (parts, among[::2])):
            with monkeypatch.context() as few:
                few.setattr(vector_file, "_MOST_COMPARED", 10**9)
                exact = [file.search(query, file.select(wanted_keys), 10) for query in queries]
            by_signs = [file.search(query, file.select(wanted_keys), 10) for query in queries]
            for one, other in zip(exact, by_signs, strict=True):
                assert len(other) == 10
                assert {each.key for each in other} <= set(wanted_keys)
                scores = {(each.key, each.position): each.score for each in one}
                same = [each for each in other if (each.key, each.position) in scores]
                assert all(abs(each.score - scores[each.key, each.position]) < 1e-5 for each in same)
                hit_counts[len(hit_counts)] = len(same)

    monkeypatch.setattr(vector_file, "_MOST_COMPARED", 0)
    monkeypatch.setattr(vector_file, "_FEWEST_CHOSEN", 400)
    fill(file, {key: draw(of_each) for key in keys[:40]})
    check(keys[:40])
    # What is added later is chosen too, and after the file has been written anew without what is gone.
    assert file.find_missing(keys) == keys[40:]
    file.append({key: draw(of_each) for key in keys[40:]})
    check(keys)
    remaining_keys = keys[:20]
    assert file.find_missing(remaining_keys) == []
    assert len(list((tmp_path / "vectors").glob("1.*"))) == 2
    check(remaining_keys)
    for hit_counts in (wholes, parts):
        assert sum(hit_counts.values()) >= 0.99 * 10 * len(hit_counts)
    assert len(file.search(queries[0], file.select(remaining_keys), 5000)) == len(remaining_keys) * of_each
    assert file.search(queries[0], file.select([("unknown", 1)]), 10) == []
