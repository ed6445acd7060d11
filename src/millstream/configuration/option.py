"""ConfigOption: a key with its type, default and meaning, and the parsers of option values."""

from __future__ import annotations

import datetime as dt
import re
import textwrap
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from millstream.configuration.machine_time_zone import machine_time_zone
from millstream.configuration.redaction import REDACTED, is_secret
from millstream.configuration.resources import MAX_PARALLELISM
from millstream.errors import ConfigurationError
from millstream.types.time import Duration, milliseconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from millstream.entry_points import Extensions


#: Flink's units of time.
_UNITS: Final[dict[str, float]] = {
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1e-6),
    **dict.fromkeys(("us", "µs", "micro", "micros", "microsecond", "microseconds"), 1e-3),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_DURATION: Final = re.compile(r"\s*([+-]?\d+)\s*([a-zµ]*)\s*")
_BOOLEANS: Final = {"true": True, "false": False}


def parse_string(value: object) -> str:
    """The value as text; booleans as ``true`` and ``false``, enums by name.

    Lists and dicts are written as Flink does: ``a;b`` and ``k1:v1,k2:v2``.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Duration | dt.timedelta):
        return f"{milliseconds_of(value)} ms"
    if isinstance(value, list | tuple):
        return ";".join(_quoted(each, ";") for each in value)
    if isinstance(value, dict):
        return ",".join(f"{_quoted(k, ',:')}:{_quoted(v, ',:')}" for k, v in value.items())
    return str(value)


def _quoted(value: object, separators: str) -> str:
    """In single quotes where it must be, quotes within doubled."""
    text = parse_string(value)
    if any(each in text for each in (*separators, "'", '"')):
        return "'" + text.replace("'", "''") + "'"
    return text


def _split(text: str, separator: str) -> list[str]:
    """Cut at separators that are not within quotes; the quotes stay."""
    parts, quote = [""], ""
    for character in text:
        if character == separator and not quote:
            parts.append("")
            continue
        if character == quote:
            quote = ""
        elif character in "'\"" and not quote:
            quote = character
        parts[-1] += character
    if quote:
        message = f"has a quote {quote} that is not closed"
        raise ValueError(message)
    return parts


def _unquoted(text: str) -> str:
    text = text.strip()
    quote = text[:1]
    if quote and quote in "'\"" and len(text) > 1 and text.endswith(quote):
        return text[1:-1].replace(quote * 2, quote)
    return text


def parse_list(value: object) -> list[str]:
    """A list of texts: a list, YAML's ``[a, b]`` or one ``- a`` per line, or ``a;b``.

    Raises:
        ValueError: a quote is not closed, or what looks like YAML is not a list.
    """
    if isinstance(value, list | tuple):
        return [parse_string(each) for each in value]
    text = parse_string(value).strip()
    if _is_yaml_list(text):
        return _yaml_list(parse_string(value))
    return [_unquoted(each) for each in _split(text, ";")] if text else []


def parse_list_text(value: object) -> str:
    """The text of a list: one in YAML is rewritten as ``a;b``, any other is taken as it is.

    Raises:
        ValueError: what looks like YAML is not a list.
    """
    text = parse_string(value)
    return parse_string(_yaml_list(text)) if _is_yaml_list(text.strip()) else text


def _is_yaml_list(text: str) -> bool:
    return (text.startswith("[") and text.endswith("]")) or text.startswith("- ")


def _yaml_list(text: str) -> list[str]:
    import yaml  # only for lists in YAML's form

    try:
        loaded = yaml.safe_load(textwrap.dedent(text))
    except yaml.YAMLError as error:
        message = f"must be a list in YAML, such as '[a, b]', or 'a;b': {error}"
        raise ValueError(message) from None
    if not isinstance(loaded, list):
        message = "must be a list in YAML, such as '[a, b]', or 'a;b'"
        raise ValueError(message)  # noqa: TRY004 - of a value, as all others here
    return [parse_string(each) for each in loaded]


def parse_map(value: object) -> dict[str, str]:
    """Texts by text: a dict, or ``k1:v1,k2:v2``.

    Raises:
        ValueError: an entry has no colon, or a quote is not closed.
    """
    if isinstance(value, dict):
        return {parse_string(key): parse_string(each) for key, each in value.items()}
    found = {}
    text = parse_string(value)
    for entry in _split(text, ",") if text.strip() else []:
        key, *rest = _split(entry, ":")
        if not rest:
            message = f"must be entries such as 'key:value', but one is {entry!r}"
            raise ValueError(message)
        found[_unquoted(key)] = _unquoted(":".join(rest))
    return found


def parse_integer(value: object) -> int:
    """An integer.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, float | bool) and not (isinstance(value, float) and value.is_integer()):
        message = "must be a whole number"
        raise ValueError(message)
    try:
        return int(parse_string(value)) if not isinstance(value, float) else int(value)
    except ValueError:
        message = "must be a whole number"
        raise ValueError(message) from None


def parse_max_parallelism(value: object) -> int:
    """Return a number of key groups, or -1: derived from the parallelism.

    Raises:
        ValueError: it is neither.
    """
    number = parse_integer(value)
    if number != -1 and not 1 <= number <= MAX_PARALLELISM:
        message = f"must be at least 1 and at most {MAX_PARALLELISM}, or -1"
        raise ValueError(message)
    return number


#: Of ``state.backend.rocksdb.compression.per.level``.
COMPRESSIONS: Final = (
    "NO_COMPRESSION",
    "SNAPPY_COMPRESSION",
    "ZLIB_COMPRESSION",
    "BZLIB2_COMPRESSION",
    "LZ4_COMPRESSION",
    "LZ4HC_COMPRESSION",
    "ZSTD_COMPRESSION",
)


def parse_compressions(value: object) -> list[str]:
    """Return the names of compressions, one for each level.

    Raises:
        ValueError: there is none, or one is unknown.
    """
    found = [each.upper() for each in parse_list(value)]
    if not found or not set(found) <= set(COMPRESSIONS):
        message = f"must be a list of {', '.join(COMPRESSIONS)}"
        raise ValueError(message)
    return found


def parse_ratio(value: object) -> float:
    """Return a number from 0 to 1.

    Raises:
        ValueError: it is none.
    """
    number = parse_float(value)
    if not 0 <= number <= 1:
        message = "must be a number from 0 to 1"
        raise ValueError(message)
    return number


def parse_float(value: object) -> float:
    """A number.

    Raises:
        ValueError: it is none.
    """
    try:
        return float(parse_string(value))
    except ValueError:
        message = "must be a number"
        raise ValueError(message) from None


def parse_boolean(value: object) -> bool:
    """True or false, in any case.

    Raises:
        ValueError: it is neither.
    """
    try:
        return _BOOLEANS[parse_string(value).strip().lower()]
    except KeyError:
        message = "must be true or false"
        raise ValueError(message) from None


def parse_duration(value: object) -> int:
    """A length of time in milliseconds.

    Args:
        value: a Duration, a timedelta, milliseconds (int), or text such as "10 s", "200 ms",
            "1 min", "2 h", "1 d"; text without a unit is milliseconds.

    Raises:
        ValueError: it is none of these.
    """
    match = _DURATION.fullmatch(parse_string(value).lower())
    if match is None or match[2] not in _UNITS:
        message = "must be a length of time such as '10 s', '200 ms', '1 min', or milliseconds"
        raise ValueError(message)
    return int(int(match[1]) * _UNITS[match[2]])


_MEMORY: Final = re.compile(r"(\d+)\s*([a-z]*)")
_MEMORY_UNITS: Final = {
    "": 1, "b": 1, "bytes": 1,
    "k": 1 << 10, "kb": 1 << 10, "kibibytes": 1 << 10,
    "m": 1 << 20, "mb": 1 << 20, "mebibytes": 1 << 20,
    "g": 1 << 30, "gb": 1 << 30, "gibibytes": 1 << 30,
    "t": 1 << 40, "tb": 1 << 40, "tebibytes": 1 << 40,
}  # fmt: skip


def parse_memory(value: object) -> int:
    """A number of bytes.

    Args:
        value: a number, or text such as "512 mb", "64m", "1g"; units are those of Flink, powers of
            1024; text without a unit is bytes.

    Raises:
        ValueError: it is none of these.
    """
    match = _MEMORY.fullmatch(parse_string(value).strip().lower())
    if match is None or match[2] not in _MEMORY_UNITS:
        message = "must be a size of memory such as '512 mb', '64m', '1g', or bytes"
        raise ValueError(message)
    return int(match[1]) * _MEMORY_UNITS[match[2]]


def parse_lowercase(value: object) -> str:
    """One of several words, however it is written."""
    return parse_string(value).strip().lower()


def parse_uppercase(value: object) -> str:
    """The name of a constant, however it is written."""
    return parse_string(value).strip().upper().replace("-", "_")


def parse_target(value: object) -> str:
    """An engine; programs for Flink name kinds of clusters."""
    text = parse_lowercase(value)
    cluster = text == "remote" or text.startswith(("yarn-", "kubernetes-"))
    return "spark" if cluster else text


def parse_time_zone(value: object) -> str:
    """Return the name or offset of a time zone; ``default`` is that of the machine."""
    text = parse_string(value)
    return machine_time_zone() if text == "default" else text


def parse_attempts(value: object) -> str:
    """A number of attempts, or that there are always more.

    Raises:
        ValueError: it is neither.
    """
    text = parse_lowercase(value)
    if text != "infinite" and not text.isdigit():
        message = "must be a whole number or 'infinite'"
        raise ValueError(message)
    return text


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


def boolean(
    key: str, description: str, *, default: bool = False, **more: Any
) -> ConfigOption[bool]:
    """Make an option that is true or false.

    Args:
        key: of the option.
        description: its meaning.
        default: its value where nothing is set.
        more: further fields of the option.
    """
    return ConfigOption(key, parse_boolean, default, description, **more)


def choice(
    key: str, default: str, choices: Collection[str], description: str, **more: Any
) -> ConfigOption[str]:
    """Make an option that is one of some words, in capitals or in small letters as its default."""
    parse = parse_uppercase if default.isupper() else parse_lowercase
    return ConfigOption(key, parse, default, description, choices=choices, **more)


def duration(
    key: str, default: int, description: str, *, minimum: int = 0, **more: Any
) -> ConfigOption[int]:
    """Make an option that is a length of time, in milliseconds."""
    return ConfigOption(key, parse_duration, default, description, minimum=minimum, **more)


def integer(key: str, default: int, description: str, **more: Any) -> ConfigOption[int]:
    """Make an option that is a whole number."""
    return ConfigOption(key, parse_integer, default, description, **more)


def text(key: str, description: str, **more: Any) -> ConfigOption[str]:
    """Make an option that is a text, empty where nothing is set."""
    return ConfigOption(key, parse_string, "", description, **more)


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
