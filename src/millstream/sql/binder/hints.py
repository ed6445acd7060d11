"""Hints: which of them are taken, warned about or refused.

What it is: hints behind SELECT and behind tables.  Those that say how to join do not change what a
query gives and are taken without effect; STATE_TTL says how long joins and aggregates keep
rows.  As in Flink, an unknown hint behind SELECT is warned about, an unknown one behind a table is
refused.
What it is not: the values of OPTIONS, which the table's connector checks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Generic, NoReturn, TypeVar

from millstream.configuration import options as config
from millstream.configuration.flink_options import say_once
from millstream.configuration.option import parse_duration
from millstream.sql.parser.query_nodes import AliasedRelation, TableReference
from millstream.sql.planner.logical import LookupHint
from millstream.sql.suggestions import did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.binder.scope import BindingContext
    from millstream.sql.parser.query_nodes import Hint


_T = TypeVar("_T")

_OF_ASYNC: Final = ("output-mode", "capacity", "timeout")
_OF_RETRY: Final = ("retry-predicate", "retry-strategy", "fixed-delay", "max-attempts")
_KNOWN: Final = ("table", "async", *_OF_ASYNC, *_OF_RETRY)


def name_of(relation: object) -> str | None:
    """What hints call a relation of FROM: its alias, if it has one; None: it has no name."""
    if isinstance(relation, AliasedRelation):
        return relation.alias.value
    return relation.name.last if isinstance(relation, TableReference) else None


class NamedHints(ABC, Generic[_T]):
    """What hints of one SELECT say of relations of FROM, by the names that they have there."""

    def __init__(self) -> None:
        """Know of none."""
        self._hints: dict[str, tuple[_T, Hint]] = {}
        self._names: set[str] = set()

    def of(self, relation: object) -> _T | None:
        """What is said of a relation of FROM; None: nothing.

        A table has the name of its alias, if it has one; a join has none.
        """
        name = name_of(relation)
        if name is None:
            return None
        self._names.add(name)
        return self._hints[name][0] if name in self._hints else None

    def check_names(self, context: BindingContext) -> None:
        """Refuse names that no relation has that was asked for.

        Raises:
            ValidationError: there is one.
        """
        for name, (_, hint) in self._hints.items():
            if name not in self._names:
                raise context.error(hint, self.unknown(name, did_you_mean(name, self._names)))

    @abstractmethod
    def unknown(self, name: str, near: str) -> str:
        """What is said of a name that no relation has; ``near``: of one that is like it."""


class LookupHints(NamedHints["LookupHint"]):
    """The hints LOOKUP of one SELECT: how relations that are looked up are asked for."""

    def add(self, context: BindingContext, hint: Hint) -> None:
        """Take a hint.

        Raises:
            ValidationError: an option is unknown, is missing, or makes no sense.
        """
        options = dict(hint.options)
        if hint.arguments or not options:
            _refuse(context, hint, "it has pairs of the form 'key' = 'value'")
        for key in options:
            if key not in _KNOWN:
                near = did_you_mean(key, _KNOWN)
                _refuse(context, hint, f"there is no option '{key}'", near)
        name = options.pop("table", None)
        if name is None:
            _refuse(context, hint, "'table' says which table of FROM is meant; it is missing")
        if name in self._hints:
            _refuse(context, hint, f"there are two for '{name}'")
        self._hints[name] = (_Reader(context, hint, options).read(), hint)

    def unknown(self, name: str, near: str) -> str:
        return _invalid(f"'{name}' is no table of FROM whose rows are looked up", near)


def _invalid(what: str, more: str = "") -> str:
    return f"Invalid LOOKUP hint: {what}.{more}"


def _refuse(context: BindingContext, hint: Hint, what: str, more: str = "") -> NoReturn:
    raise context.error(hint, _invalid(what, more))


class _Reader:
    """The options of one hint, but for the table."""

    def __init__(self, context: BindingContext, hint: Hint, options: dict[str, str]) -> None:
        self._context = context
        self._hint = hint
        self._options = options

    def read(self) -> LookupHint:
        """What the options say."""
        is_async = self._choice("async", ("true", "false")) == "true"
        given = [key for key in _OF_ASYNC if key in self._options]
        if given and not is_async:
            self._refuse(f"'{given[0]}' needs 'async' = 'true'")
        retry = [key for key in _OF_RETRY if key in self._options]
        if retry and len(retry) < len(_OF_RETRY):
            self._refuse(f"{listed(list(_OF_RETRY))} go together")
        self._choice("retry-predicate", ("lookup_miss",))
        self._choice("retry-strategy", ("fixed_delay",))
        mode = self._choice("output-mode", ("ordered", "allow_unordered"))
        get = self._context.configuration.get
        mode = mode or get(config.ASYNC_LOOKUP_MODE).lower()
        return LookupHint(
            is_async=is_async,
            is_unordered=mode == "allow_unordered",
            capacity=self._number("capacity", get(config.ASYNC_LOOKUP_CAPACITY)),
            timeout=self._duration("timeout", get(config.ASYNC_LOOKUP_TIMEOUT)),
            retry_delay=self._duration("fixed-delay", 0),
            max_attempts=self._number("max-attempts", 0),
        )

    def _refuse(self, what: str) -> NoReturn:
        _refuse(self._context, self._hint, what)

    def _choice(self, key: str, taken: tuple[str, ...]) -> str | None:
        value = self._options.get(key)
        if value is not None and value.lower() not in taken:
            self._refuse(f"'{key}' is '{value}'; it can be {listed(list(taken))}")
        return None if value is None else value.lower()

    def _number(self, key: str, default: int) -> int:
        value = self._options.get(key)
        if value is None:
            return default
        if not value.isdecimal() or int(value) < 1:
            self._refuse(f"'{key}' is '{value}'; it must be a whole number, at least 1")
        return int(value)

    def _duration(self, key: str, default: int) -> int:
        value = self._options.get(key)
        if value is None:
            return default
        try:
            found = parse_duration(value)
        except ValueError as error:
            self._refuse(f"'{key}' is '{value}'; it {error}")
        if found < 1:
            self._refuse(f"'{key}' is '{value}'; it must be at least 1 ms")
        return found


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
