"""What the clients of Kafka have to say, in few words.

What it is: librdkafka writes a line for every connection that it cannot make, for every broker and
client and again and again, and kafka-python several; a minute without brokers is hundreds.  All of
that goes to the logger ``millstream.kafka.client`` at DEBUG.  What matters is in the errors of
Millstream, which end with the last trouble of the client; while a client waits for brokers that are
all down, one warning a minute says so.

What it is not: a loss: ``logging.getLogger("millstream.kafka.client").setLevel(logging.DEBUG)``
shows it all, and ``logging.getLogger("kafka").setLevel(...)`` what kafka-python says.

Read next: ``connectors/kafka/client.py``.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final

__all__ = ["ClientLog", "quiet_python_client"]

_LOG: Final = logging.getLogger("millstream.kafka")
_CLIENT_LOG: Final = logging.getLogger("millstream.kafka.client")
#: Seconds between two warnings about the same brokers.
_AGAIN: Final = 60.0
#: Seconds between the news that all brokers are down and the reason.
_TOGETHER: Final = 5.0
#: Brokers -> when a warning said that they are down, in monotonic seconds.
_warned: dict[str, float] = {}


class ClientLog:
    """Takes the log and the errors of one client of librdkafka's.

    Args:
        servers: its ``bootstrap.servers``.
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        #: Why a broker could not be reached, as the client's threads found out last.
        self.trouble = ""
        #: Until when a trouble is that of the last broker, in monotonic seconds.
        self._all_down = 0.0

    def log(self, level: int, form: str, *arguments: object) -> None:
        """A line of the client's; what confluent-kafka calls."""
        _CLIENT_LOG.debug("[%d] " + form, level, *arguments)

    def remember(self, error: Any) -> None:
        """Keep an error that belongs to no request, for the message of one that fails."""
        if not _all_are_down(error):
            self.trouble = str(error.str())

    def on_error(self, error: Any) -> None:
        """As ``remember``, and warn if there is no broker left to wait for."""
        self.remember(error)
        now = time.monotonic()
        if _all_are_down(error):
            self._all_down = now + _TOGETHER  # the reason comes behind it
        elif now < self._all_down and now - _warned.get(self._servers, float("-inf")) > _AGAIN:
            _warned[self._servers] = now
            _LOG.warning(
                "no Kafka broker of %r can be reached: %s; trying again",
                self._servers,
                self.trouble,
            )

    def because(self) -> str:
        """The last trouble, for the end of a message."""
        return f" ({self.trouble})" if self.trouble else ""


def _all_are_down(error: Any) -> bool:
    from confluent_kafka import KafkaError

    return bool(error.code() == KafkaError._ALL_BROKERS_DOWN)  # noqa: SLF001 - its public name


def quiet_python_client() -> None:
    """Keep kafka-python from logging what is told as an error anyway, if nobody has set a level."""
    logger = logging.getLogger("kafka")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
