"""What could be typed next: words of the language, and names of catalogs, tables and columns.

What it is: the candidates for the word before the cursor, by what stands before that.
What it is not: the terminal's menu (``cli/shell/terminal.py``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from millstream.errors import MillstreamError
from millstream.sql.parser.keywords import RESERVED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.table import TableEnvironment

__all__ = ["candidates", "word_before"]

#: Words that begin a statement.
_FIRST: Final = (
    "ALTER ANALYZE BEGIN CALL COMPILE CREATE DELETE DESCRIBE DROP EXECUTE EXPLAIN INSERT LOAD "
    "RESET SELECT SET SHOW STOP TRUNCATE UNLOAD UPDATE USE VALUES WITH QUIT HELP CLEAR"
)
#: Words of the grammar that are not reserved.
_MORE: Final = (
    "ASC CATALOG CHANGELOG_MODE COLUMNS COMPUTE CUMULATE DATABASE DESC DESCRIPTOR ENFORCED "
    "ESTIMATED_COST EXCLUDING FIRST GENERATED HOP IF INCLUDING JOB JOBS JSON_EXECUTION_PLAN KEY "
    "LAST METADATA NULLS OPTIONS ORDINALITY OVERWRITE PARTITIONED PARTITIONS PLAN_ADVICE PYTHON "
    "SESSION STATISTICS TEMPORARY TUMBLE VIEW VIRTUAL"
)
#: Behind these words stands a table.
_BEFORE_TABLE: Final = frozenset({"FROM", "JOIN", "INTO", "OVERWRITE", "TABLE", "VIEW", "DESCRIBE"})
_KEYWORDS: Final = sorted(RESERVED | set(_MORE.split()))
_WORD: Final = re.compile(r"[\w$`.]*$")
_TABLE: Final = re.compile(r"\b(?:FROM|JOIN|INTO|TABLE)\s+([\w$`.]+)", re.IGNORECASE)


def word_before(text: str) -> str:
    """The word that is being typed at the end of a text; empty behind a space."""
    match = _WORD.search(text)
    return "" if match is None else match[0]


def candidates(environment: TableEnvironment, text: str) -> list[str]:
    """What the word at the end of a text could become, in order.

    Args:
        environment: Has the catalogs.
        text: The statement as far as the cursor.
    """
    word = word_before(text)
    before = text[: len(text) - len(word)].split()
    if not before or before[-1].endswith(";"):
        return _matching(word, _FIRST.split(), keywords=True)
    last = before[-1].upper()
    if last == "CATALOG":
        return _matching(word, _names(environment.list_catalogs))
    if last == "USE":
        return _matching(word, [*_names(environment.list_databases), "CATALOG", "MODULES"])
    tables = _names(environment.list_tables) + _names(environment.list_views)
    if last in _BEFORE_TABLE:
        return _matching(word, tables)
    names = _columns(environment, text) + _names(environment.list_user_defined_functions)
    return _matching(word, names) + _matching(word, _KEYWORDS, keywords=True)


def _names(listing: Callable[[], Iterable[str]]) -> list[str]:
    try:
        return sorted(listing())
    except MillstreamError:
        # A catalog that cannot be read is told of by the statement that needs it.
        return []


def _columns(environment: TableEnvironment, text: str) -> list[str]:
    """The columns of the tables that the statement names."""
    found: list[str] = []
    for name in dict.fromkeys(_TABLE.findall(text)):
        try:
            schema = environment.from_path(name).get_resolved_schema()
        except MillstreamError:
            continue
        found += [column.name for column in schema.columns]
    return list(dict.fromkeys(found))


def _matching(word: str, names: Iterable[str], *, keywords: bool = False) -> list[str]:
    start = word.lower()
    found = [name for name in names if name.lower().startswith(start) and name != word]
    if keywords and word.islower():
        return [name.lower() for name in found]
    return found
