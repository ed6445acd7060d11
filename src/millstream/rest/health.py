"""Probes: whether the driver lives, and whether its jobs run; nothing of a job is in the response.

They need no token, and do not wait for the processor time of other requests: an orchestrator kills
a driver whose probe is late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from millstream.rest.view import Jobs

LIVENESS: Final = "/healthz"
READINESS: Final = "/readyz"


def health_routes(jobs: Jobs) -> list[Route]:
    """Make the routes of the two probes.

    Args:
        jobs: those of the server; one without any is that of a standby.
    """

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(_: Request) -> Response:
        if jobs.are_ready:
            return PlainTextResponse("ok\n")
        return PlainTextResponse("not ready\n", 503)

    return [Route(LIVENESS, healthy, methods=["GET"]), Route(READINESS, ready, methods=["GET"])]
