"""Top-N, beside the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.table_operators.model import (
    UA,
    Change,
    D,
    I,
    Row,
    TopN,
    TopNOfUpdates,
    materialised,
)
from tests.runtime.table_operators.running import TableHarness
from tests.runtime.table_operators.strategies import appends, batches, changelogs, cuts
from tests.support.examples import examples

from millstream.errors import TypeMismatchError
from millstream.runtime.operators.table.specs import RankStrategy, SortColumn
from millstream.runtime.operators.table.top_n import TopNFactory
from millstream.state.packed_state import PackedMaps
from millstream.types.logical_types import BigIntType, RowType, VarCharType

ROWS = RowType.of(k=VarCharType(5), id=BigIntType(), n=BigIntType(), s=VarCharType(5))
TYPES = [field.type for field in ROWS]
rows = st.tuples(
    st.sampled_from(["a", None]),
    st.integers(0, 5),
    st.one_of(st.none(), st.integers(-3, 3)),
    st.sampled_from(["", "x", "y"]),
)
ranges = st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 3), (3, 5)])
descendings = st.booleans()


def run(
    plan: TopNFactory, changes: list[Change], cut: list[tuple[int, bool]], **options: Any
) -> list[Change]:
    types = [*TYPES, BigIntType()] if plan.output_rank else TYPES
    with TableHarness(plan, ROWS, types, **options) as harness:
        for part, snapshot in batches(changes, cut):
            harness.feed(part)
            if snapshot:
                harness.end_epoch()
        return harness.changes


@pytest.mark.parametrize("long_lived", [False, True])
@examples(13)
@given(
    changes=changelogs(rows),
    cut=cuts(),
    numbers=ranges,
    output_rank=st.booleans(),
    descending=descendings,
    update_before=st.booleans(),
)
def test_retracting_top_n_agrees_with_the_model(
    long_lived: bool,
    changes: list[Change],
    cut: list[tuple[int, bool]],
    numbers: tuple[int, int],
    output_rank: bool,
    descending: bool,
    update_before: bool,
) -> None:
    model = TopN(
        (0,), [(2, descending)], *numbers, output_rank=output_rank, update_before=update_before
    )
    expected = [out for change in changes for out in model.process(*change)]
    order = (SortColumn(2, descending),)
    plan = TopNFactory(
        ROWS, (0,), order, *numbers, output_rank, RankStrategy.RETRACT, update_before
    )
    assert run(plan, changes, cut, long_lived=long_lived) == expected
    if update_before:
        final = materialised(expected)
        if output_rank:
            assert set(final.values()) <= {1}


@pytest.mark.parametrize("long_lived", [False, True])
@examples(13)
@given(
    changes=appends(rows),
    cut=cuts(),
    numbers=ranges,
    output_rank=st.booleans(),
    descending=descendings,
)
def test_appending_top_n_agrees_with_the_model(
    long_lived: bool,
    changes: list[Change],
    cut: list[tuple[int, bool]],
    numbers: tuple[int, int],
    output_rank: bool,
    descending: bool,
) -> None:
    model = TopN((0,), [(2, descending)], *numbers, output_rank=output_rank)
    expected = [out for change in changes for out in model.process(*change)]
    plan = TopNFactory(
        ROWS,
        (0,),
        (SortColumn(2, descending),),
        *numbers,
        output_rank,
        RankStrategy.APPEND,
        update_before=True,
    )
    found = run(plan, changes, cut, long_lived=long_lived)
    if numbers == (1, 1):  # -U and +U for what are -D and +I else
        assert materialised(found) == materialised(expected)
        assert [row for _, row in found] == [row for _, row in expected]
        assert D not in {kind for kind, _ in found}
    else:
        assert found == expected


@examples(30)
@given(
    data=st.data(),
    cut=cuts(),
    numbers=ranges,
    output_rank=st.booleans(),
    descending=descendings,
    strategy=st.sampled_from([RankStrategy.APPEND, RankStrategy.RETRACT]),
    state_ttl=st.sampled_from([0, 10**9]),
)
def test_mini_batches_give_what_is_different_behind_them(
    data: Any,
    cut: list[tuple[int, bool]],
    numbers: tuple[int, int],
    output_rank: bool,
    descending: bool,
    strategy: RankStrategy,
    state_ttl: int,
) -> None:
    changes = data.draw(appends(rows) if strategy is RankStrategy.APPEND else changelogs(rows))
    plan = TopNFactory(
        ROWS, (0,), (SortColumn(2, descending),), *numbers, output_rank, strategy,
        update_before=True, state_ttl=state_ttl,
    )  # fmt: skip
    plain = replace(plan, mini_batch=False)
    mini = replace(plan, mini_batch=True)
    found, one_by_one = run(mini, changes, cut), run(plain, changes, cut)
    assert materialised(found) == materialised(one_by_one)
    assert len(found) <= len(one_by_one)
    assert {kind for kind, _ in found} <= {kind for kind, _ in one_by_one}
    assert run(mini, changes, [(1, True)]) == run(plain, changes, [(1, True)])


@pytest.mark.parametrize("end", [1, 3])
def test_a_mini_batch_updates_each_place_once(end: int) -> None:
    plan = plan_of(end=end, mini_batch=True)
    columns = [*TYPES, BigIntType()] if plan.output_rank else TYPES
    with TableHarness(plan, ROWS, columns) as harness:
        batch: list[Change] = [(I, ("a", n, -n if n % 2 else n, "x")) for n in range(100)]
        assert len(harness.feed(batch)) == end
        found = harness.feed([(I, ("a", n, -1000 - n, "x")) for n in range(100)])
        assert len(found) == 2 * end
        assert harness.feed(batch) == []


def rising(changes: list[Change], *, descending: bool) -> list[Change]:
    """Updates of rows by their id, of which none falls back."""
    best: dict[Any, Row] = {}
    out: list[Change] = []
    for _, (key, number, n, s) in changes:
        value = 0 if n is None else n
        row: Row = (key, number, value if descending else -value, s)
        known = best.get((key, number))
        if known is None:
            out.append((I, row))
        else:
            better = row[2] >= known[2] if descending else row[2] <= known[2]
            row = row if better else (*known[:3], s)
            out.append((UA, row))
        best[key, number] = row
    return out


@pytest.mark.parametrize("long_lived", [False, True])
@examples(13)
@given(
    appended=appends(rows),
    cut=cuts(),
    numbers=st.sampled_from([(1, 2), (1, 4), (2, 3), (3, 5)]),
    output_rank=st.booleans(),
    descending=descendings,
)
def test_top_n_of_updates_agrees_with_the_model(
    long_lived: bool,
    appended: list[Change],
    cut: list[tuple[int, bool]],
    numbers: tuple[int, int],
    output_rank: bool,
    descending: bool,
) -> None:
    changes = rising(appended, descending=descending)
    model = TopNOfUpdates((0, 1), (0,), [(2, descending)], *numbers, output_rank=output_rank)
    expected = [out for change in changes for out in model.process(*change)]
    plan = TopNFactory(
        ROWS,
        (0,),
        (SortColumn(2, descending),),
        *numbers,
        output_rank,
        RankStrategy.UPDATE_FAST,
        update_before=True,
        row_key=(0, 1),
    )
    assert run(plan, changes, cut, long_lived=long_lived) == expected
    found = run(replace(plan, mini_batch=True), changes, cut, long_lived=long_lived)
    assert materialised(found) == materialised(expected)


def plan_of(**options: Any) -> TopNFactory:
    given: dict[str, Any] = {
        "keys": (0,),
        "order": (SortColumn(2),),
        "start": 1,
        "end": 2,
        "output_rank": False,
        "strategy": RankStrategy.APPEND,
        "update_before": True,
        **options,
    }
    return TopNFactory(ROWS, **given)


def test_nulls_stand_where_they_are_wanted() -> None:
    changes: list[Change] = [(I, ("a", i, n, "")) for i, n in enumerate([1, None, 0])]
    order = (SortColumn(2, nulls_first=False),)
    found = run(plan_of(order=order, end=3, output_rank=True), changes, [(9, False)])
    assert materialised(found) == {
        ("a", 2, 0, "", 1): 1,
        ("a", 0, 1, "", 2): 1,
        ("a", 1, None, "", 3): 1,
    }


def test_rows_expire() -> None:
    with TableHarness(plan_of(state_ttl=10, end=1), ROWS, TYPES) as harness:
        harness.feed([(I, ("a", 1, 1, ""))])
        harness.processing_time(9)
        assert harness.feed([(I, ("a", 2, 2, ""))]) == []
        harness.processing_time(10)
        assert harness.feed([(I, ("a", 3, 3, ""))]) == [(I, ("a", 3, 3, ""))]


def test_appending_top_n_refuses_deletions() -> None:
    with pytest.raises(TypeMismatchError, match="got a retraction, but its strategy is append"):
        run(plan_of(), [(D, ("a", 1, 1, ""))], [(1, False)])


def test_rows_behind_the_last_are_told_without_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of keys that nothing is known of, because there are many or the operator is new."""
    monkeypatch.setattr("millstream.runtime.operators.table.top_n._MOST_LAST", 1)
    first: list[Change] = [(I, (key, n, n, "")) for key in "abc" for n in (1, 2, 3)]
    with TableHarness(plan_of(), ROWS, TYPES, long_lived=True) as harness:
        harness.feed(first)

        def refuse(_: PackedMaps, keys: object) -> None:
            pytest.fail(f"state of {keys} is read")

        with monkeypatch.context() as patch:
            patch.setattr(PackedMaps, "fetch_all_distinct", refuse)
            assert harness.feed([(I, (key, 4, 2, "")) for key in "abc"]) == []
        taken = [(D, ("a", 2, 2, "")), (I, ("a", 5, 0, ""))]
        assert harness.feed([(I, ("a", 5, 0, "")), (I, ("b", 5, 9, ""))]) == taken
        harness.crash()
        assert harness.feed([(I, ("c", 4, 2, "")), (I, ("c", 4, 3, ""))]) == [
            (I, ("c", 4, 2, "")),
            (I, ("c", 4, 3, "")),
        ]


def test_many_rows_of_one_key_are_kept_in_parts() -> None:
    plan = plan_of(strategy=RankStrategy.RETRACT, end=3)
    changes: list[Change] = [(I, ("a", n, n * 7 % 1009, "")) for n in range(1009)]
    with TableHarness(plan, ROWS, TYPES) as harness:
        harness.feed(changes)
        harness.end_epoch()
        assert len(list(harness.state_entries())) > 4
        harness.feed([(D, row) for _, row in changes if row[2] < 500])
        harness.end_epoch()
        assert {row[2] for row in materialised(harness.changes)} == {500, 501, 502}
        harness.feed([(D, row) for _, row in changes if row[2] >= 500])
        harness.end_epoch()
        assert list(harness.state_entries()) == []
