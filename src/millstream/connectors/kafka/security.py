"""TLS and SASL: the user's properties for both clients.

What it is: librdkafka carries the records and ``kafka-python`` ends the transactions, so what the
user says once, by librdkafka's or Java's names, is told to both, each in its own words.

What it is not: authentication; the clients do that.  What only one of them could do is refused at
submit, and not found out when the first epoch is to be committed.

Read next: ``connectors/kafka/client.py``, ``connectors/kafka/transactions.py``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["connection_properties", "librdkafka_names", "python_client_options"]

#: Properties of the connection as such, which every client of a cluster needs.
_CONNECTION: Final = (
    "bootstrap.servers",
    "security.",
    "sasl.",
    "ssl.",
    "enable.ssl.",
    "enable.sasl.",
    "https.",
    "client.id",
    "socket.",
    "broker.address.",
)
_JAAS: Final = re.compile(r"\b(username|password)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;\"]+))")
_PROTOCOLS: Final = frozenset({"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"})
_MECHANISMS: Final = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"})

#: librdkafka's name -> kafka-python's, where the values are the same.
_PYTHON_NAMES: Final = {
    "bootstrap.servers": "bootstrap_servers",
    "client.id": "client_id",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
}
#: What is looked at in another way, or changes nothing for the few requests of kafka-python.
_OTHERWISE: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    }
)


def connection_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Those of the properties that every client of the cluster needs."""
    return {name: value for name, value in properties.items() if name.startswith(_CONNECTION)}


def librdkafka_names(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with Java's names of TLS and SASL turned into librdkafka's.

    Raises:
        ConfigurationError: a Java key store, which librdkafka does not read.
    """
    named: dict[str, str] = {}
    for name, value in properties.items():
        if name == "sasl.jaas.config":
            for key, quoted, bare in _JAAS.findall(value):
                named[f"sasl.{key}"] = re.sub(r"\\(.)", r"\1", quoted) or bare
        elif name in {"ssl.truststore.location", "ssl.keystore.location"}:
            named |= _store(name, value, properties)
        elif name not in {"ssl.truststore.type", "ssl.keystore.type", "ssl.truststore.password"}:
            named[name] = value
    return named


def _store(name: str, value: str, properties: Mapping[str, str]) -> dict[str, str]:
    """A store of certificates by Java's names; one in PEM is what librdkafka has files for."""
    kind = properties.get(name.replace("location", "type"), "").upper()
    if kind == "PEM" and name == "ssl.truststore.location":
        return {"ssl.ca.location": value}
    if kind == "PEM":
        return {"ssl.certificate.location": value, "ssl.key.location": value}
    message = (
        f"{name} = {value!r}: Java key stores are not read. Export the certificates as PEM"
        " (keytool -exportcert -rfc) and set ssl.ca.location, or ssl.certificate.location and"
        " ssl.key.location"
    )
    raise ConfigurationError(message)


def python_client_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """The connection of ``kafka-python`` to the cluster that librdkafka has these properties for.

    Raises:
        ConfigurationError: something that ``kafka-python`` cannot do.
    """
    named = librdkafka_names(connection_properties(properties))
    protocol = named.get("security.protocol", "plaintext").upper()
    if protocol not in _PROTOCOLS:
        message = f"security.protocol is {protocol!r}; it may be {', '.join(sorted(_PROTOCOLS))}"
        raise ConfigurationError(message)
    options = {_PYTHON_NAMES[key]: value for key, value in named.items() if key in _PYTHON_NAMES}
    options["security_protocol"] = protocol
    if protocol.startswith("SASL"):
        options["sasl_mechanism"] = _mechanism(named)
    if protocol.endswith("SSL"):
        _verification(named, options)
        if "ssl_cafile" in options and not Path(options["ssl_cafile"]).is_file():
            message = (
                f"ssl.ca.location is {options['ssl_cafile']!r}; exactly-once sinks need a file"
            )
            raise ConfigurationError(message)
    unknown = [
        name
        for name in named
        if name.startswith(("ssl.", "sasl.", "enable.ssl.", "enable.sasl."))
        and name not in _PYTHON_NAMES
        and name not in _OTHERWISE
    ]
    if unknown:
        message = (
            f"the Kafka property {', '.join(sorted(unknown))} cannot be used with exactly-once"
            " sinks: their transactions are committed through kafka-python, which does not know"
            f" it. Known are {', '.join(sorted({*_PYTHON_NAMES, *_OTHERWISE}))}"
        )
        raise ConfigurationError(message)
    return options


def _mechanism(named: Mapping[str, str]) -> str:
    given = named.get("sasl.mechanism", named.get("sasl.mechanisms", "GSSAPI")).upper()
    if given not in _MECHANISMS:
        message = (
            f"sasl.mechanism is {given!r}; exactly-once sinks can use"
            f" {', '.join(sorted(_MECHANISMS))}"
        )
        raise ConfigurationError(message)
    if given != "GSSAPI" and not ("sasl.username" in named and "sasl.password" in named):
        message = (
            f"sasl.mechanism {given} needs sasl.username and sasl.password, or sasl.jaas.config"
            " with both"
        )
        raise ConfigurationError(message)
    return given


def _verification(named: Mapping[str, str], options: dict[str, Any]) -> None:
    """Whether the broker's certificate is looked at, as librdkafka is told."""
    if named.get("ssl.endpoint.identification.algorithm", "https").lower() in {"none", ""}:
        options["ssl_check_hostname"] = False
    if named.get("enable.ssl.certificate.verification", "true").lower() == "true":
        return
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if "ssl_certfile" in options:
        files = options["ssl_certfile"], options.get("ssl_keyfile"), options.get("ssl_password")
        context.load_cert_chain(*files)
    options["ssl_context"] = context
