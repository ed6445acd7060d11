"""TableConfig: the session's options; SET and ``get_config().set`` change the same values."""

from __future__ import annotations

import datetime as dt
from typing import Final, Self

from millstream.configuration import options
from millstream.configuration.configuration import Configuration
from millstream.table.sql_dialect import SqlDialect

_DIALECT: Final = "table.sql-dialect"
_CODE_LENGTH: Final = "table.generated-code.max-length"


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

    def get_idle_state_retention(self) -> dt.timedelta:
        """After how long state that nobody has touched goes; 0: never."""
        return dt.timedelta(milliseconds=self._configuration.get(options.STATE_TTL))

    def set_idle_state_retention(self, duration: dt.timedelta) -> None:
        """Set after how long state that nobody has touched goes."""
        milliseconds = duration // dt.timedelta(milliseconds=1)
        self._configuration.set_string(options.STATE_TTL.key, f"{milliseconds} ms")

    def get_sql_dialect(self) -> SqlDialect:
        """The dialect of statements."""
        return SqlDialect[self._configuration.get_string(_DIALECT, "default").upper()]

    def set_sql_dialect(self, sql_dialect: SqlDialect) -> None:
        """Set the dialect of statements; one that is not the default is refused by statements."""
        self._configuration.set_string(_DIALECT, sql_dialect.name.lower())

    def get_max_generated_code_length(self) -> int:
        """Return what was set, 4000 before."""
        return self._configuration.get_integer(_CODE_LENGTH, 4000)

    def set_max_generated_code_length(self, max_generated_code_length: int) -> None:
        """Keep a number that has no effect: no code of the JVM is generated."""
        self._configuration.set_integer(_CODE_LENGTH, max_generated_code_length)

    def get_python_executable(self) -> str:
        """The Python of the workers; empty: that of this process."""
        return self._configuration.get(options.PYTHON_EXECUTABLE) or ""

    def set_python_executable(self, python_exec: str) -> None:
        """Set the Python of the workers."""
        self._configuration.set(options.PYTHON_EXECUTABLE, str(python_exec))

    def to_map(self) -> dict[str, str]:
        """All options that are set, as texts."""
        return self._configuration.to_dict()

    @staticmethod
    def get_default() -> TableConfig:
        """Options of which none is set."""
        return TableConfig(Configuration())

    def get_configuration(self) -> Configuration:
        """The configuration itself."""
        return self._configuration

    def add_configuration(self, configuration: Configuration) -> None:
        """Add options."""
        self._configuration.add_all(configuration)
