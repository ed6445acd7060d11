"""Names of the directories of partitions: ``column=value``, as Hive and Flink write them."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from millstream.types.logical_types import DateType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.types.logical_types import LogicalType

#: What Flink does not write into names of directories.
_SPECIAL: Final = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{\[\]^]")


def escaped(text: str) -> str:
    """A text as part of a directory's name."""
    return _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", text)


def value_text(value: object, default_name: str) -> str:
    """The value of a column in the name of a directory."""
    if value is None or value == "":
        return default_name
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def shown_value(value: Any, kind: LogicalType) -> object:
    """A value of SQL as that of an Arrow column."""
    if value is not None and isinstance(kind, DateType):
        return dt.date(1970, 1, 1) + dt.timedelta(days=value)
    return value


def directory_of(texts: Iterable[tuple[str, str]]) -> str:
    """The directory of a partition, by its columns and their texts."""
    return "/".join(f"{escaped(name)}={escaped(text)}" for name, text in texts)


def values_of(directory: str) -> dict[str, str]:
    """The texts of a partition's columns, by its directory below the table's."""
    parts = (each.partition("=") for each in directory.split("/"))
    return {unquote(name): unquote(value) for name, _, value in parts}
