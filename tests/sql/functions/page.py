"""``python -m tests.sql.functions.page`` writes ``docs/reference/sql-functions.md``.

What it is: a page of all functions in the registry, made from their table entries, and of what else
Flink has (``flink.txt``), with the reason why it is not here (``elsewhere.txt``).
"""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.expressions.functions.definition import FunctionKind
from millstream.expressions.functions.registry import find_function, function_groups
from millstream.sql.binder.calls import AGGREGATES, OVER_ONLY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.expressions.functions.definition import FunctionDefinition

HERE: Final = Path(__file__).parent
PAGE: Final = HERE.parents[2] / "docs" / "reference" / "sql-functions.md"
VERSION: Final = "2.3"
_HERE: Final = "here: "
_NOT_YET: Final = "not yet: "
_NOT_COMPUTED: Final = f"{_NOT_YET}no operator computes it"
_COMPUTED: Final = (
    AGGREGATES.keys() | OVER_ONLY | {"GROUPING", "GROUP_ID", "JSON_ARRAYAGG", "JSON_OBJECTAGG"}
)


def _lines(name: str) -> Iterator[str]:
    for line in (HERE / name).read_text().splitlines():
        if line and not line.startswith("#"):
            yield line


@cache
def flink_functions() -> dict[str, list[str]]:
    """Flink's functions by group."""
    groups = (line.split(": ", 1) for line in _lines("flink.txt"))
    return {group: names.split(", ") for group, names in groups}


@cache
def reasons() -> dict[str, str]:
    """Where functions are that the registry does not hold, by pattern of their names."""
    return dict(line.split(": ", 1) for line in _lines("elsewhere.txt"))


def reason_of(name: str) -> str | None:
    """Where a function is that the registry does not hold; None if nobody says."""
    for pattern, reason in reasons().items():
        if fnmatchcase(name, pattern):
            return reason
    return None


def is_registered(name: str) -> bool:
    """Whether a function of that name is in the registry."""
    return find_function(name) is not None


def is_here(name: str) -> bool:
    """Whether a query can call a function of that name.

    The registry has the types of aggregates that no operator computes so far.
    """
    definition = find_function(name)
    if definition is None:
        return (reason_of(name) or "").startswith(_HERE)
    if definition.kind is FunctionKind.SCALAR:
        return True
    return not {definition.name, *definition.aliases}.isdisjoint(_COMPUTED)


def _count(group: str) -> tuple[int, int, int]:
    names = flink_functions()[group]
    missing = [name for name in names if not is_here(name)]
    return len(names), len(names) - len(missing), len(missing)


def _table() -> list[str]:
    lines = ["| group | functions of Flink's | here | not yet |", "|---|---:|---:|---:|"]
    total = Counter[int]()
    for group in flink_functions():
        counts = _count(group)
        total.update(dict(enumerate(counts)))
        lines.append(f"| {group} | " + " | ".join(map(str, counts)) + " |")
    lines.append("| all | " + " | ".join(str(total[at]) for at in range(3)) + " |")
    return lines


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _syntax(definition: FunctionDefinition) -> str:
    if definition.syntax is not None:
        return definition.syntax
    forms = []
    for signature in definition.signatures:
        names = [argument.name for argument in signature.arguments]
        first = len(names) - signature.optional
        text = ", ".join(names[:first])
        for name in names[first:]:
            text += f"[, {name}]" if text else f"[{name}]"
        forms.append(f"{definition.name}({text})")
    return ", ".join(dict.fromkeys(forms)) or definition.name


def _entry(definition: FunctionDefinition) -> Iterator[str]:
    aliases = "".join(f", also {_code(alias)}" for alias in definition.aliases)
    text = " ".join(definition.documentation.replace("``", "`").split())
    yield f"**{_code(_syntax(definition))}**{aliases}: {text}"
    for expression, result in definition.examples:
        yield f"- {_code(expression)} → {_code(result) if result else 'an empty string'}"
    yield ""


def _missing() -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for names in flink_functions().values():
        for name in names:
            reason = _NOT_COMPUTED if is_registered(name) else reason_of(name)
            if reason is not None and not (is_registered(name) and is_here(name)):
                by_reason.setdefault(reason, []).append(name)
    for kind, title in ((_HERE, "Available, but not as a function"), (_NOT_YET, "Not yet")):
        yield from ("", f"## {title}", "")
        for reason, names in by_reason.items():
            if reason.startswith(kind):
                yield f"- {', '.join(map(_code, names))}: {reason.removeprefix(kind)}"


_HEAD: Final = """# SQL functions

This page lists all built-in functions, in the groups of Flink's reference, with descriptions and
examples, which a test runs. Names, types and results are those of Flink {version}.
`tests/expressions/test_flink_differences.py` lists all intended differences. In short:

- Parts of times before 1970 are correct; in Flink they are not, because its division truncates.
- Regular expressions are Java's. An expression that Java refuses results in NULL, as in Flink; one
  that Python does not support (variable-length look-behind, `\\X`, Unicode blocks) raises an error.
- Date patterns are Java's, in English. Full names of time zones, and parsing weeks, are not
  supported and raise an error.
- LPAD, RPAD and REGEXP_REPLACE may return NULL where Flink declares NOT NULL, so here they are
  nullable.
- NULL without a type is accepted wherever one with a type is; Flink refuses it in most functions
  ("Illegal use of 'NULL'").

Unless stated otherwise, a function returns NULL if an argument is NULL. Results are shown as CAST
to STRING writes them. `python -m tests.sql.functions.page` generates this page; a test fails if it
is out of date.

"""


def page() -> str:
    """The text of ``docs/reference/sql-functions.md``."""
    lines = _table()
    for group in function_groups():
        lines += ["", f"## {group.name.capitalize()}", ""]
        for definition in group.definitions:
            if is_here(definition.name):
                lines += _entry(definition)
        lines.pop()
    lines += _missing()
    return _HEAD.format(version=VERSION) + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
