"""Completion of SQL: what the word that is being typed could become."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.errors import MillstreamError
from millstream.sql.catalog.formats import known_options
from millstream.sql.parser.tokens import RESERVED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.table.table_environment import TableEnvironment


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


#: Tables whose columns are offered where no table has been named.
_TABLES: Final = 50
_WITH: Final = re.compile(r"\bWITH\s*\(", re.IGNORECASE)
#: A string, whole or not, or a sign; other words are no part of options.
_OPTION_TOKEN: Final = re.compile(r"'((?:[^']|'')*)('?)|([=,)])|[^\s'=,)]+")


@dataclass(frozen=True)
class _Option:
    """Where in ``WITH (...)`` the cursor is."""

    #: The options before it.
    given: dict[str, str]
    #: Whose value is typed; None: a key is.
    key: str | None
    #: What of it is there, with the quote it begins with.
    word: str


def _option_before(text: str) -> _Option | None:
    """The option that is being typed at the end of a text; None: it ends outside of WITH (...)."""
    begins = [match.end() for match in _WITH.finditer(text)]
    if not begins:
        return None
    given: dict[str, str] = {}
    key: str | None = None
    takes_value = False
    word = ""
    for token in _OPTION_TOKEN.finditer(text, begins[-1]):
        value, closed, sign = token[1], token[2], token[3]
        if sign == ")":
            return None
        if sign == "=":
            takes_value = True
        elif sign == ",":
            key, takes_value = None, False
        elif value is None or not closed:
            word = token[0] if token.end() == len(text) else ""
        elif takes_value and key is not None:
            given[key] = value
        else:
            key = value
    return _Option(given, key if takes_value else None, word)


def _options(option: _Option) -> list[str]:
    """Names of connectors and formats, or keys that the connector has, in quotes."""
    start = option.word.lstrip("'").lower()
    known = known_options({} if option.key == "connector" else option.given)
    if option.key is None:
        found = [f"'{each.key}' = " for each in known if each.key not in option.given]
    else:
        found = [f"'{value}'" for each in known if each.key == option.key for value in each.choices]
    return [each for each in found if each[1:].lower().startswith(start)]


def word_before(text: str) -> str:
    """The word that is being typed at the end of a text, with its quote; empty behind a space."""
    option = _option_before(text)
    if option is not None:
        return option.word
    match = _WORD.search(text)
    return "" if match is None else match[0]


def candidates(environment: TableEnvironment, text: str, after: str = "") -> list[str]:
    """Return what the word at the end of a text could become, in order.

    Args:
        environment: Has the catalogs.
        text: What was typed as far as the cursor; its last statement counts.
        after: What stands after the cursor.
    """
    option = _option_before(text)
    if option is not None:
        return _options(option)
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
    statement = text.rpartition(";")[2] + after.partition(";")[0]
    columns = _columns(environment, _TABLE.findall(statement) or tables[:_TABLES])
    names = columns + _names(environment.list_user_defined_functions)
    return _matching(word, names) + _matching(word, _KEYWORDS, keywords=True)


def _names(listing: Callable[[], Iterable[str]]) -> list[str]:
    try:
        return sorted(listing())
    except MillstreamError:
        # A catalog that cannot be read is told of by the statement that needs it.
        return []


def _columns(environment: TableEnvironment, tables: Iterable[str]) -> list[str]:
    """The columns of the tables that the statement names, or of all while it names none."""
    found: list[str] = []
    for name in dict.fromkeys(tables):
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
