"""The time zone of this machine, the default of ``table.local-time-zone``."""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path
from typing import Final
from zoneinfo import TZPATH, ZoneInfo, ZoneInfoNotFoundError

_LOCAL: Final = "/etc/localtime"
_DIRECTORY: Final = "zoneinfo/"
#: Names of one zone, for which calculations have a shorter path.
_UTC: Final = frozenset(
    {
        *("UTC", "UCT", "GMT", "Zulu", "Universal", "Greenwich"),
        *("Etc/UTC", "Etc/UCT", "Etc/GMT", "Etc/Zulu", "Etc/Universal", "Etc/Greenwich"),
    }
)


def machine_time_zone() -> str:
    """Return the time zone of this machine as a name such as ``Europe/Berlin``.

    As in Java, from the environment variable ``TZ``, or from what ``/etc/localtime`` is a link to
    or a copy of.  Where neither has a name, it is the offset of now, such as ``+02:00``.
    """
    given = os.environ.get("TZ", "").removeprefix(":")
    name = _known(given.rpartition(_DIRECTORY)[2]) if given else _name_of(_LOCAL)
    if name is None:
        return _offset()
    return "UTC" if name in _UTC else name


@cache
def _name_of(file: str) -> str | None:
    """Return the zone whose file this is a link to or a copy of."""
    target = os.path.realpath(file)
    name = _known(target.rpartition(_DIRECTORY)[2]) if _DIRECTORY in target else None
    return name or _copied(Path(file))


def _copied(file: Path) -> str | None:
    try:
        content = file.read_bytes()
    except OSError:
        return "UTC"  # as in the C library
    for root in map(Path, TZPATH):
        for path in sorted(root.rglob("*")) if root.is_dir() else ():
            if path.is_file() and path.stat().st_size == len(content):
                name = _known(path.relative_to(root).as_posix())
                if name is not None and path.read_bytes() == content:
                    return name
    return None


def _known(name: str) -> str | None:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
    return name


def _offset() -> str:
    minutes = time.localtime().tm_gmtoff // 60
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
