"""Hints: which of them are taken, warned about or refused.

What it is: hints behind SELECT and behind tables.  Those that say how to join do not change what a
query gives and are taken without effect; STATE_TTL says how long joins and aggregates keep
rows.  As in Flink, an unknown hint behind SELECT is warned about, an unknown one behind a table is
refused.
What it is not: the values of OPTIONS, which the table's connector checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.configuration.accepted import say_once
from millstream.configuration.parsing import parse_duration
from millstream.sql.binder.lookup_hints import LookupHints, NamedHints
from millstream.sql.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.binder.context import BindingContext
    from millstream.sql.parser.query_nodes import Hint

__all__ = ["StateTtls", "no_hints", "select_hints", "table_options"]

_JOIN_HINTS: Final = frozenset(
    {"BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP", "LOOKUP", "MULTI_JOIN"}
)


class StateTtls(NamedHints[int]):
    """How long state of the tables of one SELECT is kept, in milliseconds."""

    def __init__(self) -> None:
        """Know of none."""
        super().__init__()
        #: The hints LOOKUP beside them.
        self.lookups = LookupHints()

    def add(self, context: BindingContext, hint: Hint) -> None:
        """Take a hint.

        Raises:
            ValidationError: it is not STATE_TTL('table' = 'length of time', ...).
        """
        if hint.arguments or not hint.options:
            message = "The hint STATE_TTL has pairs of the form 'table' = 'length of time'."
            raise context.error(hint, message)
        for name, text in hint.options:
            if name in self._hints:
                message = f"The hint STATE_TTL has '{name}' twice."
                raise context.error(hint, message)
            try:
                self._hints[name] = (parse_duration(text), hint)
            except ValueError as error:
                message = f"The hint STATE_TTL has '{text}' for '{name}'; it {error}."
                raise context.error(hint, message) from error

    def check_names(self, context: BindingContext) -> None:
        super().check_names(context)
        self.lookups.check_names(context)

    def unknown(self, name: str, near: str) -> str:
        return f"The hint STATE_TTL names '{name}', which no table of FROM is called.{near}"


def select_hints(context: BindingContext, hints: Sequence[Hint]) -> StateTtls:
    """Read the hints behind SELECT.

    Raises:
        ValidationError: a hint is not what it should be.
    """
    ttls = StateTtls()
    for hint in hints:
        name = hint.name.upper()
        if name == "STATE_TTL":
            ttls.add(context, hint)
            continue
        if name == "OPTIONS":
            message = "The hint OPTIONS belongs behind the name of a table, not behind SELECT."
            raise context.error(hint, message)
        if name == "LOOKUP":
            ttls.lookups.add(context, hint)
            continue
        if name not in _JOIN_HINTS:
            near = did_you_mean(name, {*_JOIN_HINTS, "STATE_TTL"})
            say_once(f"hint {hint.name} is not known and has no effect.{near}")
    return ttls


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
