"""EnvironmentSettings: configuration, first catalog and database of a TableEnvironment."""

from __future__ import annotations

from typing import Self

from millstream.configuration.configuration import Configuration
from millstream.configuration.options import BUILTIN_CATALOG, BUILTIN_DATABASE, RUNTIME_MODE


class EnvironmentSettings:
    """Settings of a TableEnvironment; made by ``in_streaming_mode`` or a builder."""

    class Builder:
        """Builds EnvironmentSettings."""

        def __init__(self) -> None:
            self._configuration = Configuration()

        def with_configuration(self, config: Configuration) -> Self:
            """Add options."""
            self._configuration.add_all(config)
            return self

        def in_streaming_mode(self) -> Self:
            """Queries over streams, which is the default."""
            self._configuration.set(RUNTIME_MODE, "STREAMING")
            return self

        def in_batch_mode(self) -> Self:
            """Queries over bounded tables, which give the rows that are there at the end."""
            self._configuration.set(RUNTIME_MODE, "BATCH")
            return self

        def with_built_in_catalog_name(self, built_in_catalog_name: str) -> Self:
            """Name the first catalog."""
            self._configuration.set(BUILTIN_CATALOG, built_in_catalog_name)
            return self

        def with_built_in_database_name(self, built_in_database_name: str) -> Self:
            """Name the first database."""
            self._configuration.set(BUILTIN_DATABASE, built_in_database_name)
            return self

        def build(self) -> EnvironmentSettings:
            """The settings."""
            return EnvironmentSettings(self._configuration)

    def __init__(self, configuration: Configuration) -> None:
        """Use ``in_streaming_mode`` or a builder."""
        self._configuration = configuration

    def get_built_in_catalog_name(self) -> str:
        """The name of the first catalog."""
        return self._configuration.get(BUILTIN_CATALOG)

    def get_built_in_database_name(self) -> str:
        """The name of the first database."""
        return self._configuration.get(BUILTIN_DATABASE)

    def is_streaming_mode(self) -> bool:
        """Return whether queries are over streams; else all input is bounded."""
        return bool(self._configuration.get(RUNTIME_MODE) != "BATCH")

    def get_configuration(self) -> Configuration:
        """The options."""
        return self._configuration

    @staticmethod
    def new_instance() -> EnvironmentSettings.Builder:
        """Start building."""
        return EnvironmentSettings.Builder()

    @staticmethod
    def in_streaming_mode() -> EnvironmentSettings:
        """The default settings."""
        return EnvironmentSettings.Builder().build()

    @staticmethod
    def in_batch_mode() -> EnvironmentSettings:
        """Settings of queries over bounded tables."""
        return EnvironmentSettings.Builder().in_batch_mode().build()
