"""The server of the SQL gateway: where it listens, its sessions, and its end."""

from __future__ import annotations

import logging
import signal
import threading
from typing import TYPE_CHECKING, Final

from millstream.configuration import options
from millstream.rest.security import secured
from millstream.rest.server import RestServer
from millstream.rest.settings import RestSettings
from millstream.sql_gateway.app import LONGEST_BODY, gateway_app
from millstream.sql_gateway.sessions import SessionManager

if TYPE_CHECKING:
    from types import FrameType

    from millstream.configuration.configuration import Configuration

_log: Final = logging.getLogger("millstream")


class SqlGateway:
    """Serves Flink's SQL Gateway REST protocol.

    Who may use it is decided as for the REST API of jobs: only this machine, unless there are a
    token and TLS. Whoever may use it can run any code as the user of the gateway: SQL reads and
    writes files and creates functions in Python.
    """

    def __init__(self, configuration: Configuration) -> None:
        """Prepare the gateway; ``start`` makes it listen.

        Args:
            configuration: its options, which are also what sessions start with.

        Raises:
            ConfigurationError: it would listen beyond this machine without token or TLS.
        """
        settings = RestSettings.of(
            configuration,
            configuration.get(options.SQL_GATEWAY_BIND_ADDRESS),
            configuration.get(options.SQL_GATEWAY_PORT),
        )
        self.sessions = SessionManager(
            configuration,
            idle_timeout=configuration.get(options.SQL_GATEWAY_IDLE_TIMEOUT) / 1000,
            check_interval=configuration.get(options.SQL_GATEWAY_CHECK_INTERVAL) / 1000,
            most=configuration.get(options.SQL_GATEWAY_MAX_SESSIONS),
        )
        app = secured(
            gateway_app(self.sessions), settings, open_paths=(), longest_body=LONGEST_BODY
        )
        self._server = RestServer(app, settings, title="SQL gateway")

    @property
    def url(self) -> str:
        """The address at which it listens."""
        return self._server.url

    def start(self) -> None:
        """Listen.

        Raises:
            ConfigurationError: no port is free.
        """
        self._server.start()

    def close(self) -> None:
        """Stop listening and close all sessions; INSERT jobs go on until the process ends."""
        self._server.close()
        self.sessions.close()

    def run(self) -> None:
        """Listen until the process is interrupted or terminated."""
        stopped = threading.Event()

        def stop(number: int, frame: FrameType | None) -> None:
            del frame
            _log.info("SQL gateway: ending by %s", signal.Signals(number).name)
            stopped.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        self.start()
        try:
            stopped.wait()
        finally:
            self.close()
