"""Files of vectors that are deleted while others have them open."""

from pathlib import Path

import numpy as np
import pytest

from baobab.storage.vectors.folders import VectorFolder, delete_folder, list_folders, name_folder
from baobab.storage.vectors.vector_file import Key, VectorFile

ONE, TWO = ("one", 1), ("two", 1)
EAST, NORTH = (np.array(numbers, "<f2").tobytes() for numbers in ([1, 0], [0, 1]))


def find(file: VectorFile, query: bytes, *keys: Key) -> list[Key]:
    return [found.key for found in file.search(query, keys, 5)]


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
