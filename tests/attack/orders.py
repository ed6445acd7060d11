"""Orders that are fed live, and what any clean run must make of them, in plain Python.

What it is: the feeder's side.  Each order is written down in the answer at the moment at which it
is made, before the broker has it.  A partition's times only grow and a customer's orders all go to
one partition, so the answer does not depend on when watermarks pass or on where a job was killed.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections import defaultdict
from typing import Final, NamedTuple

from kafka import KafkaProducer

__all__ = ["BUCKET_MS", "PARTITIONS", "Answer", "Feeder", "Result"]

PARTITIONS: Final = 2
#: Milliseconds of event time that are summed up per customer.
BUCKET_MS: Final = 2_000
CUSTOMERS: Final = 60
#: Orders a second, of all partitions.
RATE: Final = 150
_TICK_SECONDS: Final = 0.05
#: How far the last orders lie behind the others: all sums of these are complete then.
_END_MS: Final = 100_000


class Result(NamedTuple):
    """A row of any of the three sinks."""

    #: "running" or "bucket".
    kind: str
    customer: str
    #: Of the order; of a bucket the end of its time.
    id: int
    #: Orders of the customer so far; of a bucket those in it.
    n: int
    total: int


class Answer:
    """All results of the orders so far; the feeder adds, readers look."""

    def __init__(self) -> None:
        self._running: dict[int, Result] = {}
        self._totals: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self._buckets: dict[tuple[str, int], tuple[int, int]] = defaultdict(lambda: (0, 0))

    def add(self, identity: int, customer: str, moment: int, amount: int) -> None:
        """Take an order."""
        count, total = self._totals[customer]
        self._totals[customer] = count + 1, total + amount
        self._running[identity] = Result("running", customer, identity, count + 1, total + amount)
        end = (moment // BUCKET_MS + 1) * BUCKET_MS - 1
        count, total = self._buckets[customer, end]
        self._buckets[customer, end] = count + 1, total + amount

    def running(self, identity: int) -> Result | None:
        """What an order's running total has to be; None: there is no such order."""
        return self._running.get(identity)

    def whole(self, until: int) -> list[Result]:
        """Everything, sorted, when the watermark has reached ``until``."""
        buckets = [
            Result("bucket", customer, end, count, total)
            for (customer, end), (count, total) in self._buckets.items()
            if end <= until
        ]
        return sorted([*self._running.values(), *buckets])

    def __len__(self) -> int:
        """Orders so far."""
        return len(self._running)


class Feeder:
    """A thread that writes orders to a topic until it is told to end."""

    def __init__(self, servers: str, topic: str, seed: int) -> None:
        self.answer = Answer()
        self._topic = topic
        self._chance = random.Random(seed)
        self._producer = KafkaProducer(bootstrap_servers=servers, linger_ms=5)
        self._identities = itertools.count(1)
        self._moments = [0] * PARTITIONS
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="feeder", daemon=True)
        self.error: BaseException | None = None

    def start(self) -> None:
        """Begin to feed."""
        self._thread.start()

    def finish(self) -> int:
        """Feed no more, but a last order per partition that completes all sums.

        Returns:
            The event time that the job's watermark will reach at least.
        """
        self._ended.set()
        self._thread.join()
        if self.error is not None:
            raise self.error
        last = max(self._moments)
        for partition in range(PARTITIONS):
            # Lies alone in its time, which no watermark completes.
            self._moments[partition] = last + _END_MS
            self._send(partition, f"last-{partition}")
        self._producer.flush()
        self._producer.close()
        return last + _END_MS // 2

    def abandon(self) -> None:
        """Feed no more; what was not sent yet does not matter."""
        self._ended.set()
        self._producer.close(timeout=1)

    def _feed(self) -> None:
        try:
            begun, sent = time.monotonic(), 0
            while not self._ended.wait(_TICK_SECONDS):
                due = int((time.monotonic() - begun) * RATE)
                for _ in range(due - sent):
                    self._order()
                sent = due
        except BaseException as error:  # noqa: BLE001 - told to whoever ends the feeding
            self.error = error

    def _order(self) -> None:
        number = self._chance.randrange(CUSTOMERS)
        partition = number % PARTITIONS
        now = time.time_ns() // 1_000_000
        self._moments[partition] = max(self._moments[partition], now)
        self._send(partition, f"customer-{number}")

    def _send(self, partition: int, customer: str) -> None:
        identity = next(self._identities)
        moment, amount = self._moments[partition], self._chance.randrange(1, 1_000)
        self.answer.add(identity, customer, moment, amount)
        order = {"id": identity, "customer": customer, "ts": moment, "amount": amount}
        sent = self._producer.send(self._topic, json.dumps(order).encode(), partition=partition)
        sent.add_errback(self._failed)

    def _failed(self, error: BaseException) -> None:
        self.error = error
