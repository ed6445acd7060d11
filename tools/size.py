"""Measure the source: ``python -m tools.size [DIRECTORY]`` prints files, lines and imports.

Pairs of places that share lines are not counted here.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _span(node: ast.stmt | ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _docstring(node: ast.AST) -> range:
    """Return the lines of the docstring of a module, class or function."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return range(0)
    return _span(node.body[0]) if ast.get_docstring(node) is not None else range(0)


def _imported(tree: ast.AST) -> set[str]:
    """Return the names of modules that a file imports, and of what may be modules."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{each.name}" for each in node.names)
    return names


def _is_export(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and any(
        isinstance(each, ast.Name) and each.id == "__all__" for each in node.targets
    )


def _at(ordered: list[int], part: float) -> int:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def measure(root: Path) -> dict[str, int | str]:
    """Return the figures of a package, whose modules are named from the parent of ``root``."""
    lines = code = imports = docstrings = 0
    functions: list[int] = []
    importers: dict[str, set[str]] = defaultdict(set)
    sizes: dict[str, int] = {}
    for path in sorted(root.rglob("*.py")):
        text = path.read_text()
        tree = ast.parse(text)
        name = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        documented: set[int] = set()
        importing: set[int] = set()
        for node in ast.walk(tree):
            documented.update(_docstring(node))
            if isinstance(node, ast.Import | ast.ImportFrom) or _is_export(node):
                assert isinstance(node, ast.stmt)  # noqa: S101
                importing.update(_span(node))
            if isinstance(node, _FUNCTIONS):
                functions.append(len(_span(node)) - len(_docstring(node)))
        for each in _imported(tree):
            importers[each].add(name)
        written = text.splitlines()
        sizes[name] = len(written)
        lines += len(written)
        imports += len(importing)
        docstrings += len(documented)
        code += sum(
            bool(line.strip()) and not line.lstrip().startswith("#")
            for number, line in enumerate(written, 1)
            if number not in documented and number not in importing
        )
    single = {name: importers[name] for name in sizes if len(importers[name]) == 1}
    neighbours = [
        name for name, (by,) in single.items() if by.rpartition(".")[0] == name.rpartition(".")[0]
    ]
    functions.sort()
    lengths = sorted(sizes.values())
    return {
        "files": len(sizes),
        "lines": lines,
        "code": code,
        "imports and __all__": imports,
        "docstring lines": docstrings,
        "functions p50/p90/p99/max": "/".join(str(_at(functions, p)) for p in (0.5, 0.9, 0.99, 1)),
        "file length p50/p90/max": "/".join(str(_at(lengths, p)) for p in (0.5, 0.9, 1)),
        "files under 60 lines": sum(each < 60 for each in lengths),  # noqa: PLR2004
        "modules imported by one module": len(single),
        "their lines": sum(sizes[name] for name in single),
        "of these imported by a neighbour": len(neighbours),
    }


if __name__ == "__main__":
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "src/millstream")
    for what, figure in measure(directory).items():
        print(f"{what:35} {figure:>12}")
