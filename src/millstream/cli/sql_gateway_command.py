"""``millstream sql-gateway``: the SQL gateway as a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping


def run_sql_gateway(given: Mapping[str, str]) -> int:
    """Serve SQL to remote clients until the process is interrupted or terminated.

    Jobs that still run then are cancelled. A job with ``execution.checkpointing.dir`` continues
    from its last checkpoint when its statement is executed again.

    Args:
        given: options of the command line.

    Returns:
        0.

    Raises:
        ConfigurationError: starlette or uvicorn is not installed, an option is invalid, no port is
            free, or the gateway would listen beyond this machine without token or TLS.
    """
    try:
        from millstream.sql_gateway.gateway import SqlGateway
    except ModuleNotFoundError as error:
        if error.name not in {"starlette", "uvicorn"}:
            raise
        message = "The SQL gateway needs starlette and uvicorn: pip install 'millstream[web]'"
        raise ConfigurationError(message) from error
    from millstream.configuration.configuration import Configuration
    from millstream.configuration.options import PROGRESS
    from millstream.datastream.running_jobs import end_of_program
    from millstream.logs import configure_driver

    configuration = Configuration({PROGRESS.key: "off", **given})
    configure_driver(configuration, command=True)
    SqlGateway(configuration).run()
    end_of_program(failed=True)
    return 0
