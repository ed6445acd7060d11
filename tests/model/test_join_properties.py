"""Interval joins against the model, and in the situations of Flink's tests of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from tests.model.cases import cases, state_of
from tests.model.join_model import IntervalJoinModel, Pair
from tests.model.window_model import MAX_TIME

from millstream.datastream import OutputTag, ProcessJoinFunction, StreamExecutionEnvironment
from millstream.errors import MillstreamError
from millstream.testing.harness import OperatorHarness

if TYPE_CHECKING:
    import random

LEFT_LATE, RIGHT_LATE = OutputTag("left"), OutputTag("right")


class TellPair(ProcessJoinFunction):
    """Both records with the times as the context has them."""

    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Any:
        yield left, right, ctx.get_left_timestamp(), ctx.get_right_timestamp(), ctx.get_timestamp()


def join_harness(
    lower: int, upper: int, *, inclusive: tuple[bool, bool] = (True, True), sides: bool = False
) -> OperatorHarness:
    """The operator as the program makes it; records are (key, number)."""
    env = StreamExecutionEnvironment.get_execution_environment()
    left = env.from_collection([("", 0)]).key_by(lambda record: record[0])
    right = env.from_collection([("", 0)]).key_by(lambda record: record[0])
    join = left.interval_join(right).between(lower, upper)
    if not inclusive[0]:
        join = join.lower_bound_exclusive()
    if not inclusive[1]:
        join = join.upper_bound_exclusive()
    if sides:
        join = join.side_output_left_late_data(LEFT_LATE).side_output_right_late_data(RIGHT_LATE)
    made = join.process(TellPair())
    types = {tag.tag_id: made.get_type() for tag in (LEFT_LATE, RIGHT_LATE)} if sides else None
    factory = made._transformation.factory  # type: ignore[attr-defined] # an operator
    return OperatorHarness(factory, side_types=types)


def _expected(pairs: list[Pair]) -> dict[Any, list[tuple[Any, int]]]:
    """What the function emits, by key and by the record that completed the pair."""
    by_record: dict[Any, list[tuple[Any, int]]] = defaultdict(list)
    for pair in pairs:
        time = max(pair.left_time, pair.right_time)
        value = pair.left, pair.right, pair.left_time, pair.right_time, time
        by_record[pair.order].append((value, time))
    return by_record


def _check_order(seen: list[tuple[Any, int]], pairs: list[Pair], replay: str) -> None:
    """Per key, record by record; the partners of one record in any order."""
    by_key: dict[Any, list[tuple[Any, int]]] = defaultdict(list)
    for value, time in seen:
        by_key[value[0][0]].append((value, time))
    assert len(seen) == len(pairs), replay
    for key in {pair.key for pair in pairs}:
        rest = by_key[key]
        for expected in _expected([pair for pair in pairs if pair.key == key]).values():
            part, rest = rest[: len(expected)], rest[len(expected) :]
            assert Counter(part) == Counter(expected), replay


def _random_steps(chance: random.Random) -> list[tuple[str, Any]]:
    steps: list[tuple[str, Any]] = []
    time, number = 0, 0
    disorder = chance.choice([0, 4, 20])
    for _ in range(chance.randrange(3, 18)):
        kind = chance.choice(["records", "records", "records", "watermark", "cut", "crash"])
        argument: Any = None
        if kind == "records":
            records = []
            for _ in range(chance.randrange(1, 6)):
                number += 1
                time += chance.choice([0, 1, 3])
                records.append(((chance.choice("ab"), number), time - chance.randint(0, disorder)))
            argument = chance.randrange(2), records
        elif kind == "watermark":
            argument = time - chance.choice([0, 2, disorder])
        steps.append((kind, argument))
    return steps


def _do(harness: OperatorHarness, kind: str, argument: Any) -> None:
    if kind == "records":
        side, records = argument
        harness.process_all([each[0] for each in records], [each[1] for each in records], side)
    elif kind == "watermark":
        harness.watermark(argument)
    elif kind == "cut":
        harness.end_epoch()


def test_oracle_interval_join() -> None:
    for chance, replay in cases(300):
        lower = chance.choice([-10, -3, 0, 2])
        upper = lower + chance.choice([0, 1, 5, 15])
        inclusive, sides = (chance.random() < 0.5, chance.random() < 0.5), chance.random() < 0.5
        model = IntervalJoinModel(lower + (not inclusive[0]), upper - (not inclusive[1]))
        harness = join_harness(lower, upper, inclusive=inclusive, sides=sides)
        steps = _random_steps(chance)
        replay += f"\n{lower=} {upper=} {inclusive=} {sides=}\n{steps}"  # noqa: PLW2901
        undone: list[tuple[str, Any]] = []
        for kind, argument in steps:
            if kind == "crash":
                harness.crash()
                for again in undone:
                    _do(harness, *again)
                continue
            _do(harness, kind, argument)
            undone = [] if kind == "cut" else [*undone, (kind, argument)]
            if kind == "records":
                for record, time in argument[1]:
                    model.record(argument[0], record[0], record, time)
            elif kind == "watermark":
                model.advance(argument)
        harness.end_epoch()
        _check_order(harness.records, model.pairs, replay)
        for tag, late in zip((LEFT_LATE, RIGHT_LATE), model.late, strict=True):
            assert harness.side_records.get(tag.tag_id, []) == (late if sides else []), replay
        dropped = 0 if sides else sum(map(len, model.late))
        assert harness.metrics.get("numLateRecordsDropped", 0) == dropped, replay
        harness.finish()
        assert state_of(harness) == [], replay


class Join:
    """Few words for the situations: every record is its own timestamp."""

    def __init__(self, lower: int, upper: int, *, inclusive: bool = True) -> None:
        self.harness = join_harness(lower, upper, inclusive=(inclusive, inclusive))

    def left(self, *times: int) -> Join:
        for time in times:
            self.harness.process(("k", time), time, 0)
        return self

    def right(self, *times: int) -> Join:
        for time in times:
            self.harness.process(("k", time), time, 1)
        return self

    def watermark(self, time: int) -> Join:
        self.harness.watermark(time)
        return self

    def gives(self, *pairs: tuple[int, int]) -> None:
        records: list[tuple[Any, int]] = list(self.harness.records)
        seen = [((left[1], right[1]), time) for (left, right, *_), time in records]
        assert sorted(seen) == [(pair, max(pair)) for pair in sorted(pairs)]


def _one_to_four(join: Join) -> Join:
    for time in range(1, 5):
        join.left(time).right(time).watermark(time)
    return join


@pytest.mark.parametrize(
    ("bounds", "inclusive", "pairs"),
    [
        ((-2, -1), True, [(2, 1), (3, 1), (3, 2), (4, 2), (4, 3)]),
        (
            (-1, 1), True,
            [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3), (3, 4), (4, 3), (4, 4)],
        ),
        ((1, 2), True, [(1, 2), (1, 3), (2, 3), (2, 4), (3, 4)]),
        ((-3, -1), False, [(3, 1), (4, 2)]),
        ((-1, 1), False, [(1, 1), (2, 2), (3, 3), (4, 4)]),
        ((1, 3), False, [(1, 3), (2, 4)]),
        ((0, 0), True, [(1, 1), (2, 2), (3, 3), (4, 4)]),
    ],
)  # fmt: skip
def test_bounds(bounds: tuple[int, int], inclusive: bool, pairs: list[tuple[int, int]]) -> None:
    _one_to_four(Join(*bounds, inclusive=inclusive)).gives(*pairs)


@pytest.mark.parametrize(
    ("bounds", "inclusive", "left", "right"),
    [
        ((-1, 0), True, [2, 3, 4, 5], [1, 2, 3, 4, 5]),
        ((-2, 1), False, [2, 3, 4, 5], [1, 2, 3, 4, 5]),
        ((0, 1), True, [1, 2, 3, 4, 5], [2, 3, 4, 5]),
        ((-1, 2), False, [1, 2, 3, 4, 5], [2, 3, 4, 5]),
    ],
)
def test_records_are_forgotten_when_they_have_no_partner_to_come(
    bounds: tuple[int, int], inclusive: bool, left: list[int], right: list[int]
) -> None:
    # What is in the buffers after a watermark is seen in how much state there is.
    sizes = []
    for kept in (None, (left, right)):
        join = Join(*bounds, inclusive=inclusive)
        lefts, rights = kept or (range(1, 6), range(1, 6))
        if kept is None:
            join.left(*lefts).right(*rights).watermark(1)
        else:
            join.watermark(1).left(*lefts).right(*rights)
        join.harness.end_epoch()
        sizes.append(len(state_of(join.harness)))
    assert sizes[0] <= sizes[1]
    join.watermark(6).harness.end_epoch()
    assert state_of(join.harness) == []


def test_late_records_are_not_joined_again() -> None:
    join = Join(-1, 1).left(1).right(1).left(2).right(2).left(3).right(3).watermark(3)
    join.left(1).left(4).right(4).left(5).right(5)
    join.gives(
        (1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3), (3, 4), (4, 3), (4, 4),
        (4, 5), (5, 4), (5, 5),
    )  # fmt: skip
    join.harness.end_epoch()
    assert join.harness.metrics["numLateRecordsDropped"] == 1


@pytest.mark.parametrize("side", [0, 1])
def test_records_without_timestamps_are_refused(side: int) -> None:
    harness = join_harness(0, 0)
    with pytest.raises(MillstreamError, match="timestamp"):
        harness.process(("k", 1), None, side)


def test_the_end_of_time_is_within_reach() -> None:
    join = Join(-(2**40), 2**40).left(1).right(2**39)
    join.watermark(2**40).gives((1, 2**39))
    join.watermark(MAX_TIME).harness.end_epoch()
    assert state_of(join.harness) == []
