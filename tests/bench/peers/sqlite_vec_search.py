"""sqlite-vec with the same vectors: python sqlite_vec_search.py FOLDER ROWS DIMENSIONS QUERIES NEAREST.

It runs in an environment of its own. The folder has `vectors` and `queries`, 32-bit floats one after the other. Of the
documents, which have ten rows each, every tenth is wanted.
"""

import json
import statistics
import sys
import time
from pathlib import Path

import apsw
import sqlite_vec

_ALL = "SELECT rowid FROM rows WHERE embedding MATCH ? AND k = ? ORDER BY distance"
_TENTH = "SELECT rowid FROM rows WHERE embedding MATCH ? AND k = ? AND tenth = 1 ORDER BY distance"


def main(folder: str, rows: str, dimensions: str, queries: str, nearest: str) -> None:
    size, figures = int(dimensions) * 4, {}
    vectors, query_vectors = (memoryview(Path(folder, name).read_bytes()) for name in ("vectors", "queries"))
    connection = apsw.Connection(f"{folder}/peer.db")
    connection.enable_load_extension(True)  # noqa: FBT003 (the library takes it so)
    connection.load_extension(sqlite_vec.loadable_path())
    connection.execute(f"CREATE VIRTUAL TABLE rows USING vec0(embedding float[{dimensions}], tenth integer)")
    with connection:
        for row in range(int(rows)):
            values = (row, bytes(vectors[row * size : (row + 1) * size]), int(row // 10 % 10 == 0))
            connection.execute("INSERT INTO rows (rowid, embedding, tenth) VALUES (?, ?, ?)", values)
    for name, statement in (("all", _ALL), ("tenth", _TENTH)):
        times, cpu_times, answers = [], [], []
        for at in range(int(queries)):
            query = bytes(query_vectors[at * size : (at + 1) * size])
            began, cpu = time.perf_counter(), time.process_time()
            answers.append([row[0] for row in connection.execute(statement, (query, int(nearest)))])
            times.append((time.perf_counter() - began) * 1000)
            cpu_times.append((time.process_time() - cpu) * 1000)
        figures[name] = {"wall": statistics.median(times), "cpu": statistics.median(cpu_times), "answers": answers}
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
