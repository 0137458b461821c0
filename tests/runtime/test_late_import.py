"""Libraries that are imported late: a failed import is tried again, as if it had never begun."""

import gc
import importlib
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from baobab.runtime.late_import import LateImport

_PACKAGE = {
    "__init__.py": "from late_library.child import Child\nimport late_library.other\n",
    "child.py": "class Child: pass\n",
    "other.py": """
        from pathlib import Path
        if not Path(__file__).with_name("loads").exists():
            raise ImportError("half")
    """,
}


def write_library(folder: Path) -> Path:
    library = folder / "late_library"
    library.mkdir()
    for name, text in _PACKAGE.items():
        (library / name).write_text(textwrap.dedent(text))
    return library


async def test_an_import_that_failed_half_way_is_done_anew_by_the_next_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = write_library(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    late: LateImport[ModuleType] = LateImport(
        lambda: importlib.import_module("late_library"), packages=("late_library",)
    )
    with pytest.raises(ImportError, match="half"):
        await late.get()
    with pytest.raises(ImportError, match="half"):
        await late.get()
    (library / "loads").touch()
    module = await late.get()
    assert module.child.Child is module.Child
    assert await late.get() is module


async def test_after_a_failed_import_garbage_is_collected_as_before() -> None:
    def load() -> None:
        raise ImportError

    with pytest.raises(ImportError):
        await LateImport(load).get()
    assert gc.isenabled()


async def test_what_imports_nothing_exempts_nothing_from_collections() -> None:
    before = gc.get_freeze_count()
    assert await LateImport(lambda: 1).get() == 1
    assert gc.get_freeze_count() == before
