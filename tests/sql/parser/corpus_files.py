"""The corpus: statements with what becomes of them, as files to read.

A case is a block without empty lines: the statement, then after ``=> `` what ``described`` makes of
it, or the kind of its error and the whole message.  Blocks that begin with ``# `` are headings.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from millstream.sql.parser.nodes import Expression, Identifier, Name, Node, Query, Relation
from millstream.sql.parser.parser import parse_expression, parse_query
from millstream.sql.parser.unparser import unparse
from millstream.types.logical_types import LogicalType

FILES = Path(__file__).parent / "corpus"
VALID = ("expressions", "queries", "statements", "tables")
_WIDTH = 90


class Case(NamedTuple):
    where: str
    statement: str
    expected: str


def cases(name: str) -> list[Case]:
    text = (FILES / f"{name}.txt").read_text(encoding="utf-8")
    found = []
    for match in re.finditer(r"(?:[^\n]+\n)+", text):
        block = match[0].rstrip("\n")
        if not block.startswith("# "):
            statement, expected = block.split("\n=> ", 1)
            line = text.count("\n", 0, match.start()) + 1
            found.append(Case(f"{name}.txt:{line}", statement, expected))
    return found


def valid() -> list[Case]:
    return [case for name in VALID for case in cases(name)]


def described(value: object, indent: str = "") -> str:
    """A query or expression as SQL; of other nodes, the class and the fields that are not defaults.

    What is longer than a line is broken into one line per field.
    """
    match value:
        case Expression() | Query() | Relation():
            return unparse(value)
        case Name():
            return unparse(Identifier((value,)))
        case LogicalType():
            return value.as_serializable_string()
        case Node():
            said = {each.name: getattr(value, each.name) for each in fields(value) if each.compare}
            defaults = {each.name: each.default for each in fields(value)}
            head, end = f"{type(value).__name__}(", ")"
            parts = [(f"{name}=", each) for name, each in said.items() if each != defaults[name]]
        case tuple():
            head, end, parts = "[", "]", [("", each) for each in value]
        case _:
            return repr(str(value)) if isinstance(value, str) else repr(value)
    flat = f"{head}{', '.join(name + described(each) for name, each in parts)}{end}"
    if len(indent) + len(flat) <= _WIDTH and "\n" not in flat:
        return flat
    inner = f"{indent}  "
    lines = (f"{inner}{name}{described(each, inner)}," for name, each in parts)
    return "\n".join([head, *lines, f"{indent}{end}"])


def check_texts(node: object) -> int:
    """Check that queries and expressions of a statement go to text and back; return how many."""
    if isinstance(node, tuple):
        return sum(map(check_texts, node))
    if not isinstance(node, Node):
        return 0
    if not isinstance(node, Query | Expression):
        return sum(check_texts(getattr(node, each.name)) for each in fields(node))
    text = unparse(node)
    again = parse_query(text) if isinstance(node, Query) else parse_expression(text)
    assert again == node
    assert unparse(again) == text
    return 1
