"""ConfigOptions: a program's own options, with type and default.

What it is: PyFlink's builder of ``ConfigOption``, whose values ``Configuration.get`` reads.
What it is not: the options of Millstream: ``configuration/options.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from millstream.configuration.option import ConfigOption
from millstream.configuration.parsing import parse_boolean, parse_float, parse_integer, parse_string

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ConfigOption", "ConfigOptions"]

T = TypeVar("T")
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
