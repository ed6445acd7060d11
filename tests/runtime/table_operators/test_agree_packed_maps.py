"""Operators on maps as they are stored, beside the same on dictionaries, and beside the model.

A map with few entries is one bucket of bytes; with a limit of one entry per bucket most maps are
dictionaries of several.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.table_operators import test_group_aggregate as aggregates
from tests.runtime.table_operators import test_join as joins
from tests.runtime.table_operators import test_top_n as top_n
from tests.runtime.table_operators.model import Change, Join, TopN, materialised
from tests.runtime.table_operators.running import TableHarness
from tests.runtime.table_operators.strategies import appends, batches, changelogs, cuts
from tests.support.examples import examples

from millstream.runtime.operators.table.specs import (
    JoinKind,
    JoinSide,
    RankStrategy,
    SortColumn,
)
from millstream.runtime.operators.table.top_n import TopNFactory
from millstream.types.logical_types import BigIntType

if TYPE_CHECKING:
    from millstream.runtime.operators.table.join import JoinFactory

limits = st.sampled_from([1, 3, 128])
Step = tuple[int, list[Change], bool, int]


@st.composite
def steps_of(draw: Any, /, *, inserts: bool) -> list[Step]:
    """Batches of both inputs, whether a snapshot follows, and how much time passes."""
    sides = [
        draw(appends(rows, 24) if inserts else changelogs(rows, 12))
        for rows in (joins.left_rows, joins.right_rows)
    ]
    found: list[Step] = []
    while any(sides):
        side = draw(st.integers(0, 1))
        side = side if sides[side] else 1 - side
        length = draw(st.integers(1, 10))
        found.append((side, sides[side][:length], draw(st.booleans()), draw(st.integers(0, 4))))
        sides[side] = sides[side][length:]
    return found


def run(plan: JoinFactory, steps: list[Step], limit: int, *, long_lived: bool) -> list[Change]:
    is_half = plan.kind in (JoinKind.SEMI, JoinKind.ANTI)
    types = joins.BOTH[:3] if is_half else joins.BOTH
    now = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("millstream.state.packed_state._MOST_PER_BUCKET", limit)
        with TableHarness(plan, joins.LEFT, types, long_lived=long_lived) as harness:
            harness.row_types.append(joins.RIGHT)
            for side, part, snapshot, passed in steps:
                now += passed
                harness.processing_time(now)
                harness.feed(part, side)
                if snapshot:
                    harness.end_epoch()
            return harness.changes


@examples(16)
@given(
    steps=steps_of(inserts=True),
    kind=st.sampled_from(list(JoinKind)),
    limit=limits,
    long_lived=st.booleans(),
)
def test_joins_of_inserts_agree_with_the_model(
    steps: list[Step], kind: JoinKind, limit: int, long_lived: bool
) -> None:
    model = Join(kind.value, joins.KEYS, (3, 3))
    expected = [o for side, part, *_ in steps for c in part for o in model.process(side, *c)]
    found = run(joins.plan_of(kind), steps, limit, long_lived=long_lived)
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert materialised(found) == materialised(expected)


@examples(16)
@given(
    steps=steps_of(inserts=False),
    kind=st.sampled_from(list(JoinKind)),
    ttl=st.tuples(st.sampled_from([0, 3]), st.sampled_from([0, 5])),
    keyed=st.booleans(),
    limit=st.sampled_from([1, 3]),
    long_lived=st.booleans(),
)
def test_joins_agree_whatever_their_maps_are(
    steps: list[Step],
    kind: JoinKind,
    ttl: tuple[int, int],
    keyed: bool,
    limit: int,
    long_lived: bool,
) -> None:
    """Also where rows expire, and where a row replaces another by a key, which these are not."""
    options: dict[str, Any] = {"left_ttl": ttl[0], "right_ttl": ttl[1]}
    if keyed:
        options |= {"left": JoinSide((0,), (1,)), "right": JoinSide((1,), (1,))}
    plan = joins.plan_of(kind, **options)
    plain = run(plan, steps, 128, long_lived=False)
    assert sorted(run(plan, steps, limit, long_lived=long_lived), key=repr) == sorted(
        plain, key=repr
    )


@examples(12)
@given(
    changes=appends(aggregates.rows, 60),
    plan=cuts(),
    limit=limits,
    long_lived=st.booleans(),
    retracts=st.booleans(),
)
def test_distinct_aggregates_of_inserts_agree_with_the_model(
    changes: list[Change],
    plan: list[tuple[int, bool]],
    limit: int,
    long_lived: bool,
    retracts: bool,
) -> None:
    names = ["distinct", "sum distinct where", "count"]
    model = aggregates.model_of(names)
    expected = [out for change in changes for out in model.process(*change)]
    factory = aggregates.factory_of(names, retracts=retracts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("millstream.state.packed_state._MOST_PER_BUCKET", limit)
        with aggregates.harness_of(factory, long_lived=long_lived) as harness:
            aggregates.run(harness, changes, plan)
            assert harness.changes == expected


@pytest.mark.parametrize("end", [3, 101])
def test_long_top_n_agrees_with_the_model(end: int) -> None:
    """Around the number up to which the rows of a key are one bucket."""
    model = TopN((0,), [(2, False)], 1, end, output_rank=True)
    changes: list[Change] = [(0, ("a", n, n * 7919 % 211, "x" * (n % 3))) for n in range(150)]
    expected = [out for change in changes for out in model.process(*change)]
    plan = TopNFactory(top_n.ROWS, (0,), (SortColumn(2),), 1, end, True, RankStrategy.APPEND, True)
    types = [*top_n.TYPES, BigIntType()]
    with TableHarness(plan, top_n.ROWS, types) as harness:
        for part, _ in batches(changes, [(40, True)]):
            harness.feed(part)
            harness.end_epoch()
        assert harness.changes == expected
