"""Independent readers of the three sinks, each a thread that looks at what is visible all the time.

What it is: each row is compared with the answer when it is first seen: never a row twice, never one
that no clean run makes; a customer's running counts without a hole in what has an order.  What is
wrong is kept for ``check``.
"""

from __future__ import annotations

import json
import os
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
from tests.attack.orders import Result

from kafka import KafkaConsumer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.attack.orders import Answer

__all__ = ["FileReader", "Reader", "TableReader", "TopicReader"]

_POLL_SECONDS: Final = 0.1


class Reader(ABC):
    """Looks again and again, and counts how often it has looked."""

    #: Whether a customer's rows are seen in the order in which they were written.
    ordered = True

    def __init__(self, name: str, answer: Answer) -> None:
        self.name = name
        self.rows: set[Result] = set()
        self.wrong: list[str] = []
        self._answer = answer
        self._counts: dict[str, int] = {}
        self._ended = threading.Event()
        #: Told after each look; guards ``looks`` and ``rows``.
        self._looked = threading.Condition()
        self._looks = 0
        self._thread = threading.Thread(target=self._read, name=f"reader-{name}", daemon=True)
        self._thread.start()

    @abstractmethod
    def look(self) -> Iterable[Result]:
        """Rows not seen before, in the sink's order where it has one."""

    def settle(self) -> int:
        """Wait until a look that begins from now on has ended; the number of rows then."""
        with self._looked:
            wanted = self._looks + 2  # the one under way may have begun before
            assert self._looked.wait_for(lambda: self._looks >= wanted or bool(self.wrong), 120)
            return len(self.rows)

    def wait_beyond(self, count: int, deadline: float) -> float | None:
        """When more than so many rows were visible, by ``time.time``; None: not in time."""
        with self._looked:
            left = deadline - time.time()
            found = self._looked.wait_for(lambda: len(self.rows) > count, max(left, 0))
        return time.time() if found else None

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            try:
                found = list(self.look())
            except (OSError, psycopg.Error) as error:
                if self._ended.is_set():
                    return
                if not isinstance(error, psycopg.OperationalError):  # the server is down for now
                    self.wrong.append(f"{self.name}: {type(error).__name__}: {error}")
                continue
            with self._looked:
                for row in found:
                    self._take(row)
                self._looks += 1
                self._looked.notify_all()

    def _take(self, row: Result) -> None:
        if row in self.rows:
            self.wrong.append(f"{self.name}: twice: {row}")
        self.rows.add(row)
        if row.kind != "running":
            return  # whether a sum is right is known at the end
        if self._answer.running(row.id) != row:
            self.wrong.append(f"{self.name}: no clean run makes {row}")
        if self.ordered:
            before = self._counts.get(row.customer, 0)
            if row.n != before + 1:
                self.wrong.append(f"{self.name}: {row} comes behind count {before}")
            self._counts[row.customer] = row.n


class TopicReader(Reader):
    """A consumer of committed messages."""

    def __init__(self, servers: str, topic: str, partitions: int, answer: Answer) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=servers,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
        )
        places = [TopicPartition(topic, number) for number in range(partitions)]
        self._consumer.assign(places)
        self._consumer.seek_to_beginning(*places)
        super().__init__("topic", answer)

    def look(self) -> list[Result]:
        """What has come since the last look."""
        polled = self._consumer.poll(200)
        values = [json.loads(record.value) for records in polled.values() for record in records]
        return [Result(**value) for value in values]

    def stop(self) -> None:
        """Look no more and close the consumer."""
        super().stop()
        self._consumer.close()


class TableReader(Reader):
    """A connection that finds new rows by the order in which they were written."""

    ordered = False

    def __init__(self, database: str, answer: Answer) -> None:
        self._database = database
        self._seen: set[int] = set()
        self._at = 0
        super().__init__("table", answer)

    def look(self) -> list[Result]:
        """Rows with numbers not seen before: transactions become visible in any order."""
        with psycopg.connect(self._database, connect_timeout=10) as connection:
            rows = connection.execute(
                "SELECT number, kind, customer, id, n, total FROM results"
                " WHERE number > %s ORDER BY number",
                [self._at],
            ).fetchall()
        new = [row for row in rows if row[0] not in self._seen]
        self._seen.update(row[0] for row in new)
        # What is not visible yet was given its number not long ago.
        self._at = max(self._at, max(self._seen, default=0) - 20_000)
        return [Result(*row[1:]) for row in new]


class FileReader(Reader):
    """Lists a directory and reads the files that are new, each whole."""

    ordered = False

    def __init__(self, directory: str, answer: Answer) -> None:
        self._directory = Path(directory)
        self._seen: set[Path] = set()
        super().__init__("files", answer)

    def look(self) -> list[Result]:
        """The rows of files with names that readers look at."""
        rows = []
        for path in sorted(self._visible()):
            if path not in self._seen:
                self._seen.add(path)
                rows += [Result(**json.loads(line)) for line in path.read_text().splitlines()]
        return rows

    def _visible(self) -> Iterator[Path]:
        """The files, without a look into what is hidden: that may vanish meanwhile."""
        for directory, inner, names in os.walk(self._directory):
            inner[:] = [name for name in inner if not name.startswith((".", "_"))]
            yield from (Path(directory, name) for name in names if not name.startswith((".", "_")))
