"""Writes the pages of the reference: one per module that programs import from.

What it is: for every public name of a module one directive of Sphinx's autodoc, which takes the
docstrings.  A name that several modules have (PyFlink's import paths overlap) is described on
one page, its *home*, and listed with a link on the others.

What it is not: a parser of docstrings; autodoc and napoleon do that.

Read next: ``docs/site/conf.py``.
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, TypeGuard

from docs.site.navigation import REFERENCE

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

__all__ = ["exported_names", "find", "public_names", "write"]


@dataclass(frozen=True, eq=False)
class _Name:
    """A name of the programming interface, on its home page."""

    home: str
    name: str
    value: object

    @property
    def full(self) -> str:
        return f"{self.home}.{self.name}"


def write(directory: Path) -> None:
    """Write a page per module, one for the options, and the index of them all."""
    directory.mkdir()
    for modules in REFERENCE.values():
        for module, title in modules.items():
            (directory / f"{module}.rst").write_text(_module_page(import_module(module), title))
    (directory / "options.rst").write_text(_options_page())
    (directory / "index.rst").write_text(_index())


@cache
def public_names() -> dict[str, _Name]:
    """The public names by where they are defined (``module.qualname``).

    A module is home to what it lists, unless one before it is; packages, which list the names of
    their modules again, come last.
    """
    modules = [import_module(name) for names in REFERENCE.values() for name in names]
    names: dict[str, _Name] = {}
    for module in sorted(modules, key=lambda module: hasattr(module, "__path__")):
        exported = exported_names(module)
        aliases = {name for name in exported if _is_alias(module, name)}
        for name in [*(set(exported) - aliases), *aliases]:
            value = getattr(module, name)
            names.setdefault(_origin(module, name), _Name(module.__name__, name, value))
    return names


def exported_names(module: ModuleType) -> list[str]:
    """Return the names in ``__all__``, or those that the module defines or imports ``A as A``."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    nodes = ast.parse(inspect.getsource(module)).body
    imported = [each for node in nodes if isinstance(node, ast.ImportFrom) for each in node.names]
    names = {each.name for each in imported if each.asname == each.name}
    names |= {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    return sorted(name for name in names if not name.startswith("_"))


def _is_alias(module: ModuleType, name: str) -> bool:
    return getattr(getattr(module, name), "__name__", name) != name


@cache
def find(text: str) -> str | None:
    """What a name in a text or an annotation refers to: ``KeyedStream``, ``KeyedStream.window``.

    Returns:
        the full name under which it is described, None if it is not public.
    """
    public = public_names()
    by_name = {entry.name: entry for entry in public.values()}
    if text in public:
        return public[text].full
    owner, _, member = text.rpartition(".")
    entry = public.get(owner) or by_name.get(owner) or (None if owner else by_name.get(member))
    if entry is None or not owner:
        return None if entry is None else entry.full
    return _member(entry, member)


def _member(entry: _Name, member: str) -> str | None:
    """The full name of a member, which may be described with a public base class."""
    if not isinstance(entry.value, type) or member.startswith("_"):
        return None
    for base in entry.value.__mro__:
        entry = public_names().get(f"{base.__module__}.{base.__qualname__}", entry)
        if member in vars(base):
            alias = _nested_alias(base, member)
            return find(alias) if alias else f"{entry.full}.{member}"
    return None


def _nested_alias(owner: type, member: str) -> str | None:
    """Where a class that is an attribute of another one is from, if not from there."""
    value = vars(owner)[member]
    here = f"{owner.__module__}.{owner.__qualname__}.{member}"
    if not isinstance(value, type) or member.startswith("_"):
        return None
    there = f"{value.__module__}.{value.__qualname__}"
    return there if there != here else None


def _origin(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    if isinstance(value, type) or inspect.isfunction(value):
        origin = f"{value.__module__}.{value.__qualname__}"
        if origin.startswith("millstream."):
            return origin
    return f"{module.__name__}.{name}"


def _module_page(module: ModuleType, title: str) -> str:
    exported = exported_names(module)
    entries = [public_names()[_origin(module, name)] for name in exported]
    own = dict.fromkeys(entry for entry in entries if entry.home == module.__name__)
    listed = zip(exported, entries, strict=True)
    blocks = [
        _heading(title, "="),
        f".. py:module:: {module.__name__}",
        f"``from {module.__name__} import ...``",
        _introduction(module),
        _table(
            [(f":py:obj:`{name} <{entry.full}>`", _summary(entry.value)) for name, entry in listed]
        ),
        *(_description(entry) for entry in own),
    ]
    return "\n\n".join(blocks) + "\n"


def _introduction(module: ModuleType) -> str:
    """The module's docstring without what only concerns those who read the code."""
    paragraphs = (inspect.getdoc(module) or "").split("\n\n")
    if module.__name__.startswith(("millstream.datastream", "millstream.common")):
        return paragraphs[0]
    return "\n\n".join(text for text in paragraphs if not text.startswith("Read next:"))


def _description(entry: _Name) -> str:
    options = []
    if _is_own_class(entry.value):
        kind = "exception" if issubclass(entry.value, BaseException) else "class"
        bases = entry.value.__mro__[1:]
        stops = [base.__name__ for base in bases if _is_public(base)]
        options = ["members:", "undoc-members:"]
        options.append(f"inherited-members: {', '.join([*stops, *_FOREIGN])}")
        if any(map(_is_public, entry.value.__bases__)):
            options.append("show-inheritance:")
        aliases = [name for name in vars(entry.value) if _nested_alias(entry.value, name)]
        options += [f"exclude-members: {', '.join(aliases)}"] * bool(aliases)
    else:
        kind = "function" if inspect.isroutine(entry.value) else "data"
    return "\n".join([f".. auto{kind}:: {entry.full}", *(f"   :{option}" for option in options)])


#: Bases whose members are not repeated with every class.
_FOREIGN = ("ABC", "Enum", "Exception", "Generic", "Protocol", "int", "list", "object", "tuple")


def _is_own_class(value: object) -> TypeGuard[type]:
    """Not a name for a type of somebody else."""
    return isinstance(value, type) and value.__module__.startswith("millstream.")


def _is_public(base: type) -> bool:
    return f"{base.__module__}.{base.__qualname__}" in public_names()


def _summary(value: object) -> str:
    if not (_is_own_class(value) or inspect.isroutine(value)):
        return ""
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def _options_page() -> str:
    from millstream.configuration.options import ALL_OPTIONS

    rows = [
        (
            f"``{option.key}``",
            f"``{option.default!s}``" if option.default not in [None, "", {}] else "",
            option.description
            + "".join(f"; or ``{choice}``" for choice in option.choices if choice != option.default)
            + "".join(f"; also ``{alias}``" for alias in option.aliases),
        )
        for key, option in ALL_OPTIONS.items()
        if key == option.key
    ]
    text = (
        "Keys of :py:obj:`Configuration <millstream.common.Configuration>` and of configuration "
        "files. Lengths of time are milliseconds, or text such as ``10 s``."
    )
    return "\n\n".join([_heading("Options", "="), text, _table([("key", "default", ""), *rows])])


def _index() -> str:
    blocks = [_heading("Reference", "="), "Everything that programs and their tests import."]
    for group, modules in REFERENCE.items():
        pages = [f"   {title} <{module}>" for module, title in modules.items()]
        pages += ["   options"] * (group == "Programs")
        blocks += [_heading(group, "-"), "\n".join([".. toctree::", "   :maxdepth: 1", "", *pages])]
    return "\n\n".join(blocks) + "\n"


def _heading(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}"


def _table(rows: list[tuple[str, ...]]) -> str:
    lines = [".. list-table::", "   :widths: auto", ""]
    for row in rows:
        lines += [f"   {'  -' if i else '* -'} {cell}".rstrip() for i, cell in enumerate(row)]
    return "\n".join(lines)
