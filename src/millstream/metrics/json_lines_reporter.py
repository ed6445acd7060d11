"""Metrics as JSON lines in a file."""

from __future__ import annotations

import json
import math
import os
import time
from typing import TYPE_CHECKING

from millstream.contracts.metrics import MetricReporter
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.contracts.metrics import MetricSample


class JsonLinesReporter(MetricReporter):
    """Appends a line for each metric; the file may be rotated meanwhile."""

    def __init__(self) -> None:
        self._path = ""

    def open(self, properties: Mapping[str, str]) -> None:
        """Take the path.

        Raises:
            ConfigurationError: there is none.
        """
        self._path = properties.get("path", "")
        if not self._path:
            message = "the reporter needs the option 'path', of the file that it writes"
            raise ConfigurationError(message)

    def report(self, samples: Sequence[MetricSample]) -> None:
        """Append the samples: all of them, or none if the disk is full.

        Raises:
            OSError: they cannot be written.
        """
        now = time.time_ns() // 1_000_000
        text = "".join(f"{json.dumps(_line(now, each))}\n" for each in samples)
        # One write: lines of several jobs in one file do not mix.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            content = text.encode()
            written = os.write(descriptor, content)
            if written < len(content):
                end = os.fstat(descriptor).st_size
                os.ftruncate(descriptor, end - written)
                message = f"the disk of {self._path} is full"
                raise OSError(message)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Do nothing: the file is closed after each report."""


def _number(value: float) -> float | None:
    """The number; None if JSON has none for it."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _line(now: int, sample: MetricSample) -> dict[str, object]:
    value = sample.value
    shown: object
    if isinstance(value, int | float):
        shown = _number(value)
    else:
        shown = {name: _number(each) for name, each in value.items()}
    return {
        "time": now,
        "name": sample.name,
        "scope": sample.scope,
        "identifier": sample.identifier,
        "kind": sample.kind.value,
        "value": shown,
        "variables": dict(sample.variables),
    }
