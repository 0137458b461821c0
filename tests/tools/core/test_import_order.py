"""The modules of the framework can be read from the bottom up: none imports what imports it."""

from graphlib import TopologicalSorter

import grimp

FRAMEWORK = "baobab.tools.core"


def test_no_module_of_the_framework_imports_itself_through_others_not_even_for_its_types() -> None:
    graph = grimp.build_graph("baobab", cache_dir=None)
    modules = {FRAMEWORK, *graph.find_descendants(FRAMEWORK)}
    imports = {module: graph.find_modules_directly_imported_by(module) & modules for module in modules}
    assert len(imports) > 30
    # What the package itself offers is for domains: here it would be a second way to the same names.
    assert {module for module, imports_of_it in imports.items() if FRAMEWORK in imports_of_it} == set()
    # CycleError names the modules of a circle.
    TopologicalSorter(imports).prepare()
