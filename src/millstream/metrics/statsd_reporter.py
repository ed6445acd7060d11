"""Metrics to a StatsD server, by UDP; with tags for Datadog's and Telegraf's dialect."""

from __future__ import annotations

import math
import re
import socket
from typing import TYPE_CHECKING, Final

from millstream.configuration.option import parse_boolean, parse_integer
from millstream.contracts.metrics import MetricKind, MetricReporter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from millstream.contracts.metrics import MetricSample

_HOST: Final = "localhost"
_PORT: Final = 8125
#: Bytes of a packet that every network passes in one part.
_PACKET: Final = 1400
#: What has a meaning in StatsD's lines.
_RESERVED: Final = re.compile(r"[:|@#,\s]")


class StatsDReporter(MetricReporter):
    """Sends each metric as a gauge, as Flink's reporter does."""

    #: From ``open`` on.
    _socket: socket.socket
    _has_tags: bool

    def open(self, properties: Mapping[str, str]) -> None:
        """Resolve the address of the server.

        Raises:
            OSError: it cannot be resolved.
            ValueError: the port is not a number.
        """
        self._has_tags = parse_boolean(properties.get("tags", "false"))
        host, port = properties.get("host", _HOST), parse_integer(properties.get("port", _PORT))
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[
            0
        ]
        self._socket = socket.socket(family, kind, protocol)
        self._socket.connect(address)

    def report(self, samples: Sequence[MetricSample]) -> None:
        """Send the metrics, several in a packet.

        Raises:
            OSError: nobody listens there, as far as that is known.
        """
        packet = ""
        for line in (line for each in samples for line in self._lines(each)):
            if packet and len(packet.encode()) + len(line.encode()) >= _PACKET:
                self._socket.send(packet.encode())
                packet = ""
            packet += f"\n{line}" if packet else line
        if packet:
            self._socket.send(packet.encode())

    def close(self) -> None:
        self._socket.close()

    def _lines(self, sample: MetricSample) -> Iterator[str]:
        tags = ""
        name = sample.identifier
        if self._has_tags:
            name = f"flink.{sample.scope}.{sample.name}"
            named = (f"{key}:{_plain(value)}" for key, value in sorted(sample.variables.items()))
            tags = f"|#{','.join(named)}"
        value = sample.value
        if sample.kind is MetricKind.METER:
            name = f"{name}.rate"
        values = {"": value} if isinstance(value, int | float) else value
        for ending, number in values.items():
            if isinstance(number, float) and not math.isfinite(number):
                continue  # a server would refuse the line
            full = _plain(f"{name}.{ending}" if ending else name)
            if number < 0:
                # A sign would mean a change of the gauge.
                yield f"{full}:0|g{tags}"
            yield f"{full}:{number}|g{tags}"


def _plain(text: str) -> str:
    return _RESERVED.sub("-", text)
