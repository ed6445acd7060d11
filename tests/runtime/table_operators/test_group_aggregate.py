"""GROUP BY over changelogs, beside the model."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
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
    materialised,
)
from tests.runtime.table_operators.running import TableHarness
from tests.runtime.table_operators.strategies import appends, batches, changelogs, cuts
from tests.support.examples import examples

from millstream.errors import ProgramError, TypeMismatchError
from millstream.runtime.operators.table.aggregate_calls import can_be_partial, partial_fields
from millstream.runtime.operators.table.group_aggregate import (
    GroupAggregateFactory,
    LocalGroupAggregateFactory,
)
from millstream.runtime.operators.table.specs import AggregateCall
from millstream.types.logical_types import (
    ArrayType,
    BigIntType,
    BooleanType,
    DecimalType,
    DoubleType,
    IntType,
    MultisetType,
    RowType,
    TinyIntType,
    VarCharType,
)

#: key, amount, price, name, is it counted
ROWS = RowType.of(
    k=VarCharType(10), n=IntType(), p=DecimalType(10, 2), s=VarCharType(10), f=BooleanType()
)
K, N, P, S, F = range(5)


class SumOrZero(Aggregate):
    def result(self, values: list[Any]) -> Any:
        found = super().result(values)
        return Decimal() if found is None else found


rows = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.one_of(st.none(), st.integers(-3, 3), st.just(2**31 - 1)),
    st.one_of(st.none(), st.sampled_from(["0.00", "-1.05", "2.50", "99999999.99"]).map(Decimal)),
    st.one_of(st.none(), st.sampled_from(["", "x", "y", "zz"])),
    st.sampled_from([True, False, None]),
)

#: The call, and the model's.
CALLS: dict[str, tuple[AggregateCall, Aggregate]] = {
    "count rows": (AggregateCall("COUNT", (), BigIntType()), Aggregate("COUNT")),
    "count": (AggregateCall("COUNT", (N,), BigIntType()), Aggregate("COUNT", N)),
    "sum": (AggregateCall("SUM", (N,), IntType()), Aggregate("SUM", N, bits=32)),
    "sum or zero": (AggregateCall("$SUM0", (P,), DecimalType(38, 2)), SumOrZero("SUM", P)),
    "sum of decimals": (AggregateCall("SUM", (P,), DecimalType(38, 2)), Aggregate("SUM", P)),
    "average": (AggregateCall("AVG", (N,), IntType()), Aggregate("AVG", N)),
    "average of decimals": (
        AggregateCall("AVG", (P,), DecimalType(38, 6)),
        Aggregate("AVG", P, digits=6),
    ),
    "min": (AggregateCall("MIN", (N,), IntType()), Aggregate("MIN", N)),
    "max": (AggregateCall("MAX", (P,), DecimalType(10, 2)), Aggregate("MAX", P)),
    "max of strings": (AggregateCall("MAX", (S,), VarCharType(10)), Aggregate("MAX", S)),
    "min of booleans": (AggregateCall("MIN", (F,), BooleanType()), Aggregate("MIN", F)),
    "and": (AggregateCall("BOOL_AND", (F,), BooleanType()), Aggregate("MIN", F)),
    "or": (AggregateCall("BOOL_OR", (F,), BooleanType()), Aggregate("MAX", F)),
    "first": (AggregateCall("FIRST_VALUE", (S,), VarCharType(10)), Aggregate("FIRST_VALUE", S)),
    "last": (AggregateCall("LAST_VALUE", (N,), IntType()), Aggregate("LAST_VALUE", N)),
    "list": (AggregateCall("LISTAGG", (S,), VarCharType(100)), Aggregate("LISTAGG", S)),
    "array": (AggregateCall("ARRAY_AGG", (N,), ArrayType(IntType())), Aggregate("ARRAY_AGG", N)),
    "distinct": (
        AggregateCall("COUNT", (N,), BigIntType(), distinct=True),
        Aggregate("COUNT", N, distinct=True),
    ),
    "sum distinct where": (
        AggregateCall("SUM", (N,), IntType(), filter=F, distinct=True),
        Aggregate("SUM", N, condition=F, distinct=True, bits=32),
    ),
    "max where": (
        AggregateCall("MAX", (N,), IntType(), filter=F),
        Aggregate("MAX", N, condition=F),
    ),
}
PARTIAL = ["count rows", "count", "sum", "sum of decimals", "average", "average of decimals"]


def factory_of(names: list[str], **options: Any) -> GroupAggregateFactory:
    calls = tuple(CALLS[name][0] for name in names)
    given: dict[str, Any] = {"keys": (K,), "retracts": True, "update_before": True, **options}
    return GroupAggregateFactory(ROWS, aggregates=calls, **given)


def harness_of(factory: GroupAggregateFactory, **options: Any) -> TableHarness:
    types = [ROWS.fields[index].type for index in factory.keys]
    return TableHarness(factory, ROWS, [*types, *(c.type for c in factory.aggregates)], **options)


def model_of(names: list[str], **options: Any) -> GroupAggregate:
    given: dict[str, Any] = {"keys": (K,), **options}
    return GroupAggregate(aggregates=[CALLS[name][1] for name in names], **given)


def run(harness: TableHarness, changes: list[Change], plan: list[tuple[int, bool]]) -> None:
    for part, snapshot in batches(changes, plan):
        harness.feed(part)
        if snapshot:
            harness.end_epoch()


@pytest.mark.parametrize("long_lived", [False, True])
@examples(8)
@given(
    changes=changelogs(rows),
    plan=cuts(),
    names=st.lists(st.sampled_from(sorted(CALLS)), max_size=5, unique=True),
    update_before=st.booleans(),
    keys=st.sampled_from([(K,), (), (K, F), (N,)]),
)
def test_agree_with_the_model(
    long_lived: bool,
    changes: list[Change],
    plan: list[tuple[int, bool]],
    names: list[str],
    update_before: bool,
    keys: tuple[int, ...],
) -> None:
    if not keys and not names:
        names = ["count rows"]
    factory = factory_of(names, keys=keys, update_before=update_before)
    model = model_of(names, keys=keys, update_before=update_before)
    expected = [out for change in changes for out in model.process(*change)]
    with harness_of(factory, long_lived=long_lived) as harness:
        run(harness, changes, plan)
        assert harness.changes == expected
    if update_before:
        assert set(materialised(expected).values()) <= {1}


@examples(8)
@given(
    changes=appends(rows),
    plan=cuts(),
    names=st.lists(st.sampled_from(sorted(CALLS)), min_size=1, max_size=5, unique=True),
)
def test_agree_with_the_model_where_rows_only_come(
    changes: list[Change], plan: list[tuple[int, bool]], names: list[str]
) -> None:
    model = model_of(names)
    expected = [out for change in changes for out in model.process(*change)]
    with harness_of(factory_of(names, retracts=False)) as harness:
        run(harness, changes, plan)
        assert harness.changes == expected


@examples(8)
@given(
    changes=changelogs(rows),
    plan=cuts(),
    names=st.lists(st.sampled_from(sorted(CALLS)), min_size=1, max_size=5, unique=True),
)
def test_mini_batches_give_one_change_per_key_and_batch(
    changes: list[Change], plan: list[tuple[int, bool]], names: list[str]
) -> None:
    model = model_of(names)
    expected = [out for change in changes for out in model.process(*change)]
    with harness_of(factory_of(names, mini_batch=True)) as harness:
        for part, snapshot in batches(changes, plan):
            out = harness.feed(part)
            seen = [row[0] for kind, row in out if kind != UB]
            assert len(seen) == len(set(seen))
            if snapshot:
                harness.end_epoch()
        assert materialised(harness.changes) == materialised(expected)


@examples(6)
@given(changes=changelogs(rows), plan=cuts())
def test_partial_aggregates_ahead_of_the_exchange_change_nothing(
    changes: list[Change], plan: list[tuple[int, bool]]
) -> None:
    final = factory_of(PARTIAL, mini_batch=True, merges=True)
    local = LocalGroupAggregateFactory(ROWS, (K,), final.aggregates, retracts=True)
    assert can_be_partial(final.aggregates, ROWS, retracts=True)
    fields = partial_fields(final.aggregates, ROWS, retracts=True)
    model = model_of(PARTIAL)
    expected = [out for change in changes for out in model.process(*change)]
    with (
        TableHarness(local, ROWS, [pa.string(), *(each.type for each in fields)]) as first,
        harness_of(final) as second,
    ):
        for part, snapshot in batches(changes, plan):
            before = len(first.batches)
            first.feed(part)
            for batch in first.batches[before:]:
                second.process_batch(batch)
            if snapshot:
                second.end_epoch()
        assert materialised(second.changes) == materialised(expected)


def test_minimum_of_rows_taken_back_is_not_partial() -> None:
    calls = [CALLS["min"][0]]
    assert not can_be_partial(calls, ROWS, retracts=True)
    assert can_be_partial(calls, ROWS, retracts=False)
    assert not can_be_partial([CALLS["distinct"][0]], ROWS, retracts=False)


def row(k: str, n: int) -> tuple[Any, ...]:
    return (k, n, None, None, True)


def test_kinds_are_those_of_flink() -> None:
    with harness_of(factory_of(["sum"])) as harness:
        assert harness.feed([(I, row("a", 1))]) == [(I, ("a", 1))]
        assert harness.feed([(I, row("a", 0))]) == []
        assert harness.feed([(I, row("a", 2)), (D, row("a", 1))]) == [
            (UB, ("a", 1)),
            (UA, ("a", 3)),
            (UB, ("a", 3)),
            (UA, ("a", 2)),
        ]
        assert harness.feed([(D, row("a", 0)), (D, row("a", 2)), (I, row("a", 5))]) == [
            (D, ("a", 2)),
            (I, ("a", 5)),
        ]


def test_taking_from_nothing_does_nothing() -> None:
    with harness_of(factory_of(["count rows"])) as harness:
        assert harness.feed([(D, row("a", 1)), (I, row("a", 2)), (UB, row("b", 1))]) == [
            (I, ("a", 1))
        ]
        harness.end_epoch()
        assert harness.feed([(D, row("a", 2)), (D, row("a", 2))]) == [(D, ("a", 1))]
        harness.end_epoch()
        assert list(harness.state_entries()) == []


def test_nothing_is_left_of_keys_without_rows() -> None:
    names = ["max", "min", "distinct", "array"]
    with harness_of(factory_of(names)) as harness:
        harness.feed([(I, row("a", n)) for n in range(300)])
        harness.end_epoch()
        assert harness.state_entries()
        harness.feed([(D, row("a", n)) for n in range(300)])
        harness.end_epoch()
        assert list(harness.state_entries()) == []


def test_state_expires_and_unchanged_results_are_repeated() -> None:
    factory = factory_of(["sum", "distinct"], state_ttl=100)
    with harness_of(factory) as harness:
        harness.processing_time(1000)
        assert harness.feed([(I, row("a", 1))]) == [(I, ("a", 1, 1))]
        harness.processing_time(1099)
        assert harness.feed([(I, row("a", 0))]) == [(UB, ("a", 1, 1)), (UA, ("a", 1, 2))]
        assert harness.feed([(I, row("a", 0))]) == [(UB, ("a", 1, 2)), (UA, ("a", 1, 2))]
        harness.processing_time(1199)
        assert harness.feed([(D, row("a", 1))]) == []
        assert harness.feed([(I, row("a", 1))]) == [(I, ("a", 1, 1))]


def test_global_aggregate_of_an_empty_batch_job_has_one_row() -> None:
    factory = factory_of(["count rows", "sum"], keys=(), retracts=False)
    with harness_of(factory, batch_mode=True) as harness:
        harness.finish()
        assert harness.changes == [(I, (0, None))]
    with harness_of(factory) as harness:
        harness.finish()
        assert harness.changes == []


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_state_goes_with_its_keys(parallelism: int) -> None:
    factory = factory_of(["sum", "distinct", "max"])
    with harness_of(factory) as whole:
        whole.feed([(I, row(f"k{n % 7}", n)) for n in range(40)])
        whole.end_epoch()
        stored = dict(whole._store.entries)
    out: list[Change] = []
    for subtask in range(parallelism):
        with harness_of(factory, subtask=subtask, parallelism=parallelism) as part:
            part._committed = (stored, *part._committed[1:])
            part.crash()
            mine = [
                change
                for change in [(I, row(f"k{n}", 100)) for n in range(7)]
                if key_subtask(change[1][0], parallelism) == subtask
            ]
            out += part.feed(mine)
    expected = [sum(range(n, 40, 7)) + 100 for n in range(7)]
    assert sorted(r for kind, r in out if kind == UA) == [
        (f"k{n}", expected[n], len(range(n, 40, 7)) + 1, None) for n in range(7)
    ]


def key_subtask(key: str, parallelism: int) -> int:
    from millstream.state.key_codec import key_group, subtask_of

    return subtask_of(key_group(key, 128), 128, parallelism)


def test_unknown_aggregate_is_refused_by_name() -> None:
    calls = (AggregateCall("MEDIAN", (N,), IntType()),)
    factory = GroupAggregateFactory(ROWS, (K,), calls, retracts=False, update_before=True)
    with pytest.raises(ProgramError, match="there is no aggregate MEDIAN"):
        factory.create()


def test_a_plan_that_lies_about_its_input_is_refused() -> None:
    with (
        harness_of(factory_of(["sum"], retracts=False)) as harness,
        pytest.raises(TypeMismatchError, match="got a retraction, but its input is insert-only"),
    ):
        harness.feed([(D, row("a", 1))])


def test_collect_counts_values() -> None:
    calls = (AggregateCall("COLLECT", (S,), MultisetType(VarCharType(10))),)
    factory = GroupAggregateFactory(ROWS, (K,), calls, retracts=True, update_before=False)
    one, two = ("a", 1, None, "x", None), ("a", 1, None, "y", None)
    with harness_of(factory) as harness:
        assert harness.feed([(I, one), (I, two), (I, one)])[-1] == (
            UA,
            ("a", [("x", 2), ("y", 1)]),
        )
        harness.end_epoch()
        assert harness.feed([(D, one), (D, two)])[-1] == (UA, ("a", [("x", 1)]))


def test_variance_and_deviation() -> None:
    types = RowType.of(k=TinyIntType(), x=DoubleType())
    functions = ["VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP"]
    calls = tuple(AggregateCall(each, (1,), DoubleType()) for each in functions)
    factory = GroupAggregateFactory(types, (0,), calls, retracts=True, update_before=False)
    model = GroupAggregate((0,), [Aggregate(each, 1) for each in functions], update_before=False)
    changes: list[Change] = [(I, (1, x)) for x in (1.0, 4.0, None, 6.5)]
    changes += [(D, (1, 4.0)), (I, (1, -3.0))]
    with TableHarness(factory, types, [pa.int8(), *[pa.float64()] * 4]) as harness:
        found = harness.feed(changes)
    expected = [out for change in changes for out in model.process(*change)]
    assert [kind for kind, _ in found] == [kind for kind, _ in expected]
    for (_, one), (_, other) in zip(found, expected, strict=True):
        assert one == pytest.approx(other)
