"""Settings of a server: where it listens, who may use it, and what for."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream import ports
from millstream.configuration import options
from millstream.configuration.option import parse_list
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from millstream.configuration.configuration import Configuration

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
#: Characters: one that can be guessed is worse than none, as nobody notices.
_SHORTEST_TOKEN: Final = 16


@dataclass(frozen=True, slots=True)
class RestSettings:
    """The settings of one server.

    Invariant: one that listens beyond this machine has a token and TLS.
    """

    host: str = "127.0.0.1"
    ports: tuple[int, ...] = (0,)
    token: str = field(default="", repr=False)
    #: PEM files; an empty certificate: no TLS.
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    is_read_only: bool = False
    can_cancel: bool = True
    #: Names that requests may have in their Host header, in lower case, beside IP addresses.
    names: frozenset[str] = _LOOPBACK
    #: Milliseconds.
    refresh_interval: int = 3000
    store_duration: int = 300_000
    #: How many ended jobs are shown.
    history: int = 5

    def __post_init__(self) -> None:
        """Check that whoever is not on this machine needs the token.

        Raises:
            ConfigurationError: there is none, or it would be sent in clear text.
        """
        if is_loopback(self.host):
            return
        if not self.token:
            problem = f"needs a token: set {options.REST_TOKEN_FILE.key}"
        elif not self.certificate:
            problem = (
                f"needs TLS: set {options.REST_TLS.key}: true and {options.REST_CERTIFICATE.key}"
            )
        else:
            return
        message = (
            f"a server at {self.host}, which is not a loopback address, {problem}. Or let it"
            " listen at 127.0.0.1"
        )
        raise ConfigurationError(message)

    @classmethod
    def of(cls, configuration: Configuration, host: str, port: str) -> RestSettings:
        """Return the settings of a server.

        Args:
            configuration: its options.
            host: where it listens.
            port: a port, or a range of which the first free one is taken.

        Raises:
            ConfigurationError: they contradict each other, or a file cannot be read.
        """
        get = configuration.get
        tls = get(options.REST_TLS)
        if tls and not get(options.REST_CERTIFICATE):
            message = f"{options.REST_TLS.key} needs {options.REST_CERTIFICATE.key}"
            raise ConfigurationError(message)
        named = {host, *parse_list(get(options.REST_ALLOWED_HOSTS))}
        if not is_loopback(host):
            named |= {socket.gethostname(), socket.getfqdn()}
        return cls(
            host=host,
            ports=tuple(ports.parse_ports(port)),
            token=_token(configuration),
            certificate=get(options.REST_CERTIFICATE) if tls else "",
            key=get(options.REST_KEY),
            key_password=get(options.REST_KEY_PASSWORD),
            is_read_only=get(options.REST_READ_ONLY),
            names=_LOOPBACK | {each.lower() for each in named if each},
        )

    def tls(self) -> ssl.SSLContext | None:
        """Return the server's side of TLS; None: it is not used.

        Raises:
            ConfigurationError: the certificate or its key cannot be read.
        """
        if not self.certificate:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key or None, lambda: self.key_password)
        except (OSError, ssl.SSLError, ValueError) as error:
            message = (
                f"the certificate of the server ({self.certificate}) or its key cannot be read:"
                f" {error}"
            )
            raise ConfigurationError(message) from error
        return context


def is_wanted(configuration: Configuration) -> bool:
    """Return whether a job is to have a REST API."""
    return any(configuration.get(each) for each in (options.REST_PORT, options.REST_BIND_PORT))


def rest_settings(configuration: Configuration) -> RestSettings:
    """Return the settings of the REST API of a job.

    Raises:
        ConfigurationError: they contradict each other, or a file cannot be read.
    """
    get = configuration.get
    port = get(options.REST_BIND_PORT) or get(options.REST_PORT)
    found = RestSettings.of(configuration, get(options.REST_BIND_ADDRESS), port)
    address = get(options.REST_ADDRESS).lower()
    return replace(
        found,
        can_cancel=get(options.WEB_CANCEL),
        names=found.names | ({address} if address else frozenset()),
        refresh_interval=get(options.WEB_REFRESH_INTERVAL),
        store_duration=get(options.REST_STORE_DURATION),
        history=get(options.WEB_HISTORY),
    )


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _token(configuration: Configuration) -> str:
    token, file = (
        configuration.get(each) for each in (options.REST_TOKEN, options.REST_TOKEN_FILE)
    )
    if file:
        try:
            token = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            message = f"{options.REST_TOKEN_FILE.key} cannot be read: {error}"
            raise ConfigurationError(message) from error
    if (file or token) and (len(token) < _SHORTEST_TOKEN or not token.isascii()):
        message = (
            f"the token must have at least {_SHORTEST_TOKEN} characters of ASCII;"
            " `openssl rand -hex 32` makes one"
        )
        raise ConfigurationError(message)
    return token
