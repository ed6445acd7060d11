"""The servers of this process: one for all jobs with the same settings, until the last ends."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from millstream.logs import end_log
from millstream.rest import (
    applications,
    checkpoints,
    configuration,
    logs,
    metrics,
    overview,
    slots,
    stacks,
    subtasks,
    vertices,
)
from millstream.rest.app import make_app
from millstream.rest.health import health_routes
from millstream.rest.operations import Operations
from millstream.rest.security import secured
from millstream.rest.server import Budget, RestServer
from millstream.rest.settings import rest_settings
from millstream.rest.view import Jobs

if TYPE_CHECKING:
    from millstream.configuration.configuration import Configuration
    from millstream.rest.app import Endpoint
    from millstream.rest.settings import RestSettings
    from millstream.rest.view import JobView

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *overview.ENDPOINTS,
    *applications.ENDPOINTS,
    *vertices.ENDPOINTS,
    *subtasks.ENDPOINTS,
    *metrics.ENDPOINTS,
    *checkpoints.ENDPOINTS,
    *configuration.ENDPOINTS,
    *slots.ENDPOINTS,
    *stacks.ENDPOINTS,
    *logs.ENDPOINTS,
)


_POLL: Final = 0.05
#: Seconds that a server waits, after its last job, for clients that have started an operation and
#: have not read its result.
_LINGER: Final = 10.0


class JobServer:
    """A server and the jobs that it shows.

    Args:
        settings: where it listens, and who may use it.
    """

    def __init__(self, settings: RestSettings) -> None:
        self.settings = settings
        self.jobs = Jobs(settings.history)
        self.operations = Operations(settings.store_duration / 1000)
        budget = Budget()
        app = make_app(
            ENDPOINTS,
            self.jobs,
            settings,
            self.operations,
            more=health_routes(self.jobs),
            budget=budget,
        )
        self.server = RestServer(secured(app, settings), settings, budget)

    def end(self, job_id: str) -> None:
        """Note that a job ends; the server is closed if no other job of it runs.

        Does not wait for clients: a thread does, which keeps the process alive.
        """
        with _lock:
            if not self.jobs.ended(job_id):
                return
            _servers.pop(self.settings, None)
            if not _servers:
                end_log()
        if self.operations.are_read:
            self.server.close()
            return
        threading.Thread(target=self._linger, name="millstream-rest-end", daemon=False).start()

    def close_unused(self) -> None:
        """Close the server if it has never had a job."""
        with _lock:
            if self.jobs.all():
                return
            _servers.pop(self.settings, None)
        self.server.close()

    def _linger(self) -> None:
        deadline = time.monotonic() + _LINGER
        while not self.operations.are_read and time.monotonic() < deadline:
            time.sleep(_POLL)
        self.server.close()


def servers() -> list[JobServer]:
    """Return the servers of this process."""
    with _lock:
        return list(_servers.values())


_servers: Final[dict[RestSettings, JobServer]] = {}
_lock: Final = threading.Lock()


def serve(view: JobView) -> JobServer:
    """Show a job in the REST API that its options describe, which is started if it does not run.

    Raises:
        ConfigurationError: it cannot be started.
    """
    with _lock:
        found = _server_of(view.configuration)
        found.jobs.add(view)
        return found


def serve_standby(configuration: Configuration) -> JobServer:
    """Start the REST API of a job that this driver may run later; it shows no job until then.

    Raises:
        ConfigurationError: it cannot be started.
    """
    with _lock:
        return _server_of(configuration)


def _server_of(configuration: Configuration) -> JobServer:
    settings = rest_settings(configuration)
    found = _servers.get(settings)
    if found is None:
        found = JobServer(settings)
        found.server.start()
        _servers[settings] = found
    return found
