"""Where tables in Kafka begin and end: ``scan.startup.*`` and ``scan.bounded.*``.

What it is: Flink's options as offsets of the source.
What it is not: the source (``connectors/kafka/offsets.py``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.kafka.client import KafkaTopicPartition
from millstream.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from millstream.errors import ValidationError
from millstream.sql.catalog.options import choice, integer, text

if TYPE_CHECKING:
    from millstream.sql.catalog.options import Options

__all__ = ["BOUNDED", "STARTUP", "begin", "end", "topics"]

STARTUP: Final = (
    choice(
        "scan.startup.mode",
        ("earliest-offset", "latest-offset", "group-offsets", "timestamp", "specific-offsets"),
        "group-offsets",
    ),
    integer("scan.startup.timestamp-millis"),
    text("scan.startup.specific-offsets"),
)
BOUNDED: Final = (
    choice(
        "scan.bounded.mode",
        ("unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets"),
        "unbounded",
    ),
    integer("scan.bounded.timestamp-millis"),
    text("scan.bounded.specific-offsets"),
)
_PLACE: Final = re.compile(r"partition:([0-9]+),offset:([0-9]+)")


def topics(options: Options) -> list[str]:
    """The topics of the option ``topic``."""
    return [each.strip() for each in (options["topic"] or "").split(";") if each.strip()]


def _check(options: Options, word: str) -> None:
    """The options of each mode go with it alone."""
    mode = options[f"scan.{word}.mode"]
    for wanted, key in (
        ("timestamp", "timestamp-millis"),
        ("specific-offsets", "specific-offsets"),
    ):
        option = f"scan.{word}.{key}"
        if (mode == wanted) != (options[option] is not None):
            message = f"{options.owner}: '{option}' goes with 'scan.{word}.mode' = '{wanted}'."
            raise ValidationError(message)


def _given(options: Options, key: str) -> dict[KafkaTopicPartition, int]:
    named = topics(options)
    if len(named) != 1:
        message = f"{options.owner}: '{key}' is of a single topic."
        raise ValidationError(message)
    found = {}
    for part in str(options[key]).strip(";").split(";"):
        place = _PLACE.fullmatch(part.strip())
        if place is None:
            message = (
                f"{options.owner}: '{key}' should follow the format "
                f"'partition:0,offset:42;partition:1,offset:300', but is '{options[key]}'."
            )
            raise ValidationError(message)
        found[KafkaTopicPartition(named[0], int(place[1]))] = int(place[2])
    return found


def begin(options: Options) -> KafkaOffsetsInitializer:
    """Where reading begins."""
    _check(options, "startup")
    mode = options["scan.startup.mode"]
    if mode == "timestamp":
        return KafkaOffsetsInitializer.timestamp(options["scan.startup.timestamp-millis"])
    if mode == "specific-offsets":
        return KafkaOffsetsInitializer.offsets(_given(options, "scan.startup.specific-offsets"))
    if mode == "group-offsets":
        return KafkaOffsetsInitializer.committed_offsets(_reset(options))
    made: dict[str, Any] = {
        "earliest-offset": KafkaOffsetsInitializer.earliest,
        "latest-offset": KafkaOffsetsInitializer.latest,
    }
    found: KafkaOffsetsInitializer = made[mode]()
    return found


def _reset(options: Options) -> KafkaOffsetResetStrategy:
    given = options.given.get("properties.auto.offset.reset", "none").lower()
    by_name = {each.name.lower(): each for each in KafkaOffsetResetStrategy}
    if given not in by_name:
        message = (
            f"{options.owner}: 'properties.auto.offset.reset' is one of "
            f"{', '.join(sorted(by_name))}, not '{given}'."
        )
        raise ValidationError(message)
    return by_name[given]


def end(options: Options) -> KafkaOffsetsInitializer | None:
    """Where reading ends; None: it does not."""
    _check(options, "bounded")
    mode = options["scan.bounded.mode"]
    if mode == "timestamp":
        return KafkaOffsetsInitializer.timestamp(options["scan.bounded.timestamp-millis"])
    if mode == "specific-offsets":
        return KafkaOffsetsInitializer.offsets(_given(options, "scan.bounded.specific-offsets"))
    if mode == "group-offsets":
        return KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.LATEST)
    return KafkaOffsetsInitializer.latest() if mode == "latest-offset" else None
