"""Packages import only what docs/development/architecture.md allows, and no files in circles."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "millstream"
#: The one circle there may be: streams make streams of other kinds.
FLUENT = "datastream."
#: Subpackages that import each other, and should not.
KNOWN_CIRCLES = (
    {"expressions.casts", "expressions.functions"},
    {"runtime.columnar", "runtime.operators"},
)


class Import(NamedTuple):
    importer: str
    line: int
    imported: str


@cache
def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports() -> list[Import]:
    """All of the package's own, those under TYPE_CHECKING and in functions too."""
    found = []
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            line = getattr(node, "lineno", 0)
            found += [Import(module, line, name) for name in _imported(node)]
    return found


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        names = [
            full if (full := f"{node.module}.{alias.name}") in _full_names() else node.module
            for alias in node.names
        ]
    else:
        return []
    return [name.removeprefix("millstream.") for name in names if name.startswith("millstream.")]


@cache
def _full_names() -> frozenset[str]:
    return frozenset(f"millstream.{module}" for module in modules())


@cache
def ranks() -> dict[str, int]:
    """Room -> how far down it is; rooms in one line of the page are on one floor."""
    page = (ROOT / "docs" / "development" / "architecture.md").read_text()
    block = page.split("## Package layers")[1].split("```text\n")[1].split("```")[0]
    floors = [line.split("  ")[0] for line in block.splitlines()]
    return {room: rank for rank, floor in enumerate(floors) for room in floor.split()}


def test_every_room_is_on_the_page() -> None:
    assert {module.split(".")[0] for module in modules() if module} == set(ranks())


def test_imports_go_downwards() -> None:
    wrong = [
        f"{modules()[each.importer].relative_to(ROOT)}:{each.line} imports millstream."
        f"{each.imported}, which is above it (docs/development/architecture.md lists the layers)"
        for each in imports()
        if each.importer
        and ranks()[each.importer.split(".")[0]] > ranks()[each.imported.split(".")[0]]
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_engine_imports_pyspark() -> None:
    found = {
        module
        for module, path in modules().items()
        if re.search(r"^\s*(from|import) (pyspark|py4j)\b", path.read_text(), re.MULTILINE)
    }
    assert {module for module in found if not module.startswith("engines.spark")} == set()
    assert found  # the search finds what it looks for


def test_no_circles_of_files() -> None:
    below: dict[str, set[str]] = {}
    for each in imports():
        below.setdefault(each.importer, set()).add(each.imported)
    circles = [
        circle for circle in _circles(below) if not all(m.startswith(FLUENT) for m in circle)
    ]
    assert circles == []


def test_no_circles_of_subpackages() -> None:
    below: dict[str, set[str]] = {}
    for each in imports():
        importer, imported = _subpackage(each.importer), _subpackage(each.imported)
        if importer and imported and importer != imported:
            below.setdefault(importer, set()).add(imported)
    circles = [c for c in _circles(below) if not all(m.startswith(FLUENT) for m in c)]
    assert [c for c in circles if not any(known.issuperset(c) for known in KNOWN_CIRCLES)] == []
    assert "connectors.formats" in below["connectors.files"]  # the search finds what it looks for


def _subpackage(module: str) -> str:
    """The subpackage, such as ``sql.parser``, that a module is in; empty if it is in none."""
    name = ".".join(module.split(".")[:2])
    is_package = modules().get(name, ROOT).name == "__init__.py" and "." in name
    return name if is_package else ""


def _circles(below: dict[str, set[str]]) -> list[list[str]]:
    """Sets of modules of which each imports all others, by way of some."""
    reach = {module: _reachable(below, module) for module in below}
    found = {
        tuple(sorted(other for other in reach[module] if module in reach.get(other, ())))
        for module in below
        if module in reach[module]
    }
    return [list(each) for each in sorted(found)]


def _reachable(below: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(below.get(start, ()))
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting.extend(below.get(module, ()))
    return seen
