"""Hints: which of them are taken, warned about or refused.

What it is: hints behind SELECT and behind tables.  Those that say how to join do not change what a
query gives and are taken without effect; one that would change it is refused by name.  As in
Flink, an unknown hint behind SELECT is warned about, an unknown one behind a table is refused.
What it is not: the values of OPTIONS, which the table's connector checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.configuration.accepted import say_once
from millstream.sql.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.binder.context import BindingContext
    from millstream.sql.parser.query_nodes import Hint

__all__ = ["check_select_hints", "no_hints", "table_options"]

_JOIN_HINTS: Final = frozenset(
    {"BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP", "LOOKUP", "MULTI_JOIN"}
)


def check_select_hints(context: BindingContext, hints: Sequence[Hint]) -> None:
    """Look at the hints behind SELECT.

    Raises:
        ValidationError: a hint would change what the query gives.
    """
    for hint in hints:
        name = hint.name.upper()
        if name == "STATE_TTL":
            message = "The hint STATE_TTL is not in this release; set table.exec.state.ttl."
            raise context.error(hint, message)
        if name == "OPTIONS":
            message = "The hint OPTIONS belongs behind the name of a table, not behind SELECT."
            raise context.error(hint, message)
        if name == "LOOKUP" and any(key.startswith("retry") for key, _ in hint.options):
            message = (
                "Retries of the hint LOOKUP are not in this release; questions that fail are asked "
                "again as often as 'lookup.max-retries' of the table says."
            )
            raise context.error(hint, message)
        if name not in _JOIN_HINTS:
            near = did_you_mean(name, _JOIN_HINTS)
            say_once(f"hint {hint.name} is not known and has no effect.{near}")


def table_options(context: BindingContext, hints: Sequence[Hint]) -> dict[str, str]:
    """The options that hints behind a table give.

    Raises:
        ValidationError: a hint is not OPTIONS('key' = 'value', ...).
    """
    found: dict[str, str] = {}
    for hint in hints:
        if hint.name.upper() != "OPTIONS":
            message = f"There is no hint {hint.name} of tables; there is OPTIONS."
            raise context.error(hint, message)
        if hint.arguments:
            message = "The hint OPTIONS has pairs of the form 'key' = 'value'."
            raise context.error(hint, message)
        found.update(hint.options)
    return found


def no_hints(context: BindingContext, hints: Sequence[Hint], what: str) -> None:
    """Refuse hints behind what has no options.

    Raises:
        ValidationError: there are hints.
    """
    if table_options(context, hints):
        message = f"The hint OPTIONS is for tables of connectors; {what} has no options."
        raise context.error(hints[0], message)
