"""Deduplication, ChangelogNormalize, the sink's materializer and DropUpdateBefore."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.table_operators.model import (
    UA,
    UB,
    Change,
    D,
    Deduplicate,
    I,
    SinkMaterializer,
    materialised,
)
from tests.runtime.table_operators.running import TableHarness
from tests.runtime.table_operators.strategies import appends, batches, changelogs, cuts
from tests.support.examples import examples

from millstream.errors import TypeMismatchError
from millstream.expressions.nodes import InputReference
from millstream.runtime.operators.table.deduplicate import (
    ChangelogNormalizeFactory,
    DeduplicateFactory,
)
from millstream.runtime.operators.table.sink_materializer import (
    DropUpdateBeforeFactory,
    SinkMaterializerFactory,
)
from millstream.types.logical_types import BigIntType, BooleanType, RowType, VarCharType

ROWS = RowType.of(k=VarCharType(5), t=BigIntType(), v=VarCharType(5), f=BooleanType())
TYPES = [field.type for field in ROWS]
rows = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.integers(0, 4),
    st.sampled_from(["x", "y", "", None]),
    st.sampled_from([True, False, None]),
)


def run(factory: Any, changes: list[Change], plan: list[tuple[int, bool]], **options: Any) -> Any:
    with TableHarness(factory, ROWS, TYPES, **options) as harness:
        for part, snapshot in batches(changes, plan):
            harness.feed(part)
            if snapshot:
                harness.end_epoch()
        return harness.changes


@pytest.mark.parametrize("long_lived", [False, True])
@examples(10)
@given(
    changes=appends(rows),
    plan=cuts(),
    keep_last=st.booleans(),
    rowtime=st.sampled_from([None, 1]),
    update_before=st.booleans(),
    generate_insert=st.booleans(),
)
def test_deduplication_agrees_with_the_model(
    long_lived: bool,
    changes: list[Change],
    plan: list[tuple[int, bool]],
    keep_last: bool,
    rowtime: int | None,
    update_before: bool,
    generate_insert: bool,
) -> None:
    if rowtime is None:  # else every row is +U, also one that stays the same
        generate_insert = True
    options: dict[str, Any] = {
        "keep_last": keep_last,
        "rowtime": rowtime,
        "update_before": update_before,
        "generate_insert": generate_insert,
    }
    model = Deduplicate((0,), **options)
    expected = [out for change in changes for out in model.process(*change)]
    factory = DeduplicateFactory(ROWS, (0,), **options)
    assert run(factory, changes, plan, long_lived=long_lived) == expected
    small = DeduplicateFactory(ROWS, (0,), mini_batch=True, **options)
    found = run(small, changes, plan)
    assert materialised(found, (0,)) == materialised(expected, (0,))


_FAR = 2**61
far_rows = st.tuples(
    st.sampled_from(["a", "b", "c", None]),
    st.sampled_from([-_FAR, 0, 1, _FAR]),
    st.sampled_from(["x", "y"]),
    st.just(True),
)


@examples(10)
@given(changes=appends(far_rows), plan=cuts(), keep_last=st.booleans(), mini_batch=st.booleans())
def test_times_that_are_far_apart_are_compared_one_by_one(
    changes: list[Change], plan: list[tuple[int, bool]], *, keep_last: bool, mini_batch: bool
) -> None:
    model = Deduplicate((0,), keep_last=keep_last, rowtime=1)
    expected = [out for change in changes for out in model.process(*change)]
    factory = DeduplicateFactory(
        ROWS, (0,), 1, keep_last=keep_last, update_before=True, mini_batch=mini_batch
    )
    found = run(factory, changes, plan)
    assert materialised(found, (0,)) == materialised(expected, (0,))
    assert mini_batch or found == expected


@pytest.mark.parametrize("mini_batch", [False, True])
def test_rows_that_are_all_too_early_change_nothing(*, mini_batch: bool) -> None:
    factory = DeduplicateFactory(
        ROWS, (0,), 1, keep_last=True, update_before=True, mini_batch=mini_batch
    )
    late = [(I, (key, 5, "x", True)) for key in ("a", "b")]
    early = [(I, (key, 4, "y", True)) for key in ("b", "a", "b")]
    assert run(factory, [*late, *early], [(2, True), (3, True)]) == late


def test_without_inserts_every_last_row_is_an_update() -> None:
    factory = DeduplicateFactory(
        ROWS, (0,), None, keep_last=True, update_before=False, generate_insert=False
    )
    row = ("a", 1, "x", True)
    assert run(factory, [(I, row), (I, row)], [(2, True)]) == [(UA, row), (UA, row)]


def test_deduplication_of_inserts_refuses_others() -> None:
    factory = DeduplicateFactory(ROWS, (0,), None, keep_last=False, update_before=False)
    with pytest.raises(TypeMismatchError, match="only has inserts"):
        run(factory, [(D, ("a", 1, "x", True))], [(1, False)])


def test_rows_are_forgotten() -> None:
    factory = DeduplicateFactory(
        ROWS, (0,), None, keep_last=False, update_before=False, state_ttl=100
    )
    with TableHarness(factory, ROWS, TYPES) as harness:
        harness.feed([(I, ("a", 1, "x", True))])
        harness.processing_time(99)
        assert harness.feed([(I, ("a", 2, "x", True))]) == []
        harness.processing_time(100)
        assert harness.feed([(I, ("a", 3, "x", True))]) == [(I, ("a", 3, "x", True))]


@pytest.mark.parametrize("long_lived", [False, True])
@examples(10)
@given(
    changes=changelogs(rows, key=(0,)),
    plan=cuts(),
    update_before=st.booleans(),
    drops=st.booleans(),
)
def test_upserts_become_a_full_changelog(
    long_lived: bool,
    changes: list[Change],
    plan: list[tuple[int, bool]],
    update_before: bool,
    drops: bool,
) -> None:
    upserts = [change for change in changes if change[0] != UB] if drops else changes
    model = Deduplicate((0,), keep_last=True, update_before=update_before)
    expected = [out for change in upserts for out in model.process(*change)]
    factory = ChangelogNormalizeFactory(ROWS, (0,), update_before=update_before)
    found = run(factory, upserts, plan, long_lived=long_lived)
    assert found == expected
    if update_before:
        assert materialised(found) == materialised(changes)
    small = ChangelogNormalizeFactory(ROWS, (0,), update_before=update_before, mini_batch=True)
    assert materialised(run(small, upserts, plan), (0,)) == materialised(changes, (0,))


def test_rows_that_do_not_meet_the_condition_do_not_exist() -> None:
    condition = InputReference(3, "f", BooleanType())
    factory = ChangelogNormalizeFactory(ROWS, (0,), update_before=True, condition=condition)
    one, two = ("a", 1, "x", True), ("a", 2, "y", None)
    changes: list[Change] = [(I, two), (UA, one), (UA, two), (D, two), (I, one), (D, two)]
    assert run(factory, changes, [(4, True)]) == [(I, one), (D, one), (I, one), (D, one)]


@examples(13)
@given(changes=changelogs(rows), plan=cuts(), upsert_key=st.sampled_from([None, (1,), (1, 2, 3)]))
def test_the_sink_has_the_last_row_of_its_key(
    changes: list[Change],
    plan: list[tuple[int, bool]],
    upsert_key: tuple[int, ...] | None,
) -> None:
    model = SinkMaterializer((0,), upsert_key)
    expected = [out for change in changes for out in model.process(*change)]
    factory = SinkMaterializerFactory(ROWS, (0,), upsert_key)
    assert run(factory, changes, plan) == expected


def test_updates_before_are_dropped() -> None:
    row = ("a", 1, "x", True)
    changes: list[Change] = [(I, row), (UB, row), (UA, row), (UB, row), (D, row)]
    found = run(DropUpdateBeforeFactory(), changes, [(3, False)])
    assert found == [(I, row), (UA, row), (D, row)]
