"""``python -m tests.pyflink.comparison`` writes ``docs/reference/pyflink.md``.

What it is: reads ``names/`` (PyFlink's, one file per module, made by ``list_names.py``), looks each
name up in the module of ours with the same path, and reads ``missing/``, the reasons for what is
not found.  ``compare`` says what contradicts what; ``page`` makes the page of both.

A line of ``missing/MODULE.txt`` is ``Name: reason``, ``Class.member: reason`` or ``*: reason`` for
the whole module; the reason begins with one of ``KINDS``.  ``otherwise: `` is checked: the name is
here, and the calls that PyFlink's signature allows are bound to ours.
Where a class or a module is missing as a whole, its line is enough for its members.
What it is not: a test of what the names do.
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import importlib
import inspect
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reference" / "pyflink.md"
VERSION: Final = "2.3.0"
#: Kind of a reason -> what its column and its part of the page are called.
KINDS: Final = {
    "not yet: ": ("not yet", "Not yet"),
    "replaced: ": ("replaced", "Replaced"),
    "internal: ": ("internal", "Internal"),
    "artifact: ": ("artifacts", "Artifacts of the JVM"),
    "otherwise: ": ("otherwise", "Otherwise"),
}
_NO_MODULE: Final = "there is no such module"
_NOT_THERE: Final = "it is not there"
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NOTHING: Final = object()
#: Any, and variables of types.
_SAYS_NOTHING: Final = re.compile("Any|[A-Z]{1,3}[0-9]?")
_BUILT_IN: Final = {"List": "list", "Dict": "dict", "Tuple": "tuple", "Set": "set", "Type": "type"}


@dataclass(frozen=True)
class Name:
    """A public name of PyFlink."""

    module: str
    #: ``Class.method``.
    path: str
    #: As ``list_names.py`` writes them; None for what is not called.
    parameters: tuple[str, ...] | None
    #: What it returns, as PyFlink writes it; empty if it does not say.
    result: str = ""
    #: Of a member of an enumeration, as Python.
    value: str = ""

    def __str__(self) -> str:
        """As it stands in the list, behind its module."""
        called = "" if self.parameters is None else f"({', '.join(self.parameters)})"
        return f"{self.module}: {self.path}{called}"


@cache
def names() -> list[Name]:
    """All of PyFlink's."""
    found = []
    for file in sorted((HERE / "names").glob("*.txt")):
        for line in file.read_text().splitlines():
            text, _, result = line.partition(" -> ")
            if re.match(r"[\w.]+ = ", text):
                path, _, value = text.partition(" = ")
                found.append(Name(file.stem, path, None, "", value))
                continue
            path, called, parameters = text.removesuffix(")").partition("(")
            listed = tuple(parameters.split(", ")) if parameters else ()
            found.append(Name(file.stem, path, listed if called else None, result))
    return found


@cache
def reasons() -> dict[tuple[str, str], str]:
    """Module and name -> reason."""
    found = {}
    for file in sorted((HERE / "missing").glob("*.txt")):
        for line in file.read_text().splitlines():
            path, _, reason = line.partition(": ")
            assert (file.stem, path) not in found, f"{file.name} explains {path} twice"
            found[file.stem, path] = reason
    return found


def reason_of(name: Name) -> tuple[str, str] | None:
    """The key of the line that explains it: its own, or that of its missing class or module."""
    if difference(name) == _NO_MODULE:
        paths = ["*"]
    else:
        parts = name.path.split(".")
        paths = [name.path]
        for length in range(1, len(parts)):
            holder = Name(name.module, ".".join(parts[:length]), None)
            if difference(holder) == _NOT_THERE:
                paths.append(holder.path)
    return next((key for path in paths if (key := (name.module, path)) in reasons()), None)


@cache
def difference(name: Name) -> str | None:
    """What is wrong with our name; None if it is as PyFlink's."""
    try:
        found: object = importlib.import_module(f"millstream.{name.module}")
    except ModuleNotFoundError:
        return _NO_MODULE
    owner = None
    for part in name.path.split("."):
        owner, found = found, _member(found, part)
    special = name.path.rpartition(".")[2]
    if special == "__ne__":
        # Python's own is the opposite of what the class says of equality.
        special, found = "__eq__", _member(owner, "__eq__")
    inherited = special.startswith("__") and found is getattr(object, special, None)
    if found is _NOTHING or inherited:
        return _NOT_THERE
    wrong = None
    if name.parameters is not None:
        bound = isinstance(owner, type) and not isinstance(found, type)
        wrong = _other_parameters(name.parameters, found, bound=bound)
    if name.value:
        wrong = _other_value(name.value, found)
    return wrong or (_other_result(name, found, owner) if name.result else None)


def _other_value(theirs: str, found: object) -> str | None:
    value = getattr(found, "value", found)
    try:
        same = ast.literal_eval(theirs) == value
    except ValueError:  # made by a call
        return None
    return None if same else f"its value is {value!r}"


def _other_result(name: Name, found: object, owner: object) -> str | None:
    """Ours may be narrower: of several of theirs some, or a subclass."""
    function: object = found.fget if isinstance(found, property) else found
    function = inspect.unwrap(getattr(function, "__func__", function))  # type: ignore[arg-type]
    if not callable(function):  # an attribute
        return None
    said = getattr(function, "__annotations__", {}).get("return", _NOTHING)
    if isinstance(function, type):
        said = function
    if not isinstance(said, str):
        said = "None" if said is None else getattr(said, "__name__", "nothing")
    places = [vars(inspect.getmodule(function)), *_places(name, owner)]
    theirs = [(_known(each, places[1:]), each) for each in _outer(name.result)]
    for each in _outer(said):
        ours = _known(each.replace("Self", getattr(owner, "__name__", "Self")), places)
        fits = each in {"Any", "NoReturn"} or any(
            other == each.lstrip("_")
            or _SAYS_NOTHING.fullmatch(other)
            or (isinstance(ours, type) and isinstance(kind, type) and issubclass(ours, kind))
            for kind, other in theirs
        )
        if not fits:
            return f"it returns {said}"
    return None


def _outer(text: str) -> list[str]:
    """The types of a union, without their parameters."""
    return _types_in(ast.parse(text, mode="eval").body)


def _types_in(node: ast.expr) -> list[str]:
    match node:
        case ast.Constant(value=str(text)):
            found = _outer(text)
        case ast.BinOp(left=left, right=right):
            found = _types_in(left) + _types_in(right)
        case ast.Subscript(value=ast.Name(id="Optional" | "Union" as form), slice=inner):
            several = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            found = [name for each in several for name in _types_in(each)]
            found += ["None"] if form == "Optional" else []
        case ast.Subscript(value=value):
            found = _types_in(value)
        case ast.Attribute(attr=name):
            found = [name]
        case _:
            text = ast.unparse(node)
            found = [_BUILT_IN.get(text, text)]
    return found


def _places(name: Name, owner: object) -> Iterator[Mapping[str, object]]:
    """Where a name in an annotation may come from."""
    module: object = importlib.import_module(f"millstream.{name.module}")
    for part in name.path.split(".")[:-1]:
        module = _member(module, part)
        yield vars(module)
    for path in (f"millstream.{name.module}", "millstream.common", "millstream.datastream"):
        yield vars(importlib.import_module(path))
    yield from (vars(builtins), vars(collections.abc))


def _known(name: str, places: list[Mapping[str, object]]) -> object:
    return next((place[name] for place in places if name in place), None)


def _member(owner: object, name: str) -> object:
    """As it stands in the class; a module may give names when it is asked for them."""
    if not isinstance(owner, ModuleType):
        return inspect.getattr_static(owner, name, _NOTHING)
    try:
        return getattr(owner, name)
    except (AttributeError, ImportError):
        return _NOTHING


def _other_parameters(theirs: tuple[str, ...], found: object, *, bound: bool) -> str | None:
    if isinstance(found, staticmethod | classmethod):
        bound = isinstance(found, classmethod)
        found = found.__func__
    if not callable(found):
        return "it cannot be called"
    ours = list(inspect.signature(found).parameters.values())[bound:]
    return None if _fits(theirs, ours) else f"its parameters are ({', '.join(map(_shown, ours))})"


@cache
def refused_call(name: Name) -> str | None:
    """Return which call that PyFlink takes is not taken; None if all are.

    The calls are bound to our signature: only what must be given, all by position, all by name.
    """
    found = difference(name)
    if found in {_NO_MODULE, _NOT_THERE}:
        return found
    if name.parameters is None:
        return None
    owner: object = None
    member: object = importlib.import_module(f"millstream.{name.module}")
    for part in name.path.split("."):
        owner, member = member, _member(member, part)
    bound = isinstance(owner, type) and not isinstance(member, staticmethod | type)
    function = getattr(member, "__func__", member)
    assert callable(function)
    signature = inspect.signature(function)
    plain = [each for each in name.parameters if not each.startswith("*")]
    names_of = [each.partition("=")[0] for each in plain]
    required = [each for each in plain if "=" not in each]
    before = next((i for i, t in enumerate(name.parameters) if t.startswith("*")), len(plain))
    first = (None,) * bound
    for arguments, keywords in (
        ((), dict.fromkeys(required)),
        ((None,) * before, dict.fromkeys(names_of[before:])),
        ((), dict.fromkeys(names_of)),
    ):
        try:
            signature.bind(*first, *arguments, **keywords)
        except TypeError as error:
            return f"a call is refused: {error}"
    return None


def _fits(theirs: tuple[str, ...], ours: list[inspect.Parameter]) -> bool:
    """Whether each call that PyFlink takes is taken by ours; ours may take more."""
    positional = [each for each in ours if each.kind in _POSITIONAL]
    kinds = {each.kind for each in ours}
    named = {each.name: each for each in ours}
    wanted = [each.partition("=") for each in theirs if not each.startswith("*")]
    before_star = theirs[: next((i for i, t in enumerate(theirs) if t.startswith("*")), None)]
    same_places = len(before_star) <= len(positional) and all(
        mine.name == other.partition("=")[0] and mine.kind is not inspect.Parameter.POSITIONAL_ONLY
        for mine, other in zip(positional, before_star, strict=False)
    )
    same_names = all(
        name in named and _same_default(named[name], default if optional else None)
        for name, optional, default in wanted
    )
    further = {name for name, _, _ in wanted}
    optional = all(
        each.default is not inspect.Parameter.empty
        for each in ours
        if each.name not in further
        and each.kind not in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    )
    variable = all(
        kind in kinds
        for prefix, kind in (
            ("**", inspect.Parameter.VAR_KEYWORD),
            ("*", inspect.Parameter.VAR_POSITIONAL),
        )
        if any(t.count("*") == len(prefix) and t != prefix for t in theirs)
    )
    return same_places and same_names and optional and variable


def _same_default(mine: inspect.Parameter, theirs: str | None) -> bool:
    """Whether what may be left out has the same default; None: it must be given."""
    if theirs is None:
        return True
    return mine.default is not inspect.Parameter.empty and theirs in {"", repr(mine.default)}


def _shown(parameter: inspect.Parameter) -> str:
    optional = parameter.default is not inspect.Parameter.empty
    name = str(parameter.replace(annotation=inspect.Parameter.empty)).partition("=")[0]
    return name + (f"={parameter.default!r}" if optional else "")


def compare() -> Iterator[str]:
    """What contradicts what, in words."""
    used = set()
    for name in names():
        wrong = difference(name)
        key = reason_of(name)
        if wrong and key is None:
            yield f"{name}: {wrong}, and tests/pyflink/missing/{name.module}.txt gives no reason"
        elif wrong and key:
            used.add(key)
            refused = refused_call(name) if reasons()[key].startswith("otherwise: ") else None
            if refused:
                yield f"{name}: 'otherwise' in tests/pyflink/missing/{name.module}.txt: {refused}"
    for module, path in reasons():
        if (module, path) not in used:
            yield f"tests/pyflink/missing/{module}.txt explains {path}, which is there"
        if not reasons()[module, path].startswith(tuple(KINDS)):
            yield f"tests/pyflink/missing/{module}.txt: the reason of {path} begins otherwise"


def missing_in(module: str) -> dict[str, list[Name]]:
    """What is missing, by kind of reason, each name under the line that explains it."""
    found: dict[str, list[Name]] = {kind: [] for kind in KINDS}
    for name in names():
        key = reason_of(name)
        if name.module == module and key and difference(name):
            kind = next(kind for kind in KINDS if reasons()[key].startswith(kind))
            found[kind].append(name)
    return found


_HEAD: Final = """# PyFlink compatibility

This page compares the public modules, classes, methods and parameters of PyFlink {version} below
`pyflink.common`, `pyflink.datastream`, `pyflink.metrics` and `pyflink.table` with those of
Millstream. In imports, replace `pyflink` with `millstream`; the rest of the path is the same.

A name is available if

- a method accepts the parameters of PyFlink's method, with the same names, positions and defaults;
- a result has the class that PyFlink documents, or a subclass;
- an enumeration has the same values.

PyFlink's internals (`fn_execution`, `java_gateway`, `util`) and parameters that pass JVM objects
are not compared.

Each missing or different name has a reason:

- *Not yet*: it depends on the feature that is named.
- *Replaced*: use the name that is given instead. This includes names that PyFlink has deprecated,
  and objects that programs do not create themselves, but get from the methods that are named.
- *Internal*: PyFlink uses it internally, and programs do not.
- *Artifact*: it exists in PyFlink because Flink runs in a JVM, and has no purpose here.
- *Otherwise*: it is available, but its result, its value or a default differs. A test checks that
  it accepts all calls that PyFlink's accepts.

[Behavior that differs](#behavior-that-differs) is listed at the end.

`python -m tests.pyflink.comparison` generates this page; a test fails if it is out of date.

"""


def page() -> str:
    """The text of ``docs/reference/pyflink.md``."""
    modules = list(dict.fromkeys(name.module for name in names()))
    counts = Counter(name.module for name in names())
    missing = {module: missing_in(module) for module in modules}
    columns = ["module", "names", "available", *(column for column, _ in KINDS.values())]
    lines = [f"| {' | '.join(columns)} |", "|---|" + "---:|" * (len(columns) - 1)]
    totals = [0] * (len(columns) - 1)
    for module in modules:
        explained = [len(missing[module][kind]) for kind in KINDS]
        row = [counts[module], counts[module] - sum(explained), *explained]
        totals = [total + each for total, each in zip(totals, row, strict=True)]
        lines.append(f"| `{module}` | " + " | ".join(map(str, row)) + " |")
    lines.append("| all | " + " | ".join(map(str, totals)) + " |")
    for kind, (_, title) in KINDS.items():
        lines += ["", f"## {title}"]
        for module in modules:
            if missing[module][kind]:
                lines += ["", f"`{module}`:", "", *_explained(missing[module][kind], kind)]
    lines += ["", (HERE / "behavior.md").read_text().rstrip()]
    return _HEAD.format(version=VERSION) + "\n".join(lines) + "\n"


def _explained(missing: list[Name], kind: str) -> Iterator[str]:
    """A line per reason that stands in the file, with how many names it explains."""
    keys = [key for name in missing if (key := reason_of(name))]
    for (module, path), number in Counter(keys).items():
        what = "the module" if path == "*" else f"`{path}`"
        several = f" ({number} names)" if number > 1 else ""
        yield f"- {what}{several}: {reasons()[module, path].removeprefix(kind)}"


if __name__ == "__main__":
    PAGE.write_text(page())
