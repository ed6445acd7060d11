"""TableConfig: the options of a session.

What it is: PyFlink's names over the configuration.
What it is not: a configuration of its own: SET and ``get_config().set`` change the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from millstream.configuration import options

if TYPE_CHECKING:
    from millstream.configuration.configuration import Configuration

__all__ = ["TableConfig"]


class TableConfig:
    """The options of a session."""

    def __init__(self, configuration: Configuration) -> None:
        """Made by ``TableEnvironment.get_config``."""
        self._configuration = configuration

    def get(self, key: str, default_value: str) -> str:
        """The value of an option as text."""
        return self._configuration.get_string(key, default_value)

    def set(self, key: str, value: str) -> Self:
        """Set an option."""
        self._configuration.set_string(key, value)
        return self

    def get_local_timezone(self) -> str:
        """The time zone of TIMESTAMP_LTZ."""
        return self._configuration.get(options.LOCAL_TIME_ZONE)

    def set_local_timezone(self, timezone_id: str) -> None:
        """Set the time zone of TIMESTAMP_LTZ."""
        self._configuration.set_string(options.LOCAL_TIME_ZONE.key, timezone_id)

    def get_configuration(self) -> Configuration:
        """The configuration itself."""
        return self._configuration

    def add_configuration(self, configuration: Configuration) -> None:
        """Add options."""
        self._configuration.add_all(configuration)
