"""A client of Confluent's Schema Registry protocol, and the header that it puts before messages.

A message is a zero byte, the id of its schema as four bytes, and the record.  The schema of an id
never changes, so a process asks for it once.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import struct
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit

from millstream.configuration.redaction import redacted_options, redacted_text
from millstream.errors import ConfigurationError, SchemaRegistryError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_HEADER: Final = struct.Struct(">bI")
HEADER_SIZE: Final = _HEADER.size
_CONTENT: Final = "application/vnd.schemaregistry.v1+json"
#: Schemas and ids that a process keeps at most.
_MOST_KEPT: Final = 1000
_UNAUTHORIZED: Final = (401, 403)
_NOT_FOUND: Final = 404
_INCOMPATIBLE: Final = (409, 422)
#: The request may succeed later: too many requests, and errors of servers.
_TOO_MANY: Final = 429
_SERVER: Final = 500
_OK: Final = 300
#: Seconds that an id counts as unknown before the registry is asked again.
_MISSING_SECONDS: Final = 5.0


def schema_id(message: bytes) -> int:
    """Return the id of the schema that a message names.

    Raises:
        ValueError: it has no such header.
    """
    if len(message) < HEADER_SIZE:
        reason = (
            f"it has {len(message)} bytes; a schema registry's header (a zero byte and the schema "
            f"id) has {HEADER_SIZE}"
        )
        raise ValueError(reason)
    magic, found = _HEADER.unpack_from(message)
    if magic:
        reason = (
            f"it begins with the byte {magic & 0xFF:#04x}, not with the magic byte 0x00 of a "
            "schema registry's header; was it written without a registry?"
        )
        raise ValueError(reason)
    return int(found)


def header_of(identifier: int) -> bytes:
    """Return the bytes that stand before each record of a schema."""
    return _HEADER.pack(0, identifier)


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one imports by a name."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as the registry has it.

    Args:
        text: in the form of its kind.
        kind: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        references: the schemas that it imports.
    """

    text: str
    kind: str = "AVRO"
    references: tuple[SchemaReference, ...] = ()

    def body(self) -> dict[str, Any]:
        """Return it as a request has it."""
        found: dict[str, Any] = {"schema": self.text}
        if self.kind != "AVRO":
            found["schemaType"] = self.kind
        if self.references:
            found["references"] = [
                {"name": each.name, "subject": each.subject, "version": each.version}
                for each in self.references
            ]
        return found


@dataclass(frozen=True, slots=True)
class _Missing:
    """What the registry does not have, and the time after which it is asked again."""

    reason: str
    until: float


class _Known:
    """What a process knows of one registry; what was not used for longest goes first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Any, Any] = OrderedDict()
        self._lock = threading.RLock()

    def found(self, key: Any, ask: Callable[[], Any]) -> Any:
        """Return the entry of a key, asked for if there is none.

        Raises:
            ValueError: there is none; the same for some seconds, so that not every record asks.
        """
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or (isinstance(entry, _Missing) and entry.until < time.monotonic()):
                try:
                    entry = ask()
                except ValueError as error:
                    entry = _Missing(str(error), time.monotonic() + _MISSING_SECONDS)
                self._entries[key] = entry
                if len(self._entries) > _MOST_KEPT:
                    self._entries.popitem(last=False)
            self._entries.move_to_end(key)
        if isinstance(entry, _Missing):
            raise ValueError(entry.reason)  # noqa: TRY004 - no type is wrong
        return entry


#: What this process knows of each registry, by its addresses and settings.
_KNOWN: Final[dict[tuple[tuple[str, str], ...], _Known]] = {}

#: Confluent's names of what is applied; all others are refused.
_APPLIED: Final = frozenset(
    {
        "auto.register.schemas",
        "basic.auth.credentials.source",
        "basic.auth.user.info",
        "bearer.auth.credentials.source",
        "bearer.auth.token",
        "http.connect.timeout.ms",
        "http.read.timeout.ms",
        "max.retries",
        "normalize.schemas",
        "retries.max.wait.ms",
        "retries.wait.ms",
        "schema.registry.ssl.key.password",
        "schema.registry.ssl.keystore.location",
        "schema.registry.ssl.keystore.password",
        "schema.registry.ssl.keystore.type",
        "schema.registry.ssl.truststore.location",
        "schema.registry.ssl.truststore.password",
        "schema.registry.ssl.truststore.type",
    }
)


class SchemaRegistryClient:
    """Reads and registers schemas; pickled to the workers.

    Args:
        url: the registry's address, or several with commas between them, which are tried in order.
        properties: by Confluent's names, such as ``basic.auth.user.info``.

    Raises:
        ConfigurationError: an address or a property makes no sense, or is not supported.
    """

    def __init__(self, url: str, properties: Mapping[str, str] | None = None) -> None:
        self._urls = [each.strip().rstrip("/") for each in url.split(",") if each.strip()]
        self._properties = dict(properties or {})
        for each in self._urls:
            if urlsplit(each).scheme not in {"http", "https"} or not urlsplit(each).hostname:
                message = (
                    f"the schema registry's url is {redacted_text(each)!r}; it must be such as "
                    "'http://host:8081'"
                )
                raise ConfigurationError(message)
        if not self._urls:
            message = "the schema registry needs a url, such as 'http://host:8081'"
            raise ConfigurationError(message)
        unknown = sorted(set(self._properties) - _APPLIED)
        if unknown:
            message = (
                f"the schema registry's property '{unknown[0]}' is not supported; supported are "
                f"{', '.join(sorted(_APPLIED))}"
            )
            raise ConfigurationError(message)
        self._authorization()
        self._numbers = {
            name: self._number(name, default)
            for name, default in (
                ("max.retries", 3),
                ("retries.wait.ms", 500),
                ("retries.max.wait.ms", 20_000),
                ("http.connect.timeout.ms", 10_000),
                ("http.read.timeout.ms", 60_000),
            )
        }

    def __repr__(self) -> str:
        return f"<schema registry {self}: {redacted_options(self._properties)}>"

    def __str__(self) -> str:
        return ", ".join(map(redacted_text, self._urls))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SchemaRegistryClient) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[tuple[str, str], ...]:
        return (("url", ",".join(self._urls)), *sorted(self._properties.items()))

    # -- schemas -----------------------------------------------------------------------------------

    def schema(self, identifier: int, form: str = "") -> RegisteredSchema:
        """Return the schema of an id.

        Args:
            identifier: as messages name it.
            form: of the text; "serialized" is that of Protobuf's descriptors.

        Raises:
            ValueError: the registry has no such id.
            SchemaRegistryError: it does not answer.
            ConfigurationError: it refuses the credentials.
        """
        query = f"?format={form}" if form else ""

        def ask() -> RegisteredSchema:
            path = f"/schemas/ids/{identifier}{query}"
            return _registered(self._request("GET", path, f"schema id {identifier}"))

        found: RegisteredSchema = self._kept(("id", identifier, form), ask)
        return found

    def referenced(self, reference: SchemaReference, form: str = "") -> RegisteredSchema:
        """Return a schema that another one imports; raises as ``schema``."""
        query = f"?format={form}" if form else ""
        path = f"/subjects/{quote(reference.subject, safe='')}/versions/{reference.version}{query}"

        def ask() -> RegisteredSchema:
            what = f"version {reference.version} of subject '{reference.subject}'"
            return _registered(self._request("GET", path, what))

        found: RegisteredSchema = self._kept(("reference", reference, form), ask)
        return found

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """Register a schema under a subject, unless it is there, and return its id.

        Raises:
            ConfigurationError: it is not compatible with those of the subject, or the registry
                refuses it or the credentials.
            SchemaRegistryError: the registry does not answer.
        """
        found: int = self._kept(("subject", subject, schema), lambda: self._posted(subject, schema))
        return found

    def version(self, subject: str, schema: RegisteredSchema) -> int:
        """Register a schema that others import, and return its version; raises as ``register``."""
        self.register(subject, schema)
        path = f"/subjects/{quote(subject, safe='')}"

        def ask() -> int:
            return int(
                self._request("POST", path, f"subject '{subject}'", schema.body())["version"]
            )

        found: int = self._kept(("version", subject, schema), ask)
        return found

    def _posted(self, subject: str, schema: RegisteredSchema) -> int:
        adds = self._properties.get("auto.register.schemas", "true").lower() == "true"
        path = f"/subjects/{quote(subject, safe='')}" + ("/versions" if adds else "")
        if self._properties.get("normalize.schemas", "").lower() == "true":
            path += "?normalize=true"
        try:
            answer = self._request("POST", path, f"subject '{subject}'", schema.body())
        except ValueError as error:
            message = f"{error}; auto.register.schemas is false, so register its schema first"
            raise ConfigurationError(message) from error
        return int(answer["id"])

    def _kept(self, key: Any, ask: Callable[[], Any]) -> Any:
        return _KNOWN.setdefault(self._key, _Known()).found(key, ask)

    # -- requests ----------------------------------------------------------------------------------

    def _request(
        self, method: str, path: str, what: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return what the registry answers.

        Raises:
            ValueError: it has nothing of this name.
            SchemaRegistryError, ConfigurationError: as the methods above.
        """
        content = None if body is None else json.dumps(body).encode()
        wait = self._numbers["retries.wait.ms"] / 1000
        attempts = self._numbers["max.retries"] + 1
        for attempt in range(attempts):
            failed = ""
            for url in self._urls:
                try:
                    status, text = self._sent(url, method, path, content)
                except (OSError, http.client.HTTPException) as error:
                    failed = f"{type(error).__name__}: {error}"
                    continue
                if status != _TOO_MANY and status < _SERVER:
                    return self._answer(status, text, what)
                failed = f"it answers {status} {_reason(text)}"
            if attempt + 1 < attempts:
                time.sleep(wait)
                wait = min(2 * wait, self._numbers["retries.max.wait.ms"] / 1000)
        message = (
            f"the schema registry {self} cannot be asked for {what} after {attempts} attempts: "
            f"{redacted_text(failed)}"
        )
        raise SchemaRegistryError(message)

    def _answer(self, status: int, text: bytes, what: str) -> dict[str, Any]:
        reason = f"{status} {_reason(text)}"
        if status in _UNAUTHORIZED:
            message = (
                f"the schema registry {self} refuses the credentials for {what}: {reason}; check "
                "basic-auth.user-info or bearer-auth.token"
            )
            raise ConfigurationError(message)
        if status == _NOT_FOUND:
            message = f"the schema registry {self} does not have {what}: {reason}"
            raise ValueError(message)
        if status in _INCOMPATIBLE:
            message = (
                f"the schema registry {self} refuses the schema for {what}: {reason}; change the "
                "columns or the compatibility level of the subject"
            )
            raise ConfigurationError(message)
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if status >= _OK or not isinstance(found, dict):
            message = f"the schema registry {self} does not answer as one for {what}: {reason}"
            raise SchemaRegistryError(message)
        return found

    def _sent(self, url: str, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """Send a request; redirections, which would take credentials along, are not followed."""
        parts = urlsplit(url)
        timeout = self._numbers["http.connect.timeout.ms"] / 1000
        connection: http.client.HTTPConnection
        host = str(parts.hostname)
        if parts.scheme == "https":
            context = self._context()
            connection = http.client.HTTPSConnection(
                host, parts.port, timeout=timeout, context=context
            )
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=timeout)
        try:
            connection.connect()
            connection.sock.settimeout(self._numbers["http.read.timeout.ms"] / 1000)
            headers = {"Accept": f"{_CONTENT}, application/json", **self._authorization(url)}
            if body is not None:
                headers["Content-Type"] = _CONTENT
            connection.request(method, parts.path + path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    # -- settings ----------------------------------------------------------------------------------

    def _number(self, name: str, default: int) -> int:
        given = self._properties.get(name, str(default))
        if not given.isdecimal():
            message = f"the schema registry's property '{name}' must be a number, not {given!r}"
            raise ConfigurationError(message)
        return int(given)

    def _authorization(self, url: str | None = None) -> dict[str, str]:
        """Return the header with the credentials for an address.

        Raises:
            ConfigurationError: their source is not supported, or they are missing.
        """
        get = self._properties.get
        token, user = get("bearer.auth.token"), get("basic.auth.user.info")
        source = get("bearer.auth.credentials.source", "STATIC_TOKEN")
        basic = get("basic.auth.credentials.source", "USER_INFO" if user else "URL")
        if source != "STATIC_TOKEN" or basic not in {"USER_INFO", "URL"}:
            key = "basic" if source == "STATIC_TOKEN" else "bearer"
            message = (
                f"the schema registry's {key}-auth.credentials-source must be "
                f"{'USER_INFO or URL' if key == 'basic' else 'STATIC_TOKEN'}, not "
                f"'{basic if key == 'basic' else source}'"
            )
            raise ConfigurationError(message)
        if "bearer.auth.credentials.source" in self._properties and token is None:
            message = "the schema registry's bearer-auth.token is missing"
            raise ConfigurationError(message)
        if basic == "USER_INFO" and user is None:
            message = "the schema registry's basic-auth.user-info is missing"
            raise ConfigurationError(message)
        if token is not None and user is not None:
            message = "the schema registry takes basic-auth or bearer-auth, not both"
            raise ConfigurationError(message)
        if token is not None:
            return {"Authorization": f"Bearer {token}"}
        parts = urlsplit(url or self._urls[0])
        if basic == "URL":
            user = None
            if parts.username is not None:
                user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        if user is None:
            return {}
        return {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}

    def _context(self) -> ssl.SSLContext:
        """Return the settings of TLS: of certificates in PEM.

        Raises:
            ConfigurationError: a file is missing, or of another form.
        """
        get = self._properties.get
        trust = get("schema.registry.ssl.truststore.location")
        key = get("schema.registry.ssl.keystore.location")
        password = get("schema.registry.ssl.key.password") or get(
            "schema.registry.ssl.keystore.password"
        )
        for each in (trust, key):
            if each is not None and not _is_pem(each):
                message = (
                    f"the schema registry's key store {each!r} is not a PEM file. Export the "
                    "certificates and keys as PEM: Java key stores are not read"
                )
                raise ConfigurationError(message)
        try:
            context = ssl.create_default_context(cafile=trust)
            if key is not None:
                context.load_cert_chain(key, password=password or "")
        except (OSError, ValueError) as error:
            message = f"the schema registry's certificates or keys cannot be read: {error}"
            raise ConfigurationError(message) from error
        return context


def _is_pem(path: str) -> bool:
    try:
        return b"-----BEGIN" in Path(path).read_bytes()
    except OSError as error:
        message = f"the schema registry's certificates cannot be read: {error}"
        raise ConfigurationError(message) from error


def _registered(answer: Mapping[str, Any]) -> RegisteredSchema:
    references = tuple(
        SchemaReference(each["name"], each["subject"], each["version"])
        for each in answer.get("references") or ()
    )
    return RegisteredSchema(answer["schema"], answer.get("schemaType", "AVRO"), references)


def _reason(text: bytes) -> str:
    """Return what the registry says of an error."""
    try:
        found = json.loads(text)
        return f"({found['error_code']}: {found['message']})"
    except (ValueError, KeyError, TypeError):
        return f"({text[:200].decode(errors='replace')!r})"
