"""Implementations by name: built in, or of installed packages (Python entry points).

What is built in stands in tables of the shape of entry points, and not in this project's own: those
of an editable installation are as old as the installation (``docs/decisions/0031-extensions.md``).
"""

from __future__ import annotations

import pkgutil
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.metadata import EntryPoint


T = TypeVar("T")


class Extensions(Generic[T]):
    """The implementations of one group, by name; a collection of names.

    Args:
        group: of entry points.
        kind: what they are, for messages: "connector".
        built_in: name -> "module" or "module:object", as an entry point has it.
        members: what an object must have to be one.
    """

    def __init__(
        self, group: str, kind: str, built_in: Mapping[str, str], members: tuple[str, ...]
    ) -> None:
        self.group = group
        self.kind = kind
        self._built_in = built_in
        self._members = members

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names: built-in ones, then others in order."""
        return iter(self._all())

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._all())

    def __contains__(self, name: object) -> bool:
        """Return whether there is one of this name.

        Raises:
            ConfigurationError: there are several.
        """
        found = self._all().get(name, []) if isinstance(name, str) else []
        if len(found) > 1:
            makers = " and ".join(sorted(map(_maker, found)))
            message = (
                f"{self.kind} '{name}' is registered {len(found)} times, by {makers}; uninstall all"
                " but one, or rename its entry point"
            )
            raise ConfigurationError(message)
        return bool(found)

    def __getitem__(self, name: str) -> T:
        """Load one.  A built-in one is found without a look at installed packages.

        Raises:
            ConfigurationError: there is none or several, or it cannot be loaded or is not one.
        """
        if name in self._built_in:
            return cast("T", pkgutil.resolve_name(self._built_in[name]))
        if name not in self:
            message = f"there is no {self.kind} '{name}'; there are {', '.join(sorted(self))}"
            raise ConfigurationError(message)
        (entry,) = self._all()[name]
        where = f"{self.kind} '{name}' of {_maker(entry)} ({self.group}: {entry.value})"
        try:
            loaded = entry.load()
        except Exception as error:
            message = f"{where} cannot be loaded: {type(error).__name__}: {error}"
            raise ConfigurationError(message) from error
        missing = [each for each in self._members if not hasattr(loaded, each)]
        if missing:
            message = f"{where} is not a {self.kind}: it has no {', '.join(missing)}"
            raise ConfigurationError(message)
        return cast("T", loaded)

    def _all(self) -> dict[str, list[EntryPoint]]:
        from importlib.metadata import (
            EntryPoint,  # slow, and most programs need no name but built-in ones
        )

        found = {name: [EntryPoint(name, at, self.group)] for name, at in self._built_in.items()}
        for entry in _installed(self.group, tuple(sys.path)):
            found.setdefault(entry.name, []).append(entry)
        return found


@lru_cache(maxsize=32)
def _installed(group: str, _path: tuple[str, ...]) -> list[EntryPoint]:
    """Read the entry points of installed packages; again when ``sys.path`` has changed."""
    from importlib.metadata import entry_points

    return sorted(entry_points(group=group), key=lambda each: each.name)


def _maker(entry: EntryPoint) -> str:
    """Return which package has registered it."""
    if entry.dist is None:
        return "Millstream itself"
    return f"package '{entry.dist.name}' {entry.dist.version}"
