"""The thread that serves HTTP beside a job, and how much of a processor it may take."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING, Final

import uvicorn
from starlette.responses import PlainTextResponse

from millstream import ports
from millstream.errors import ConfigurationError
from millstream.rest.health import LIVENESS, READINESS

if TYPE_CHECKING:
    import socket

    from starlette.types import ASGIApp, Receive, Scope, Send

    from millstream.rest.settings import RestSettings

_LOG: Final = logging.getLogger("millstream")
#: Seconds until a started server answers, and until one that ends has answered what it reads.
_PATIENCE: Final = 10.0
_GRACE: Final = 2
#: Requests at a time: more get 503, but for probes.
_MOST_REQUESTS: Final = 1000


class Budget:
    """Limits the processor time of a server, so that its clients cannot slow the job.

    A burst is answered at once; who asks more in the long run waits.

    Args:
        share: of one processor.
        burst: seconds of processor time.
    """

    def __init__(self, share: float = 0.02, burst: float = 2.0) -> None:
        self.share, self.burst = share, burst
        self._left = burst
        self._filled = time.monotonic()
        #: Of all threads that have worked for it, in seconds.
        self.spent = 0.0
        self._lock = threading.Lock()

    def spend(self, seconds: float) -> None:
        """Note processor time that was used."""
        with self._lock:
            self.spent += seconds
            self._left -= seconds

    def wait(self) -> float:
        """Return the seconds until there is time for a request."""
        with self._lock:
            now = time.monotonic()
            self._left = min(self.burst, self._left + (now - self._filled) * self.share)
            self._filled = now
            return max(0.0, -self._left / self.share)


class RestServer:
    """Serves an ASGI application from a thread of its own.

    Args:
        app: the application, ``secured``.
        settings: where it listens.
        budget: of processor time; None: no limit.
        title: for its lines in the log.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: RestSettings,
        budget: Budget | None = None,
        title: str = "REST API",
    ) -> None:
        self._settings, self._title = settings, title
        self.budget = budget
        config = uvicorn.Config(
            app if budget is None else _paced(app, budget),
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_GRACE,
            # With a budget it is limited below: this one would refuse probes, too.
            limit_concurrency=_MOST_REQUESTS if budget is None else None,
            h11_max_incomplete_event_size=1 << 16,
            ws="none",
        )
        tls = settings.tls()
        if tls is not None:
            config.load()
            config.ssl = tls
        self._config = config
        self._server = uvicorn.Server(config)
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="millstream-rest", daemon=True)

    @property
    def port(self) -> int:
        """Return the port that it listens at."""
        if self._socket is None:
            message = "the server was not started"
            raise RuntimeError(message)
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Return its address, without a slash at the end."""
        host = self._settings.host
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104
        shown = f"[{shown}]" if ":" in shown and not shown.startswith("[") else shown
        return f"{'https' if self._settings.certificate else 'http'}://{shown}:{self.port}"

    def start(self) -> None:
        """Listen, and answer in a thread.

        Raises:
            ConfigurationError: no port is free.
        """
        settings = self._settings
        try:
            self._socket = ports.listen(settings.host, settings.ports)
        except OSError as error:
            first, last = settings.ports[0], settings.ports[-1]
            which = f"{first}" if first == last else f"{first}-{last}"
            message = (
                f"the {self._title} cannot listen at {settings.host}, port {which}: {error}."
                " Give it a range, such as rest.bind-port: 8081-8099"
            )
            raise ConfigurationError(message) from error
        self._thread.start()
        deadline = time.monotonic() + _PATIENCE
        while not self._server.started and self._thread.is_alive():
            if time.monotonic() > deadline:
                break
            time.sleep(0.005)
        _LOG.info("%s: %s", self._title, self.url)

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket] if self._socket is not None else None)
        except Exception:  # noqa: BLE001 - the job must not end with it
            _LOG.exception("the %s has ended; the job continues", self._title)

    def close(self) -> None:
        """End: what is being answered has a moment for it."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(_PATIENCE)
        if self._socket is not None:
            ports.close(self._socket)


def _paced(app: ASGIApp, budget: Budget) -> ASGIApp:
    """Have requests wait where the budget is used up."""
    used = time.thread_time()
    running = 0

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal used, running
        # All that this thread has done since the last request, not only for this one.
        now = time.thread_time()
        # A first call comes from the thread that serves, which began after this was made.
        budget.spend(max(0.0, now - used))
        used = now
        if scope["type"] == "http" and scope["path"] in {LIVENESS, READINESS}:
            await app(scope, receive, send)
            return
        if running >= _MOST_REQUESTS:
            await PlainTextResponse("too many requests\n", 503)(scope, receive, send)
            return
        running += 1
        try:
            while (wait := budget.wait()) > 0:  # noqa: ASYNC110 - time passes by itself
                await asyncio.sleep(wait)
            await app(scope, receive, send)
        finally:
            running -= 1

    return respond
