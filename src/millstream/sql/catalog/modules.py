"""Modules, which provide the built-in functions; there is one, ``core``.

As in Flink, unloading it only removes its functions from SHOW FUNCTIONS; queries still find them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import UnsupportedSqlError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Sequence


CORE: Final = "core"


class ModuleEntry:
    """The name of a loaded module, and whether it is used."""

    __slots__ = ("_name", "_used")

    def __init__(self, name: str, used: bool) -> None:  # noqa: FBT001 - PyFlink's
        self._name, self._used = name, used

    def name(self) -> str:
        """The name."""
        return self._name

    def used(self) -> bool:
        """Return whether it is used."""
        return self._used

    def __repr__(self) -> str:
        return f"ModuleEntry{{name='{self._name}', used={str(self._used).lower()}}}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ModuleEntry):
            return NotImplemented
        return (self._name, self._used) == (other._name, other._used)

    def __hash__(self) -> int:
        return hash((self._name, self._used))

    def __lt__(self, other: ModuleEntry) -> bool:
        return (self._name, self._used) < (other._name, other._used)


class Modules:
    """The modules of a session."""

    def __init__(self) -> None:
        self._loaded: list[str] = [CORE]
        #: In the order in which they are looked into.
        self.used: list[str] = [CORE]

    def load(self, name: str) -> None:
        """Load a module, and use it behind the others.

        Raises:
            ValidationError: it is loaded.
            UnsupportedSqlError: it is not ``core``.
        """
        if name in self._loaded:
            message = f"A module with name '{name}' already exists."
            raise ValidationError(message)
        if name != CORE:
            message = (
                f"Module '{name}' is not in this release: there is '{CORE}' alone. User-defined "
                "functions are made by CREATE FUNCTION, or create_temporary_system_function."
            )
            raise UnsupportedSqlError(message)
        self._loaded.append(name)
        self.used.append(name)

    def unload(self, name: str) -> None:
        """Let go of a module; ValidationError if it is not loaded."""
        self._check(name)
        self._loaded.remove(name)
        self.used = [each for each in self.used if each != name]

    def use(self, names: Sequence[str]) -> None:
        """Use some modules, in this order, and no other.

        Raises:
            ValidationError: one is not loaded, or stands there twice.
        """
        for each in names:
            self._check(each)
            if names.count(each) > 1:
                message = f"Module '{each}' appears more than once."
                raise ValidationError(message)
        self.used = list(names)

    def _check(self, name: str) -> None:
        if name not in self._loaded:
            message = f"No module with name '{name}' exists."
            raise ValidationError(message)

    def entries(self) -> list[ModuleEntry]:
        """All that are loaded; those that are used first, in their order."""
        others = [each for each in self._loaded if each not in self.used]
        return [
            *(ModuleEntry(each, used=True) for each in self.used),
            *(ModuleEntry(each, used=False) for each in others),
        ]
