"""Expired rows are removed in the background: nothing else changes, and little is kept.

Each operator with a time to live runs over random changes and times, once with a background that
looks at everything all the time and once without one.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.table_operators.model import (
    UA,
    UB,
    Aggregate,
    Change,
    D,
    GroupAggregate,
    I,
    Row,
    is_add,
)
from tests.runtime.table_operators.running import TableHarness
from tests.runtime.table_operators.strategies import changelogs
from tests.support.examples import examples

from millstream.runtime.operators.table.deduplicate import (
    ChangelogNormalizeFactory,
    DeduplicateFactory,
)
from millstream.runtime.operators.table.group_aggregate import GroupAggregateFactory
from millstream.runtime.operators.table.join import JoinFactory
from millstream.runtime.operators.table.over import OverFactory, UpdatingOverFactory
from millstream.runtime.operators.table.sink_materializer import SinkMaterializerFactory
from millstream.runtime.operators.table.specs import (
    AggregateCall,
    JoinKind,
    JoinSide,
    RankStrategy,
    SortColumn,
)
from millstream.runtime.operators.table.top_n import TopNFactory
from millstream.state import key_context
from millstream.types.logical_types import BigIntType, RowType, VarCharType

pytestmark = pytest.mark.extended

TTL = 10
ROWS = RowType.of(k=VarCharType(5), id=BigIntType(), n=BigIntType())
TYPES = [field.type for field in ROWS]
SUM = AggregateCall("SUM", (2,), BigIntType())
MAX = AggregateCall("MAX", (2,), BigIntType())
DISTINCT = AggregateCall("COUNT", (2,), BigIntType(), distinct=True)
CALLS = (SUM, MAX, DISTINCT)
ORDER = (SortColumn(2),)


def top_n(strategy: RankStrategy, **options: Any) -> TopNFactory:
    return TopNFactory(
        ROWS, (0,), ORDER, 1, 3, output_rank=True, strategy=strategy, update_before=True,
        state_ttl=TTL, **options,
    )  # fmt: skip


def join(kind: JoinKind, left: JoinSide, right: JoinSide, right_ttl: int = TTL) -> JoinFactory:
    return JoinFactory(
        ROWS, ROWS, kind, left, right, filter_nulls=(True,), left_ttl=TTL, right_ttl=right_ttl
    )


def over(preceding: int | None = None) -> OverFactory:
    return OverFactory(
        ROWS, (0,), CALLS, rowtime=None, is_rows=True, preceding=preceding, state_ttl=TTL
    )


_BY_ID = (SortColumn(1),)
_KEYED = JoinSide((0,), unique_key=(1,))
_ONE = JoinSide((0,), unique_key=(0,))
#: The operator, its output behind the columns of the input, and whether it takes rows back.
PLANS: dict[str, tuple[Any, int, bool]] = {
    "groups": (
        GroupAggregateFactory(ROWS, (0,), CALLS, retracts=True, update_before=True, state_ttl=TTL),
        -1,
        True,
    ),
    "first rows": (
        DeduplicateFactory(ROWS, (0,), None, keep_last=False, update_before=True, state_ttl=TTL),
        0,
        False,
    ),
    "last rows": (
        DeduplicateFactory(
            ROWS, (0,), None, keep_last=True, update_before=True, insert_only=False, state_ttl=TTL
        ),
        0,
        True,
    ),
    "upserts": (ChangelogNormalizeFactory(ROWS, (0,), update_before=True, state_ttl=TTL), 0, True),
    "materializer": (SinkMaterializerFactory(ROWS, (0,), None, state_ttl=TTL), 0, True),
    "ranking": (top_n(RankStrategy.RETRACT), 1, True),
    "ranking of inserts": (top_n(RankStrategy.APPEND), 1, False),
    "over": (over(), 3, False),
    "over rows": (over(2), 3, False),
    "over updates": (
        UpdatingOverFactory(
            ROWS, (0,), _BY_ID, CALLS, is_rows=True, update_before=True, state_ttl=TTL
        ),
        3,
        True,
    ),
    "join": (join(JoinKind.INNER, JoinSide((0,)), JoinSide((0,))), 3, True),
    "outer join": (join(JoinKind.FULL, _KEYED, JoinSide((0,)), right_ttl=2 * TTL), 3, True),
    "outer join of keys": (join(JoinKind.LEFT, _ONE, _ONE), 3, True),
    "anti join": (join(JoinKind.ANTI, _KEYED, _KEYED), 0, True),
}


def harness_of(name: str, **options: Any) -> TableHarness:
    plan, added, _ = PLANS[name]
    columns = [BigIntType()] * added if added >= 0 else []
    types = [*TYPES, *columns]
    if added < 0:
        types = [TYPES[0], *(call.type for call in CALLS)]
    if isinstance(plan, JoinFactory) and added:
        types = [*TYPES, *TYPES]
    elif isinstance(plan, UpdatingOverFactory | OverFactory):
        types = [*TYPES, *(call.type for call in CALLS)]
    made = TableHarness(plan, ROWS, types, **options)
    made.row_types.append(ROWS)
    return made


rows = st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 3), st.integers(-2, 2))
_Step = tuple[list[Change], int, int, bool]


@st.composite
def steps(draw: Any, *, takes_back: bool) -> list[_Step]:
    """Changes, their side, how much time passes before them, and whether a snapshot follows."""
    sides: list[list[Change]] = [
        draw(changelogs(rows, 24))
        if takes_back
        else [(I, row) for row in draw(st.lists(rows, max_size=24))]
        for _ in range(2)
    ]
    found: list[_Step] = []
    while any(sides):
        side = draw(st.integers(0, 1))
        side = side if sides[side] else 1 - side
        length = draw(st.integers(1, 5))
        time = draw(st.sampled_from([0, 0, 1, 4, 9, 10, 30]))
        found.append((sides[side][:length], side, time, draw(st.booleans())))
        sides[side] = sides[side][length:]
    return found


def run(name: str, given_steps: list[_Step], **options: Any) -> TableHarness:
    is_join = isinstance(PLANS[name][0], JoinFactory)
    with harness_of(name, **options) as harness:
        now = 1000
        harness.processing_time(now)
        for changes, side, time, snapshot in given_steps:
            now += time
            harness.processing_time(now)
            harness.feed(changes, side if is_join else 0)
            if snapshot:
                harness.end_epoch()
        harness.processing_time(now + 3 * TTL)
        harness.end_epoch()
        return harness


@pytest.mark.parametrize("long_lived", [False, True])
@pytest.mark.parametrize("name", PLANS)
def test_agree_with_no_background(
    name: str, long_lived: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    @examples(2)
    @given(data=st.data())
    def check(data: Any) -> None:
        drawn = data.draw(steps(takes_back=PLANS[name][2]))
        with monkeypatch.context() as patch:
            patch.setattr(key_context, "_ROUNDS", 1000)
            patch.setattr(key_context, "_AT_ONCE", 1)
            found = run(name, drawn, long_lived=long_lived)
            patch.setattr(key_context.ExpiredState, "watch", lambda *_: None)
            expected = run(name, drawn, long_lived=long_lived)
        assert found.changes == expected.changes
        assert list(found.state_entries()) == []

    check()


@pytest.mark.parametrize("name", PLANS)
def test_agree_with_a_clock_that_moves_while_the_processing_time_of_the_epoch_stands_still(
    name: str,
) -> None:
    """As in micro-batches: an epoch has one processing time, however long it takes."""

    @examples(3)
    @given(drawn=steps(takes_back=PLANS[name][2]))
    def check(drawn: list[_Step]) -> None:
        is_join = isinstance(PLANS[name][0], JoinFactory)
        outputs = []
        for stands_still in (False, True):
            with harness_of(name) as harness:
                now = 1000
                harness.processing_time(now)
                operator: Any = harness.operator
                if stands_still:
                    operator.keyed_state.clock = lambda: now  # noqa: B023 - of this very moment
                for changes, side, time, _ in drawn:
                    now += time
                    if not stands_still:
                        harness.time_passes(now)
                    harness.feed(changes, side if is_join else 0)
                outputs.append(harness.changes)
        assert outputs[0] == outputs[1]

    check()


@examples(10)
@given(drawn=steps(takes_back=True))
def test_groups_agree_with_a_model_that_has_time(drawn: list[_Step]) -> None:
    aggregates = [Aggregate("SUM", 2), Aggregate("MAX", 2), Aggregate("COUNT", 2, distinct=True)]
    model = GroupAggregate((0,), aggregates)
    model.ttl, model.now = TTL, 1000
    expected = []
    for changes, _, time, _ in drawn:
        model.now += time
        expected += [out for change in changes for out in model.process(*change)]
    assert run("groups", drawn).changes == expected


class _RowsOfKeys:
    """The first or the last row of each key, for as long as it lives.

    A last row is written again by one that is the same, and so lives longer; that is an update.
    """

    def __init__(self, *, keep_last: bool) -> None:
        self.keep_last = keep_last
        self.kept: dict[Row, tuple[Row, int]] = {}

    def process(self, now: int, kind: int, row: Row) -> list[Change]:
        key = row[:1]
        before, written = self.kept.get(key, ((), now))
        if written + TTL <= now:
            before = ()
            del self.kept[key]
        if not is_add(kind):
            return [(D, before)] if self.kept.pop(key, None) else []
        if before and not self.keep_last:
            return []
        self.kept[key] = row, now
        return [(UB, before), (UA, row)] if before else [(I, row)]


@pytest.mark.parametrize("long_lived", [False, True])
@pytest.mark.parametrize("name", ["first rows", "last rows", "upserts"])
def test_oracle_rows_of_keys_that_expire(name: str, long_lived: bool) -> None:
    @examples(10)
    @given(drawn=steps(takes_back=PLANS[name][2]))
    def check(drawn: list[_Step]) -> None:
        model = _RowsOfKeys(keep_last=name != "first rows")
        now, expected = 1000, []
        for changes, _, time, _ in drawn:
            now += time
            expected += [out for change in changes for out in model.process(now, *change)]
        assert run(name, drawn, long_lived=long_lived).changes == expected

    check()


@pytest.mark.parametrize("long_lived", [False, True])
def test_oracle_joined_rows_that_expire(long_lived: bool) -> None:
    """Each different row lives by itself, from when it last came or was taken back."""

    @examples(20)
    @given(drawn=steps(takes_back=True))
    def check(drawn: list[_Step]) -> None:
        sides: tuple[dict[Row, list[int]], dict[Row, list[int]]] = ({}, {})
        now = 1000
        expected: Counter[tuple[bool, Row]] = Counter()
        for changes, side, time, _ in drawn:
            now += time
            own, other = (
                {row: each for row, each in sides[at].items() if each[1] + TTL > now}
                for at in (side, 1 - side)
            )
            for kind, row in changes:
                count = own.pop(row, [0, 0])[0] + (1 if is_add(kind) else -1)
                if count > 0:
                    own[row] = [count, now]
                for met, (times, _) in other.items():
                    if row[0] is not None and row[0] == met[0]:
                        pair = (*row, *met) if side == 0 else (*met, *row)
                        expected[is_add(kind), pair] += times
            sides = (own, other) if side == 0 else (other, own)
        found = run("join", drawn, long_lived=long_lived).changes
        assert Counter((is_add(kind), row) for kind, row in found) == expected

    check()


@pytest.mark.parametrize("long_lived", [False, True])
@pytest.mark.parametrize("name", PLANS)
def test_what_is_kept_is_bounded(
    name: str, long_lived: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys never come again: at most twice those that are alive have entries, and few more."""
    per_epoch, least = 5, 5
    monkeypatch.setattr(key_context, "AT_SNAPSHOTS", least)
    sides = 2 if isinstance(PLANS[name][0], JoinFactory) else 1
    sizes = []
    with harness_of(name, long_lived=long_lived) as harness:
        for epoch in range(6 * TTL):
            harness.processing_time(epoch)
            for side in range(sides):
                new = [(I, (f"{epoch}.{n}", n, n)) for n in range(per_epoch)]
                harness.feed(new, side)
            harness.end_epoch()
            sizes.append(len(list(harness.state_entries())))
    alive = sizes[TTL - 1]
    assert alive < max(sizes) < 2.5 * alive


def test_buckets_of_one_key_are_emptied_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_context, "AT_SNAPSHOTS", 3)
    monkeypatch.setattr(key_context, "_AT_ONCE", 10**9)
    plan = join(JoinKind.INNER, JoinSide((0,)), JoinSide((0,)), right_ttl=0)
    with TableHarness(plan, ROWS, [*TYPES, *TYPES]) as harness:
        harness.row_types.append(ROWS)
        for now in range(20):
            harness.processing_time(now)
            harness.feed([(I, ("a", now, n)) for n in range(100)])
            harness.end_epoch()
        for now in range(20, 29):
            harness.processing_time(now)
            for _ in range(20):
                harness.end_epoch()
            assert len(list(harness.state_entries())) <= 32  # 2000 rows in 16 buckets
        found = harness.feed([(I, ("a", 0, 0))], 1)
        assert sorted(row[1] for _, row in found) == [19] * 100
        harness.processing_time(60)
        for _ in range(40):
            harness.end_epoch()
        assert len(list(harness.state_entries())) == 1  # the row of the right
