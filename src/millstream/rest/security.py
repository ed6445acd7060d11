"""Who may ask: token, DNS rebinding, CSRF, read-only mode, and headers that browsers obey.

``secured`` wraps any ASGI application, so that no route can be without these checks.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from millstream.rest.settings import RestSettings

_READING: Final = frozenset({"GET", "HEAD"})
#: Flink has these two for browsers and proxies that can only GET.
_CHANGES_BY_GET: Final = re.compile(r"/(yarn-cancel|yarn-stop)/?$")
#: What needs no token: nothing of a job is in it.
OPEN_PATHS: Final = ("/", "/static/", "/healthz", "/readyz")
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
#: Bytes of a request's body: the longest that a client of the API sends are some hundred.
_LONGEST_BODY: Final = 1 << 20


class Refused(Exception):  # noqa: N818 - it is an answer
    """A request is refused.

    Args:
        status: of HTTP.
        message: why, and what to do.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def secured(
    app: ASGIApp,
    settings: RestSettings,
    *,
    open_paths: Collection[str] = OPEN_PATHS,
    policy: str = _POLICY,
    longest_body: int = _LONGEST_BODY,
) -> ASGIApp:
    """Return an application that lets through what the settings allow, and refuses the rest.

    Args:
        app: any ASGI application.
        settings: who may do what.
        open_paths: need no token; one that ends with a slash stands for all below it.
        policy: the Content-Security-Policy of its pages.
        longest_body: bytes of a request.
    """
    protection = _headers(policy)

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message.get("headers", ())}
                more = [each for each in protection if each[0] not in given]
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        try:
            check(scope, settings, open_paths)
        except Refused as refusal:
            await _refuse(send_protected, refusal)
            return
        await app(scope, _limited(receive, longest_body), send_protected)

    return respond


def _headers(policy: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cache-control", b"no-store"),
    ]


def check(scope: Scope, settings: RestSettings, open_paths: Collection[str]) -> None:
    """Check a request before anything of it is handled.

    Cases, in this order:

    1. Its Host is neither an IP address nor a known name -> refused: a page of somebody else has
       had its name resolve to this machine (DNS rebinding).
    2. It is not a GET, comes from a browser, and from another origin -> refused (CSRF).
    3. A token is set, and it has another one or none -> refused, except for open paths.
    4. It would change something in read-only mode -> refused.

    Args:
        scope: of ASGI.
        settings: who may do what.
        open_paths: as of ``secured``.

    Raises:
        Refused: it must not be handled.
    """
    # Latin-1, as in HTTP: any bytes can be read.
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    if sum(name == b"host" for name, _ in scope["headers"]) > 1:
        message = "the request has several Host headers"
        raise Refused(400, message)
    host = headers.get("host", "")
    _check_host(host, settings)
    path = scope["path"]
    by_get = changes_by_get(path)
    changes = scope["method"] not in _READING or by_get
    if changes:
        _check_origin(headers, scope["scheme"], host, needs_proof=by_get and not settings.token)
    if settings.token and not _is_open(path, open_paths):
        _check_token(headers.get("authorization", ""), settings.token)
    if changes and settings.is_read_only:
        message = "the server is read-only (millstream.rest.read-only)"
        raise Refused(403, message)


def changes_by_get(path: str) -> bool:
    """Return whether a GET of this path changes something."""
    return _CHANGES_BY_GET.search(path) is not None


def _check_host(host: str, settings: RestSettings) -> None:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    if name in settings.names:
        return
    try:
        ipaddress.ip_address(name)
    except ValueError:
        message = (
            f"{host[:100]!r} is not a name of this server: add it to millstream.rest.allowed-hosts"
            " if it is that of a proxy"
        )
        raise Refused(403, message) from None


def _check_origin(headers: dict[str, str], scheme: str, host: str, *, needs_proof: bool) -> None:
    """Refuse what a page of another origin sends; other clients send neither header.

    Args:
        headers: of the request.
        scheme: of the server; a proxy may have another one, so only the host is compared with TLS.
        host: the Host header.
        needs_proof: a browser may leave out both headers.
    """
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None:
        found = urlsplit(origin) if origin != "null" else None
        is_same = found is not None and found.netloc == host
        is_same = is_same and found is not None and found.scheme in {scheme, "https"}
    else:
        is_same = site == "same-origin" or (site in {None, "none"} and not needs_proof)
    if not is_same or site in {"cross-site", "same-site"}:
        message = "a page of another origin must not change anything here"
        raise Refused(403, message)


def _is_open(path: str, open_paths: Collection[str]) -> bool:
    return any(
        path == each or (len(each) > 1 and each.endswith("/") and path.startswith(each))
        for each in open_paths
    )


def _check_token(authorization: str, token: str) -> None:
    scheme, _, given = authorization.partition(" ")
    given_bytes = given.strip().encode("latin-1")
    if scheme.lower() != "bearer" or not hmac.compare_digest(given_bytes, token.encode()):
        message = "a token is needed: send it as 'Authorization: Bearer TOKEN'"
        raise Refused(401, message)


async def _refuse(send: Send, refusal: Refused) -> None:
    body = json.dumps({"errors": [str(refusal)]}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if refusal.status == 401:  # noqa: PLR2004
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _limited(receive: Receive, longest: int) -> Receive:
    """Read at most so many bytes of a body; more end the connection."""
    read = 0

    async def receive_limited() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > longest:
            return {"type": "http.disconnect"}
        return message

    return receive_limited
