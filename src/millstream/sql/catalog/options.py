"""Options of connectors and formats: checked by name and value.

What it is: which options a factory has, what type each is of, and what the text of a table says.
What it is not: options of jobs (``configuration/options.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.configuration import parsing
from millstream.errors import MillstreamError, ValidationError
from millstream.sql.catalog.unapplied_options import unapplied_option
from millstream.sql.suggestions import did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "IDLE_TIMEOUT",
    "Option",
    "Options",
    "boolean",
    "choice",
    "duration",
    "integer",
    "number",
    "text",
]


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a connector or format."""

    key: str
    parse: Callable[[str], Any]
    default: Any = None
    required: bool = False
    #: The values that it may have, if they are few.
    choices: tuple[str, ...] = ()


def text(key: str, default: str | None = None, *, required: bool = False) -> Option:
    """An option that is a text."""
    return Option(key, str, default, required)


def integer(key: str, default: int | None = None) -> Option:
    """An option that is a whole number."""
    return Option(key, parsing.parse_integer, default)


def number(key: str, default: float | None = None) -> Option:
    """An option that is a number."""
    return Option(key, parsing.parse_float, default)


def boolean(key: str, default: bool | None = None) -> Option:  # noqa: FBT001 - a value
    """An option that is true or false."""
    return Option(key, parsing.parse_boolean, default, choices=("true", "false"))


def duration(key: str, default: int | None = None) -> Option:
    """An option that is a length of time; its value is in milliseconds."""
    return Option(key, parsing.parse_duration, default)


#: Of tables with ``WATERMARK FOR``; read where watermarks are made.
IDLE_TIMEOUT: Final = duration("scan.watermark.idle-timeout")


def choice(key: str, values: Sequence[str], default: str | None = None) -> Option:
    """An option that is one of some words."""

    def parse(given: str) -> str:
        if given.lower() in values:
            return given.lower()
        hint = did_you_mean(given, values)
        message = f"it must be one of {', '.join(values)}, not '{given}'.{hint}"
        raise ValidationError(message)

    return Option(key, parse, default, choices=tuple(values))


class Options:
    """The options of one table, read by a factory.

    Args:
        owner: who reads them, for errors: ``connector 'kafka'``.
        given: the table's options.
        known: what the factory has.
        prefixes: options that begin so are taken as they are.

    Raises:
        ValidationError: one is unknown, missing or has no sensible value.
    """

    def __init__(
        self,
        owner: str,
        given: Mapping[str, str],
        known: Sequence[Option],
        prefixes: Sequence[str] = (),
    ) -> None:
        self.owner = owner
        self.given = given
        self._known = {option.key: option for option in known}
        self.prefixes = tuple(prefixes)
        for key in given:
            if key not in self._known and not key.startswith(self.prefixes or ("\0",)):
                self._check_unapplied(key)
        missing = [key for key, each in self._known.items() if each.required and key not in given]
        if missing:
            word = "options" if len(missing) > 1 else "the option"
            named = listed(f"'{key}'" for key in missing)
            message = f"{owner} needs {word} {named}."
            raise ValidationError(message)
        self._values = {key: self._parsed(key) for key in self._known}

    def _check_unapplied(self, key: str) -> None:
        """Log or refuse an option that is not one of the factory's.

        Raises:
            ValidationError: it is refused, or Flink does not have it either.
        """
        unapplied = unapplied_option(self.owner, key)
        if unapplied is None:
            raise self._unknown(key)
        unapplied.check(self.owner, key, self.given[key])

    def _unknown(self, key: str) -> ValidationError:
        hint = did_you_mean(key, self._known)
        known = listed(sorted(f"'{each}'" for each in self._known)) or "none"
        return ValidationError(f"{self.owner} has no option '{key}'.{hint} It has {known}.")

    def _parsed(self, key: str) -> Any:
        option = self._known[key]
        if key not in self.given:
            return option.default
        try:
            return option.parse(self.given[key])
        except (MillstreamError, ValueError) as error:
            message = f"{self.owner}: invalid value for option '{key}': {error}"
            raise ValidationError(message) from error

    def __getitem__(self, key: str) -> Any:
        """The value of an option, or its default."""
        return self._values[key]

    def under(self, prefix: str) -> dict[str, str]:
        """The options that begin with a prefix, without it."""
        return {
            key[len(prefix) :]: value for key, value in self.given.items() if key.startswith(prefix)
        }
