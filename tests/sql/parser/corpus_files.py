"""The corpus: statements with what becomes of them, as files to read.

A case is a block without empty lines: the statement, then behind ``=> `` its canonical text, or the
kind of its error and the whole message.  Blocks that begin with ``# `` are headings.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

FILES = Path(__file__).parent / "corpus"
VALID = ("expressions", "queries", "statements", "tables")


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
