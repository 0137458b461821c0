"""The modules of the framework can be read from the bottom up: none imports what imports it."""

from graphlib import TopologicalSorter

import grimp

FRAMEWORK = "baobab.tools.core"


def test_no_module_of_the_framework_imports_itself_through_others_not_even_for_its_types() -> None:
    graph = grimp.build_graph("baobab", cache_dir=None)
    modules = {FRAMEWORK, *graph.find_descendants(FRAMEWORK)}
    imports = {module: graph.find_modules_directly_imported_by(module) & modules for module in modules}
    assert len(imports) > 30
    # CycleError names the modules of a circle.
    TopologicalSorter(imports).prepare()
