"""An option: a configuration key with its type, default and meaning.

What it is: how what was set for a key is read, and refused.

What it is not: the options (``configuration/options.py``).

Read next: ``configuration/parsing.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.configuration.redaction import REDACTED, is_secret
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from millstream.entry_points import Extensions

__all__ = ["ConfigOption"]

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
