"""``millstream ui``: the web UI for running jobs of this machine, and for jobs that have ended."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from millstream.checkpoint.local_storage import seal_of
from millstream.checkpoint.storages import open_storage
from millstream.cli.job_targets import Access, client_of
from millstream.errors import ConfigurationError
from millstream.execution.announcements import announced_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.rest.server import RestServer


def run_ui(directories: Sequence[str], port: str, key_file: str = "") -> int:
    """Serve the web UI to this machine until it is interrupted.

    Args:
        directories: checkpoint directories, whose jobs are shown although they have ended.
        port: a port, or a range.
        key_file: the key with which the directories are signed.

    Returns:
        0.

    Raises:
        ConfigurationError: starlette or uvicorn is not installed, or no port is free.
        CheckpointError: a directory is not one of a job.
    """
    server = ui_server(directories, port, key_file)
    server.start()
    print(f"Web UI: {server.url}")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return 0
    finally:
        server.close()
    return 0


def ui_server(directories: Sequence[str], port: str, key_file: str = "") -> RestServer:
    """Make the server; arguments and errors as of ``run_ui``."""
    try:
        from millstream.rest.app import make_app
        from millstream.rest.history_server import HistoryServer
        from millstream.rest.operations import Operations
        from millstream.rest.security import secured
        from millstream.rest.server import RestServer
        from millstream.rest.settings import RestSettings
        from millstream.rest.view import Jobs
    except ModuleNotFoundError as error:
        if error.name not in {"starlette", "uvicorn"}:
            raise
        message = "The web UI needs starlette and uvicorn: pip install 'millstream[web]'"
        raise ConfigurationError(message) from error
    from millstream.ports import parse_ports

    storages = [open_storage(each, seal=seal_of(key_file)) for each in directories]
    settings = RestSettings(ports=tuple(parse_ports(port)), is_read_only=True, can_cancel=False)
    history = HistoryServer(storages, _running)
    history.read()
    app = make_app(history.endpoints(), Jobs(), settings, Operations(0.0))
    return RestServer(secured(app, settings), settings, title="web UI")


def _running() -> Mapping[str, Callable[[str, bool], Any]]:
    """The jobs of this user on this machine that have a REST API."""
    found: dict[str, Callable[[str, bool], Any]] = {}
    for job in announced_jobs():
        client = client_of(job, Access())
        if client is not None:
            found[job.job_id] = lambda path, is_text, client=client: (  # type: ignore[misc]
                client.text(path) if is_text else client.get(path)
            )
    return found
