"""Every request is checked before anything handles it, and nothing is open beyond the machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from millstream.common import Configuration
from millstream.errors import ConfigurationError
from millstream.rest.security import secured
from millstream.rest.settings import RestSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TOKEN = "0123456789abcdef0123456789abcdef"


async def _app(scope: Any, receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"handled"})


def _request(
    settings: RestSettings,
    path: str = "/jobs",
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> tuple[int, dict[str, str]]:
    """Status and headers; 0 without a response."""
    given = {"host": "localhost:8081", **(headers or {})}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "scheme": "http",
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(secured(_app, settings)(scope, receive, send))  # type: ignore[arg-type]
    if not sent:
        return 0, {}
    return sent[0]["status"], {k.decode(): v.decode() for k, v in sent[0]["headers"]}


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8081", "127.0.0.1:8081", "[::1]:8081", "10.1.2.3", "LOCALHOST"]
)
def test_names_of_this_server_are_served(host: str) -> None:
    assert _request(RestSettings(), headers={"host": host})[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8081", "localhost.evil.example", "", "[::1", "a@b:1"]
)
def test_dns_rebinding_is_refused(host: str) -> None:
    for path in ("/jobs", "/", "/healthz", "/static/app.js"):
        assert _request(RestSettings(), path, headers={"host": host})[0] == 403


def test_several_hosts_are_refused() -> None:
    scope_headers = {"Host": "evil.example"}  # beside the one in lower case
    assert _request(RestSettings(), headers=scope_headers)[0] == 400


_CROSS = (
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": "http://localhost:9999"},
    {"origin": "ftp://localhost:8081"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"origin": "http://localhost:8081", "sec-fetch-site": "cross-site"},
)


@pytest.mark.parametrize("headers", _CROSS)
@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT", "DELETE"])
def test_changes_from_other_origins_are_refused(method: str, headers: Mapping[str, str]) -> None:
    assert _request(RestSettings(), "/jobs/1/stop", method, headers)[0] == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://localhost:8081", "sec-fetch-site": "same-origin"},
        {"origin": "http://localhost:8081"},
        {"sec-fetch-site": "none"},
    ],
)
def test_changes_from_here_and_from_programs_are_served(headers: Mapping[str, str]) -> None:
    assert _request(RestSettings(), "/jobs/1/stop", "POST", headers)[0] == 200


@pytest.mark.parametrize("name", ["yarn-cancel", "yarn-stop"])
def test_a_get_that_changes_needs_proof_of_its_origin(name: str) -> None:
    path = f"/jobs/1/{name}"
    for headers in ({}, {"sec-fetch-site": "none"}, *_CROSS):
        assert _request(RestSettings(), path, headers=headers)[0] == 403
    assert _request(RestSettings(), path, headers={"sec-fetch-site": "same-origin"})[0] == 200
    settings = RestSettings(token=TOKEN)
    assert _request(settings, path, headers={"authorization": f"Bearer {TOKEN}"})[0] == 200


@pytest.mark.parametrize("given", ["", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "ä"])
def test_a_wrong_token_is_refused(given: str) -> None:
    settings = RestSettings(token=TOKEN)
    status, headers = _request(settings, headers={"authorization": given} if given else {})
    assert (status, headers["www-authenticate"]) == (401, "Bearer")


def test_the_token_opens_and_static_files_are_open() -> None:
    settings = RestSettings(token=TOKEN)
    assert _request(settings, headers={"authorization": f"bearer {TOKEN}"})[0] == 200
    for path in ("/", "/static/app.js", "/healthz", "/readyz"):
        assert _request(settings, path)[0] == 200
    for path in ("/v1/jobs", "/static", "/healthz/", "//", "/staticx", "/config", "/jobs/static/"):
        assert _request(settings, path)[0] == 401


def test_read_only_refuses_changes() -> None:
    settings = RestSettings(is_read_only=True)
    assert _request(settings, method="GET")[0] == 200
    assert _request(settings, "/jobs/1", "PATCH")[0] == 403
    same = {"sec-fetch-site": "same-origin"}
    assert _request(settings, "/v1/jobs/1/yarn-cancel", headers=same)[0] == 403


def test_pages_are_protected_and_long_bodies_are_dropped() -> None:
    _, headers = _request(RestSettings())
    assert headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert not [name for name in headers if name.startswith("access-control")]
    assert _request(RestSettings(), method="POST", body=b"x" * (1 << 20))[0] == 200
    assert _request(RestSettings(), method="POST", body=b"x" * ((1 << 20) + 1))[0] == 0


def _settings(host: str = "127.0.0.1", /, **given: str) -> RestSettings:
    configuration = Configuration()
    for name, value in given.items():
        configuration.set_string(name, value)
    return RestSettings.of(configuration, host, "0")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "machine.example"])
def test_nothing_listens_beyond_the_machine_without_token_and_tls(host: str) -> None:
    with pytest.raises(ConfigurationError, match="token"):
        _settings(host)
    with pytest.raises(ConfigurationError, match="TLS"):
        _settings(host, **{"millstream.rest.token": TOKEN})
    with pytest.raises(ConfigurationError, match=r"needs millstream\.rest\.certificate"):
        _settings(host, **{"security.ssl.rest.enabled": "true"})
    tls = {"security.ssl.rest.enabled": "true", "millstream.rest.certificate": "/c.pem"}
    with pytest.raises(ConfigurationError, match="token"):
        _settings(host, **tls)
    assert _settings(host, **tls, **{"millstream.rest.token": TOKEN}).host == host


def test_tokens_come_from_files_and_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    settings = _settings(**{"millstream.rest.token-file": str(file)})
    assert settings.token == TOKEN
    assert TOKEN not in repr(settings)
    file.write_text("short")
    with pytest.raises(ConfigurationError, match="at least 16 characters"):
        _settings(**{"millstream.rest.token-file": str(file)})
    with pytest.raises(ConfigurationError, match="cannot be read"):
        _settings(**{"millstream.rest.token-file": str(tmp_path / "missing")})


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "certificate.pem"
    file.write_text("nothing")
    tls = {"security.ssl.rest.enabled": "true", "millstream.rest.certificate": str(file)}
    with pytest.raises(ConfigurationError, match=r"certificate\.pem"):
        _settings(**tls).tls()
