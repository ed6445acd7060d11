"""Configuration: PyFlink's class with Flink's keys, read from a file or set one by one.

An invalid value is an error where it is set.  Other keys are kept for the program; misspelt keys of
ours and Flink's keys without effect are logged as warnings.
"""

from __future__ import annotations

import base64
import difflib
import json
import os
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.configuration.flink_options import (
    accept,
    named_flink_options,
    refused_option,
    say_once,
    why_without_effect,
)
from millstream.configuration.option import (
    ConfigOption,
    parse_boolean,
    parse_float,
    parse_integer,
    parse_list,
    parse_string,
)
from millstream.configuration.options import ALL_OPTIONS, EXECUTION
from millstream.configuration.redaction import redacted_options
from millstream.errors import ConfigurationError, with_article

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterator, Mapping


T = TypeVar("T")

#: An environment variable with JSON (key -> value as text): how ``millstream run`` hands options to
#: the program that it runs.
CONFIGURATION_VARIABLE: Final = "MILLSTREAM_CONFIGURATION"

#: For the user's own entries, and Spark's: never taken for misspelt ones.
_FREE_PREFIXES: Final = ("user.", "spark.")

_OWN_PREFIX: Final = "millstream."

#: How much of a key must be that of one of ours to be taken for it.
_MISSPELT: Final = 0.8

#: Flink's options whose keys have parts that programs and clusters choose.
_TEMPLATES: Final = (
    *("containerized.", "env.", "events.", "external-resource.", "flink.hadoop.", "flink.yarn."),
    *("fs.", "kubernetes.", "metrics.", "s3.", "security.", "traces.", "yarn."),
)


class Configuration:
    """Options by key.

    Keys may also be the program's own; keys that start with ``spark.`` are for Spark.
    """

    def __init__(self, other: Configuration | Mapping[str, object] | None = None) -> None:
        """Take over the entries of another configuration or of a dict.

        Raises:
            ConfigurationError: a value of the dict makes no sense.
        """
        self._entries: dict[str, object] = {}
        if isinstance(other, Configuration):
            other.add_all_to_dict(self._entries)
        elif other is not None:
            # How the job is to run comes first: by it options have an effect or have none.
            first = EXECUTION.key
            for key, value in sorted(other.items(), key=lambda entry: entry[0] != first):
                self._put(key, value)

    @classmethod
    def from_dict(cls, map: Mapping[str, object]) -> Configuration:  # noqa: A002 - PyFlink's
        """Make one of keys and values.

        Raises:
            ConfigurationError: a value makes no sense.
        """
        return cls(map)

    @staticmethod
    def parse_list_value(value: str) -> list[str]:
        """The elements of a list as it stands in a configuration: ``[a, b]`` or ``a;b``."""
        return parse_list(value) if value else []

    @staticmethod
    def from_file(path: str | os.PathLike[str]) -> Configuration:
        """Read a YAML file (nested or with dotted keys) or a properties file.

        Args:
            path: a file whose name ends in ``.yaml``, ``.yml``, ``.json``, ``.properties`` or
                ``.conf``.

        Raises:
            ConfigurationError: it cannot be read or parsed, or a value makes no sense; names the
                file.
        """
        file = Path(path)
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            message = f"the configuration file {file} cannot be read: {error}"
            raise ConfigurationError(message) from error
        configuration = Configuration()
        if file.suffix in {".yaml", ".yml", ".json"}:
            entries = _read_yaml(file, text)
        elif file.suffix in {".properties", ".conf"}:
            entries = _read_properties(file, text)
        else:
            message = f"{file} is no configuration file: its name must end in .yaml or .properties"
            raise ConfigurationError(message)
        for key, value in entries:
            try:
                configuration._put(key, value, where=f"{file}: ")
            except ConfigurationError as error:
                message = f"{file}: {error}"
                raise ConfigurationError(message) from None
        return configuration

    @staticmethod
    def from_environment() -> Configuration:
        """Return what ``millstream run`` handed to this program; empty if it was started otherwise.

        Raises:
            ConfigurationError: the variable does not hold what it should.
        """
        text = os.environ.get(CONFIGURATION_VARIABLE)
        if not text:
            return Configuration()
        try:
            entries = json.loads(text)
        except json.JSONDecodeError as error:
            message = f"the environment variable {CONFIGURATION_VARIABLE} holds no JSON: {error}"
            raise ConfigurationError(message) from error
        if not isinstance(entries, dict):
            message = f"the environment variable {CONFIGURATION_VARIABLE} holds no JSON object"
            raise ConfigurationError(message)
        return Configuration(entries)

    def get(self, option: ConfigOption[T]) -> T:
        """The value of an option, its default if it is not set.

        Raises:
            ConfigurationError: the value makes no sense.
        """
        for key in (option.key, *option.aliases):
            if key in self._entries:
                return option.read(self._entries[key])
        return option.get_default()

    def set(self, option: ConfigOption[T], value: T) -> Configuration:
        """Set an option.

        Raises:
            ConfigurationError: the value makes no sense.
        """
        self._put(option.key, value)
        return self

    def get_string(self, key: str, default_value: str) -> str:
        """The value of a key as text."""
        return self._read(key, parse_string, default_value)

    def set_string(self, key: str, value: str) -> Configuration:
        """Set a key.

        Raises:
            ConfigurationError: the value makes no sense.
        """
        return self._put(key, value)

    def get_integer(self, key: str, default_value: int) -> int:
        """The value of a key as an integer.

        Raises:
            ConfigurationError: it is none.
        """
        return self._read(key, parse_integer, default_value)

    def set_integer(self, key: str, value: int) -> Configuration:
        """Set a key; errors as ``set_string``."""
        return self._put(key, value)

    def get_boolean(self, key: str, default_value: bool) -> bool:  # noqa: FBT001 - PyFlink's
        """The value of a key as true or false.

        Raises:
            ConfigurationError: it is neither.
        """
        return self._read(key, parse_boolean, default_value)

    def set_boolean(self, key: str, value: bool) -> Configuration:  # noqa: FBT001 - PyFlink's
        """Set a key; errors as ``set_string``."""
        return self._put(key, value)

    def get_float(self, key: str, default_value: float) -> float:
        """The value of a key as a number.

        Raises:
            ConfigurationError: it is none.
        """
        return self._read(key, parse_float, float(default_value))

    def set_float(self, key: str, value: float) -> Configuration:
        """Set a key; errors as ``set_string``."""
        return self._put(key, value)

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        """The bytes of a key."""
        value = self._entries.get(key, default_value)
        return (
            bytearray(value)
            if isinstance(value, bytes | bytearray)
            else bytearray(parse_string(value).encode())
        )

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        """Set a key; errors as ``set_string``."""
        return self._put(key, bytearray(value))

    def key_set(self) -> builtins.set[str]:
        """The keys that are set."""
        return set(self._entries)

    def contains_key(self, key: str) -> bool:
        """Return whether the key, or one that means the same, is set."""
        return self._find(key) is not None

    def contains(self, option: ConfigOption[Any]) -> bool:
        """Return whether the option is set."""
        return self.contains_key(option.key)

    def remove_config(self, key: str) -> bool:
        """Remove a key and those that mean the same; whether any was there."""
        present = [name for name in _synonyms(key) if name in self._entries]
        for name in present:
            del self._entries[name]
        return bool(present)

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Take over all entries of another configuration, their keys behind a prefix."""
        for key, value in other._entries.items():
            self._put((prefix or "") + key, value)
        return self

    def add_all_to_dict(self, target_dict: dict[str, object]) -> None:
        """Add all entries to a dict, as they were set."""
        target_dict.update(self._entries)

    def to_dict(self) -> dict[str, str]:
        """All entries as text."""
        return {key: _to_text(value) for key, value in self._entries.items()}

    def refusal(self) -> str | None:
        """Return the error for an option of Flink's that is refused; None without one.

        Refused is what would change results or recovery, and is not in this release.
        """
        return refused_option(self._entries)

    def clone(self) -> Configuration:
        """A copy."""
        return Configuration(self)

    def _find(self, key: str) -> str | None:
        return next((name for name in _synonyms(key) if name in self._entries), None)

    def _read(self, key: str, parse: Callable[[object], T], default: T) -> T:
        name = self._find(key)
        if name is None:
            return default
        return ConfigOption(name, parse, default, "").read(self._entries[name])

    def _put(self, key: str, value: object, where: str = "") -> Configuration:
        option = ALL_OPTIONS.get(key)
        if option is not None:
            parsed = option.read(value)
            if option.choices:
                value = parsed  # in the form that readers compare with
            if option.without_effect and parsed != option.default and not self._heeds(option):
                # The engine may be chosen behind it.
                other = f"; it has with {EXECUTION.key}: pipelined" if option.pipelined else ""
                accept(where + key, option.without_effect + other)
            # A later setting under another name of the option must win.
            self.remove_config(key)
        else:
            _say_of_unapplied(key, value, where)
        self._entries[key] = value
        return self

    def _heeds(self, option: ConfigOption[Any]) -> bool:
        """Return whether the job is to run in a way in which the option has an effect."""
        return option.pipelined and self.get(EXECUTION) == "pipelined"

    def __deepcopy__(self, memo: dict[int, object]) -> Configuration:
        """A copy."""
        return self.clone()

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same entries, compared as text."""
        return isinstance(other, Configuration) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        """Equal configurations have equal hashes."""
        return hash(frozenset(self.to_dict().items()))

    def __str__(self) -> str:
        """``{k1=v1, k2=1}``, without the values of secrets."""
        shown = redacted_options(self.to_dict())
        return "{" + ", ".join(f"{key}={value}" for key, value in shown.items()) + "}"

    def __repr__(self) -> str:
        """``Configuration({k1=v1, k2=1})``."""
        return f"Configuration({self})"


def _synonyms(key: str) -> tuple[str, ...]:
    """The key and all others that mean the same."""
    option = ALL_OPTIONS.get(key)
    return (key,) if option is None else (option.key, *option.aliases)


def misspelling(key: str) -> str | None:
    """Return the warning about a key that looks like a misspelt one; None for any other."""
    if key in ALL_OPTIONS or key in named_flink_options():
        return None
    if key.startswith((*_FREE_PREFIXES, *_TEMPLATES)):
        return None
    near = _nearest(key)
    if near:
        return f"unknown option {key!r}; did you mean {' or '.join(map(repr, near))}?"
    if key.startswith(_OWN_PREFIX):
        return f"unknown option {key!r}; millstream.configuration.options lists all of ours"
    return None


@lru_cache(maxsize=1024)
def _nearest(key: str) -> list[str]:
    """Return the keys that one which is unknown is probably meant for, applied ones first."""
    near = difflib.get_close_matches(key, ALL_OPTIONS, n=3, cutoff=_MISSPELT)
    near = near or [name for name in ALL_OPTIONS if name.endswith("." + key)]
    if not near and key.startswith(_OWN_PREFIX):
        ours = {name.removeprefix(_OWN_PREFIX): name for name in ALL_OPTIONS}
        part = key.removeprefix(_OWN_PREFIX)
        near = [name for end, name in ours.items() if end.endswith("." + part)]
        near = near or [ours[each] for each in difflib.get_close_matches(part, ours, n=1)]
    # Of Flink's many keys only those of the same part: a program's own may be like others.
    part = key.partition(".")[0]
    parts = difflib.get_close_matches(part, _flink_parts(), n=1, cutoff=_MISSPELT)
    names = [name for name in named_flink_options() if name.partition(".")[0] in parts]
    return near or difflib.get_close_matches(key, names, n=1, cutoff=_MISSPELT)


@cache
def _flink_parts() -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in named_flink_options())


def _say_of_unapplied(key: str, value: object, where: str) -> None:
    """Warn of a key that has no effect though its writer may think that it has.

    One that is refused is so when a job is submitted: until then it may be taken out again.
    """
    known = named_flink_options().get(key)
    if known is not None:
        reason = why_without_effect(key)
        if reason is not None and not known.is_default(value):
            accept(where + key, reason)
    elif key.startswith(_FREE_PREFIXES):
        return
    elif hint := misspelling(key):
        say_once(where + hint)
    elif reason := why_without_effect(key):
        accept(where + key, reason)
    elif key.startswith(("table.", "execution.", "pipeline.", "state.")):
        say_once(
            f"{where}unknown option {key!r}: it has no effect; "
            "docs/reference/options.md lists Flink's"
        )


def _to_text(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode("ascii")
    return parse_string(value)


def _read_yaml(file: Path, text: str) -> list[tuple[str, object]]:
    import yaml  # only needed for files

    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        message = f"{file} is no valid YAML: {error}"
        raise ConfigurationError(message) from error
    if content is None:
        return []
    if not isinstance(content, dict):
        message = f"{file} must hold keys and values, not {with_article(type(content).__name__)}"
        raise ConfigurationError(message)
    return list(_flatten(file, content, ""))


def _flatten(
    file: Path, content: Mapping[object, object], prefix: str
) -> Iterator[tuple[str, object]]:
    for name, value in content.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _flatten(file, value, key + ".")
        elif isinstance(value, list):
            yield key, parse_string(value)
        elif value is None:
            message = f"{file}: {key} has no value"
            raise ConfigurationError(message)
        else:
            yield key, value


def _read_properties(file: Path, text: str) -> list[tuple[str, object]]:
    entries: list[tuple[str, object]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", "!")):
            continue
        key, separator, value = stripped.partition("=")
        if not separator:
            key, separator, value = stripped.partition(": ")
        if not separator:
            message = f"{file}:{number}: expected 'key = value', found {stripped!r}"
            raise ConfigurationError(message)
        entries.append((key.strip(), value.strip()))
    return entries
