"""An option: a configuration key with its type, default and meaning.

What it is: how what was set for a key is read, and refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from millstream.configuration.parsing import parse_boolean, parse_float, parse_integer, parse_string
from millstream.configuration.redaction import REDACTED, is_secret
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from millstream.entry_points import Extensions


T = TypeVar("T")


@dataclass(frozen=True)
class ConfigOption(Generic[T]):
    """A configuration key with its type and default."""

    key: str
    #: Makes the value from what was set; raises ValueError saying what it must be.
    parse: Callable[[object], T]
    default: T
    description: str
    #: Older or shorter keys that mean the same.
    aliases: tuple[str, ...] = ()
    #: Permitted values, if they are few.
    choices: Collection[T] | Extensions[Any] = ()
    minimum: float | None = None
    #: Why it does nothing, if it is only accepted; said when it is set to another value.
    without_effect: str = ""
    #: Makes the default where it depends on the machine.
    compute_default: Callable[[], T] | None = None
    #: Whether it has an effect with ``millstream.execution: pipelined`` nevertheless.
    pipelined: bool = False

    def get_default(self) -> T:
        """Return the value that holds where nothing is set."""
        return self.default if self.compute_default is None else self.compute_default()

    def read(self, value: object) -> T:
        """The typed value of what was set.

        Raises:
            ConfigurationError: it makes no sense; names key, value and what it must be.
        """
        shown = REDACTED if is_secret(self.key) else value
        try:
            parsed = self.parse(value)
        except ValueError as error:
            message = f"{self.key} is {shown!r}; it {error}"
            raise ConfigurationError(message) from None
        if self.choices and parsed not in self.choices:
            message = (
                f"{self.key} is {shown!r}; it must be one of {', '.join(map(str, self.choices))}"
            )
            raise ConfigurationError(message)
        if self.minimum is not None and isinstance(parsed, int | float) and parsed < self.minimum:
            message = f"{self.key} is {shown!r}; it must be at least {self.minimum:g}"
            raise ConfigurationError(message)
        return parsed


_INT: Final = 2**31
_LONG: Final = 2**63


class ConfigOptions:
    """Makes options: ``ConfigOptions.key("tmp.dir").string_type().default_value("/tmp")``."""

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        """Begin an option with this key."""
        return ConfigOptions.OptionBuilder(key)

    class OptionBuilder:
        """An option whose type is not said yet."""

        def __init__(self, key: str) -> None:
            """Take the key."""
            self._key = key

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            """True or false."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, parse_boolean)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """A whole number of 32 bits."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, _whole_number(_INT))

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """A whole number of 64 bits."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, _whole_number(_LONG))

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """A number; Python's floats have 64 bits."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, parse_float)

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """A number of 64 bits."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, parse_float)

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            """Text."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, parse_string)

    class TypedConfigOptionBuilder(Generic[T]):
        """An option whose default is not said yet."""

        def __init__(self, key: str, parse: Callable[[object], T]) -> None:
            """Take the key and what makes a value of what was set."""
            self._key = key
            self._parse = parse

        def default_value(self, value: T) -> ConfigOption[T]:
            """The option, with this value where none is set."""
            return ConfigOption(self._key, self._parse, value, "")

        def no_default_value(self) -> ConfigOption[T | None]:
            """The option, which is None where no value is set."""
            return ConfigOption(self._key, self._parse, None, "")


def _whole_number(limit: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        number = parse_integer(value)
        if not -limit <= number < limit:
            message = f"must lie between {-limit} and {limit - 1}"
            raise ValueError(message)
        return number

    return parse
