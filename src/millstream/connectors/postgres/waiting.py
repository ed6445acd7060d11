"""Waiting for a PostgreSQL server, but not for ever.

What it is: connections of psycopg that give up when no answer comes.  libpq itself waits without
end for a server that took the request and then fell silent (a hung process, a firewall or proxy
that drops what it should forward), and ``statement_timeout`` is kept by that very server.
"""

from __future__ import annotations

import functools
import importlib
import math
import time
from typing import TYPE_CHECKING, Any

from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Generator


def driver() -> Any:
    """The module psycopg.

    Raises:
        SinkError: it is not installed.
    """
    try:
        return importlib.import_module("psycopg")
    except ImportError as error:
        message = "PostgreSQL needs the package psycopg: pip install 'millstream[postgres]'"
        raise SinkError(message) from error


def limit_waiting(session: Any, timeout: float, end: float = math.inf) -> None:
    """Let statements of a connection wait no longer.

    Args:
        session: made by ``limited_connection()``.
        timeout: seconds that the server may be silent.
        end: when waiting is over at the latest, by ``time.monotonic``.
    """
    session.millstream_limits = (timeout, end)


@functools.cache
def limited_connection() -> Any:
    """The class of the connections, with psycopg's ``connect``."""
    psycopg = driver()

    class LimitedConnection(psycopg.Connection):  # type: ignore[misc, name-defined]
        """A connection that is closed, and raises OperationalError, when no answer comes."""

        millstream_limits = (math.inf, math.inf)

        def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
            return super().wait(self._limited(gen), *args, **kwargs)

        def _limited(self, gen: Any) -> Generator[Any, Any, Any]:
            """The generator, ended when it is time; psycopg wakes it ten times a second."""
            timeout, end = self.millstream_limits
            heard = time.monotonic()
            try:
                wanted = next(gen)
                while True:
                    ready = yield wanted
                    now = time.monotonic()
                    if ready:
                        heard = now
                    if now >= min(heard + timeout, end):
                        self._give_up(now - heard)
                    wanted = gen.send(ready)
            except StopIteration as stop:
                return stop.value

        def _give_up(self, silent: float) -> None:
            # Closed first: ending a COPY, say, would wait once more.
            self.pgconn.finish()
            message = (
                f"no answer from the server for {silent:.1f} s; the connection was given up, and"
                " what was sent last may or may not be done"
            )
            raise psycopg.OperationalError(message)

    return LimitedConnection
