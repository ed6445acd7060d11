"""Lists the public names of PyFlink, read from its source: ``python -m tests.pyflink.list_names``.

What it is: a script that is run once per release of PyFlink, on its unpacked source distribution.
It writes one file per module to ``tests/pyflink/names``, one name per line, with parameters; what
may be left out is written with its default, or ends in ``=`` where that is no plain value.  What
PyFlink says of the result stands behind an arrow, all of it where a function is overloaded; members
of enumerations have their values.
What it is not: a comparison with ours: ``tests/pyflink/comparison.py``.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = Path(__file__).parent / "names"
PACKAGES: Final = ("common", "datastream", "metrics", "table")
#: Not for programs, though their names do not begin with an underscore.
_INSIDE: Final = {"utils", "tests"}
#: Special methods that a program uses as operators and built-in functions.
_OPERATORS: Final = {
    f"__{name}__"
    for name in (
        *("eq", "ne", "lt", "le", "gt", "ge", "hash", "str", "len", "contains", "call"),
        *("iter", "next", "getitem", "setitem", "enter", "exit"),
    )
}


def module_names(root: Path) -> Iterator[tuple[str, Path]]:
    """The public modules below ``pyflink``, with their files."""
    for package in PACKAGES:
        for path in sorted((root / "pyflink" / package).rglob("*.py")):
            parts = list(path.relative_to(root / "pyflink").with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            if not any(part in _INSIDE or part.startswith("_") for part in parts):
                yield ".".join(parts), path


def names_of(tree: ast.Module) -> list[str]:
    """The lines of a module: its own names and those it passes on, each once, in their order."""
    found: dict[str, list[str]] = {}
    for node in tree.body:
        for line in _of_statement(node, ""):
            name, _, result = line.partition(" -> ")
            found.setdefault(name, []).extend([result] if result else [])
    known = {re.split(r"[( ]", line)[0] for line in found}
    passed_on = [name for name in _listed(tree) if name not in known]
    lines = [
        name + (f" -> {' | '.join(dict.fromkeys(results))}" if results else "")
        for name, results in found.items()
    ]
    return list(dict.fromkeys(lines + sorted(passed_on)))


def _listed(tree: ast.Module) -> Iterator[str]:
    """What stands in ``__all__``, and what a module is given by ``setattr``."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=elements)):
                yield from (str(ast.literal_eval(element)) for element in elements)
            case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value=str(name)), _]):
                yield name
            case _:
                pass


def _of_statement(node: ast.stmt, prefix: str) -> Iterator[str]:
    match node:
        case ast.ClassDef(name=name) if not name.startswith("_"):
            yield prefix + name
            has_values = any(ast.unparse(base).endswith("Enum") for base in node.bases)
            for inner in node.body:
                lines = _of_statement(inner, f"{prefix}{name}.")
                if has_values and isinstance(inner, ast.Assign):
                    lines = (f"{line} = {ast.unparse(inner.value)}" for line in lines)
                yield from lines
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield from _of_function(node, prefix)
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if not name.startswith("_"):
            if not (isinstance(value, ast.Call) and "TypeVar" in ast.unparse(value.func)):
                yield prefix + name
        case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
            yield prefix + name
        case _:
            pass


def _of_function(node: ast.FunctionDef | ast.AsyncFunctionDef, prefix: str) -> Iterator[str]:
    decorators = {ast.unparse(each) for each in node.decorator_list}
    bound = bool(prefix) and "staticmethod" not in decorators
    parameters = list(_parameters(node.args, bound=bound))
    result = "" if node.returns is None else f" -> {_text(node.returns)}"
    if node.name in _OPERATORS or "property" in decorators:
        yield prefix + node.name + ("" if node.name in _OPERATORS else result)
    elif node.name == "__init__":
        # What is left takes nothing, or an object of the JVM: PyFlink's own way to make one.
        if parameters:
            yield f"{prefix}__init__({', '.join(parameters)})"
    elif not node.name.startswith("_"):
        yield f"{prefix}{node.name}({', '.join(parameters)}){result}"


def _text(annotation: ast.expr) -> str:
    """A result as it is written, without quotes."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    return ast.unparse(annotation)


def _parameters(arguments: ast.arguments, *, bound: bool) -> Iterator[str]:
    """Without ``self`` and without wrapped objects of the JVM, which are called ``j_...``."""
    positional = [*arguments.posonlyargs, *arguments.args]
    optional = len(positional) - len(arguments.defaults)
    for index, argument in enumerate(positional):
        if index >= bound and not argument.arg.startswith("j_"):
            yield argument.arg + (
                _default(arguments.defaults[index - optional]) if index >= optional else ""
            )
    if arguments.vararg:
        yield "*" + arguments.vararg.arg
    elif arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield argument.arg + (_default(default) if default else "")
    if arguments.kwarg:
        yield "**" + arguments.kwarg.arg


def _default(node: ast.expr) -> str:
    """``=`` and the value, also of a product of numbers."""
    match node:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            factors = _default(left)[1:], _default(right)[1:]
            return f"={int(factors[0]) * int(factors[1])}" if all(factors) else "="
        case ast.Constant(value=value):
            # Parameters are told apart by a comma and a space.
            return f"={value!r}" if ", " not in repr(value) else "="
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
            return f"=-{value!r}"
        case _:
            return "="


def main(root: Path) -> None:
    """Write the lists anew."""
    NAMES.mkdir(exist_ok=True)
    for old in NAMES.glob("*.txt"):
        old.unlink()
    for module, path in module_names(root):
        lines = names_of(ast.parse(path.read_text(encoding="utf-8")))
        if lines:
            (NAMES / f"{module}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
