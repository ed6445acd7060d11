"""Timers against sets in plain Python: registered, deleted, restored, and fired in order."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.model.cases import cases, state_of
from tests.model.window_model import MIN_TIME

from millstream.datastream import KeyedProcessFunction, TimeDomain
from millstream.runtime.operators import KeyedProcessFactory
from millstream.testing.harness import OperatorHarness

if TYPE_CHECKING:
    from collections.abc import Iterator

#: ("register" or "delete", "event" or "processing", time).
Order = tuple[str, str, int]


def orders_at(domain: str, time: int) -> list[Order]:
    """What a timer does when it fires: some go on, some delete, some look back."""
    if time % 7 == 0:
        return [("register", domain, time + 3)]
    if time % 7 == 3:
        return [("delete", "event", time + 2), ("register", "event", time + 4)]
    if time % 7 == 5 and time % 2:
        return [("register", domain, time - 1)]
    return []


class Obeying(KeyedProcessFunction):
    """Records are (key, orders); tells each timer with the clocks as it sees them."""

    def _obey(self, service: Any, orders: list[Order]) -> None:
        for order, domain, time in orders:
            name = {"event": "event_time", "processing": "processing_time"}[domain]
            getattr(service, f"{order}_{name}_timer")(time)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self._obey(ctx.timer_service(), value[1])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        domain = "event" if ctx.time_domain() == TimeDomain.EVENT_TIME else "processing"
        service = ctx.timer_service()
        self._obey(service, orders_at(domain, timestamp))
        clocks = service.current_watermark(), service.current_processing_time()
        yield ctx.get_current_key(), domain, timestamp, *clocks


@dataclass
class Timers:
    """The model: a set of (time, key) per clock."""

    watermark: int = MIN_TIME
    now: int = 0
    pending: dict[str, set[tuple[int, str]]] = field(default_factory=lambda: defaultdict(set))
    fired: list[Any] = field(default_factory=list)

    def obey(self, key: str, orders: list[Order]) -> None:
        for order, domain, time in orders:
            if order == "register":
                self.pending[domain].add((time, key))
            else:
                self.pending[domain].discard((time, key))

    def advance(self, domain: str, time: int) -> None:
        if domain == "event":
            if time <= self.watermark:
                return  # the runtime passes it over
            self.watermark = time
        else:
            self.now = time
        clock = self.watermark if domain == "event" else self.now
        while due := [timer for timer in self.pending[domain] if timer[0] <= clock]:
            stamp, key = min(due)
            self.pending[domain].remove((stamp, key))
            self.obey(key, orders_at(domain, stamp))
            self.fired.append((key, domain, stamp, self.watermark, self.now))


def _random_orders(chance: random.Random, around: int) -> list[Order]:
    return [
        (
            chance.choice(["register", "register", "delete"]),
            chance.choice(["event", "processing"]),
            around + chance.randrange(-5, 20),
        )
        for _ in range(chance.randrange(1, 5))
    ]


def _by_key(fired: list[Any]) -> dict[Any, list[Any]]:
    result: dict[Any, list[Any]] = defaultdict(list)
    for each in fired:
        result[each[0]].append(each)
    return result


def test_oracle_timers() -> None:
    for chance, replay in cases(300):
        harness, timers, time = OperatorHarness(_factory()), Timers(), 0
        undone: list[Any] = []
        steps = []
        for _ in range(chance.randrange(3, 25)):
            kind = chance.choice(["record", "record", "watermark", "now", "cut", "crash"])
            argument: Any = None
            if kind == "record":
                argument = [
                    (key, _random_orders(chance, time)) for key in chance.choices("abc", k=3)
                ]
            elif kind in {"watermark", "now"}:
                time += chance.choice([0, 2, 10])
                argument = time
            steps.append((kind, argument))
            if kind == "crash":
                harness.crash()
                for again in undone:
                    _do(harness, *again)
            else:
                _do(harness, kind, argument)
                undone = [] if kind in {"cut", "now"} else [*undone, (kind, argument)]
                _do_model(timers, kind, argument)
            assert _by_key(harness.outputs) == _by_key(timers.fired), f"{replay}\n{steps}"
        records: list[tuple[Any, int]] = list(harness.records)
        for (_, domain, stamp, *_), timestamp in records:
            assert timestamp == (stamp if domain == "event" else MIN_TIME), replay


def _outputs(harness: OperatorHarness) -> list[Any]:
    return harness.outputs


def _factory() -> KeyedProcessFactory:
    return KeyedProcessFactory(Obeying(), lambda record: record[0])


def _do(harness: OperatorHarness, kind: str, argument: Any) -> None:
    if kind == "record":
        harness.process_all(argument)
    elif kind == "watermark":
        harness.watermark(argument)
    elif kind == "now":
        harness.processing_time(argument)
    else:
        harness.end_epoch()


def _do_model(timers: Timers, kind: str, argument: Any) -> None:
    if kind == "record":
        for key, orders in argument:
            timers.obey(key, orders)
    elif kind == "watermark":
        timers.advance("event", argument)
    else:
        timers.advance("processing", timers.now if kind == "cut" else argument)


def test_timers_of_all_keys_fire_in_order_of_time() -> None:
    harness = OperatorHarness(_factory())
    chance = random.Random(1)
    # Times of which none orders another.
    times = [time for time in range(10_000) if time % 7 in {1, 2, 4}]
    chance.shuffle(times)
    for number in range(0, 600, 10):
        batch = [
            (f"key-{chance.randrange(50)}", [("register", "event", time)])
            for time in times[number : number + 10]
        ]
        harness.process_all(batch)
        if number % 100 == 0:
            harness.end_epoch()
    harness.watermark(10_000)
    fired = [each[2] for each in _outputs(harness)]
    assert fired == sorted(times[:600])


def test_the_same_time_fires_once_per_key_and_clock() -> None:
    harness = OperatorHarness(_factory())
    order: Order = ("register", "event", 8)
    both: Order = ("register", "processing", 8)
    harness.process_all([("a", [order, order, both]), ("a", [order]), ("b", [order])])
    harness.end_epoch()
    harness.process(("a", [order]))
    harness.watermark(8)
    harness.processing_time(8)
    harness.processing_time(9)
    harness.watermark(9)
    assert sorted(each[:3] for each in _outputs(harness)) == [
        ("a", "event", 8), ("a", "processing", 8), ("b", "event", 8)
    ]  # fmt: skip
    harness.end_epoch()
    assert state_of(harness) == []


def test_a_timer_in_the_past_fires_with_the_next_watermark() -> None:
    harness = OperatorHarness(_factory())
    harness.watermark(100)
    harness.process(("a", [("register", "event", 8)]))
    assert harness.outputs == []
    harness.watermark(101)
    assert harness.outputs == [("a", "event", 8, 101, 0)]


def test_a_deleted_timer_does_not_fire_even_when_deleted_in_a_later_epoch() -> None:
    harness = OperatorHarness(_factory())
    register: Order = ("register", "event", 8)
    harness.process_all([("a", [register]), ("b", [register])])
    harness.end_epoch()
    harness.process_all([("a", [("delete", "event", 8)]), ("b", [("delete", "processing", 8)])])
    harness.end_epoch()
    harness.watermark(20)
    assert harness.outputs == [("b", "event", 8, 20, 0)]
