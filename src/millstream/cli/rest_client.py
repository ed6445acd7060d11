"""Requests of the commands to a REST API: that of a job, or a SQL gateway."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.errors import MillstreamError

_PATIENCE: Final = 15.0
_UNAUTHORIZED: Final = 401
_NOT_FOUND: Final = 404


class RestClient:
    """A client of one REST API; subclasses name another one in their errors.

    Args:
        address: of the API, such as "http://127.0.0.1:8081".
        token: that it asks for; empty: none.
        certificate: a PEM file with the API's own certificate; empty: one of a known authority.
    """

    #: What errors call the API, and what they advise if it does not answer.
    service = "REST API"
    advice = (
        "The driver may have ended, or be restarting; `millstream list` shows what runs on this"
        " machine"
    )

    def __init__(self, address: str, token: str = "", certificate: str = "") -> None:
        self.address = address.rstrip("/")
        self._token = token
        self._context: ssl.SSLContext | None = None
        if self.address.startswith("https:"):
            self._context = ssl.create_default_context(cafile=certificate or None)
            # The certificate itself is known; the driver is asked for by its address.
            self._context.check_hostname = not certificate

    def get(self, path: str, otherwise: Any = None, body: dict[str, Any] | None = None) -> Any:
        """Return the JSON at a path.

        Args:
            path: such as "jobs/overview".
            otherwise: what to return if there is nothing; None: that is an error.
            body: what the API wants to know beside the path.

        Raises:
            JobError: there is nothing, or the API cannot be asked.
        """
        content = self._request("GET", path, body, is_optional=otherwise is not None)
        return otherwise if content is None else json.loads(content)

    def text(self, path: str) -> str:
        """Return the text at a path; raises as ``get``."""
        return (self._request("GET", path) or b"").decode(errors="replace")

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send JSON and return what comes back; raises as ``get``."""
        return json.loads(self._request("POST", path, body) or b"{}")

    def patch(self, path: str) -> None:
        """Change what is at a path; raises as ``get``."""
        self._request("PATCH", path)

    def delete(self, path: str) -> None:
        """Delete what is at a path; raises as ``get``."""
        self._request("DELETE", path)

    def _request(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        is_optional: bool = False,
    ) -> bytes | None:
        request = urllib.request.Request(  # noqa: S310 - the address begins with http
            f"{self.address}/{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"} if body is not None else {},
            method=method,
        )
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        # A proxy of the environment is for other machines than this network's drivers.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._context)
        )
        try:
            with opener.open(request, timeout=_PATIENCE) as answer:
                found: bytes = answer.read()
                return found
        except urllib.error.HTTPError as error:
            if error.code == _NOT_FOUND and is_optional:
                return None
            raise self.refusal(error.code, _reasons(error)) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            message = (
                f"the {self.service} at {self.address} does not answer: {reason}. {self.advice}"
            )
            raise JobError(message) from None

    def refusal(self, status: int, reasons: Sequence[str]) -> MillstreamError:
        """Return the error of a request that the API refuses.

        Args:
            status: of the response.
            reasons: the errors that it lists.
        """
        hint = " (--token-file FILE)" if status == _UNAUTHORIZED else ""
        return JobError(f"the {self.service} at {self.address} refuses: {'; '.join(reasons)}{hint}")


def _reasons(error: urllib.error.HTTPError) -> list[str]:
    content = error.read()
    try:
        return [str(each) for each in json.loads(content)["errors"]]
    except (ValueError, KeyError, TypeError):
        return [content.decode(errors="replace").strip()[:200] or error.reason]
