"""Regular joins, beside the model and beside a recomputation of the whole."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.table_operators.model import UA, UB, Change, D, I, Join, Row, materialised
from tests.runtime.table_operators.running import TableHarness, changes_in
from tests.runtime.table_operators.strategies import changelogs
from tests.support.examples import examples

from millstream.runtime.operators.table.join import JoinFactory
from millstream.runtime.operators.table.specs import JoinKind, JoinSide
from millstream.types.logical_types import BigIntType, RowType, VarCharType

LEFT = RowType.of(k=VarCharType(5), id=BigIntType(), n=BigIntType())
RIGHT = RowType.of(m=BigIntType(), key=VarCharType(5), id2=BigIntType())
BOTH = [field.type for field in (*LEFT, *RIGHT)]
KEYS = ((0,), (1,))

small = st.integers(0, 2)
keys = st.sampled_from(["a", "b", None])
left_rows = st.tuples(keys, small, small)
right_rows = st.tuples(small, keys, small)


@st.composite
def mixed(draw: Any, /, **options: Any) -> list[tuple[int, list[Change], bool]]:
    """Batches of both inputs, mixed, and whether a snapshot follows each."""
    sides = [
        draw(changelogs(left_rows, 16, key=options.get("left"))),
        draw(changelogs(right_rows, 16, key=options.get("right"))),
    ]
    found = []
    while any(sides):
        side = draw(st.integers(0, 1))
        if not sides[side]:
            side = 1 - side
        length = draw(st.integers(1, 6))
        found.append((side, sides[side][:length], draw(st.booleans())))
        sides[side] = sides[side][length:]
    return found


def plan_of(kind: JoinKind, **options: Any) -> JoinFactory:
    given: dict[str, Any] = {
        "left": JoinSide((0,)),
        "right": JoinSide((1,)),
        "filter_nulls": (True,),
        **options,
    }
    return JoinFactory(LEFT, RIGHT, kind, **given)


def run(
    plan: JoinFactory, steps: list[tuple[int, list[Change], bool]], **options: Any
) -> list[Change]:
    is_half = plan.kind in (JoinKind.SEMI, JoinKind.ANTI)
    types = BOTH[:3] if is_half else BOTH
    with TableHarness(plan, LEFT, types, **options) as harness:
        harness.row_types.append(RIGHT)
        for side, part, snapshot in steps:
            harness.feed(part, side)
            if snapshot:
                harness.end_epoch()
        return harness.changes


def whole(kind: JoinKind, left: Counter[Row], right: Counter[Row], model: Join) -> Counter[Row]:
    """The join of two tables."""
    rows: Counter[Row] = Counter()
    lefts, rights = list(left.elements()), list(right.elements())
    for one in lefts:
        met = [other for other in rights if model.matches(one, other)]
        if kind in (JoinKind.SEMI, JoinKind.ANTI):
            rows.update([one] if bool(met) is (kind is JoinKind.SEMI) else [])
            continue
        rows.update((*one, *other) for other in met)
        if not met and kind in (JoinKind.LEFT, JoinKind.FULL):
            rows[(*one, None, None, None)] += 1
    if kind in (JoinKind.RIGHT, JoinKind.FULL):
        for other in rights:
            if not any(model.matches(one, other) for one in lefts):
                rows[(None, None, None, *other)] += 1
    return rows


@pytest.mark.parametrize("long_lived", [False, True])
@examples(26)
@given(
    steps=mixed(),
    kind=st.sampled_from(list(JoinKind)),
    filters=st.booleans(),
)
def test_agree_with_the_model(
    long_lived: bool,
    steps: list[tuple[int, list[Change], bool]],
    kind: JoinKind,
    filters: bool,
) -> None:
    model = Join(kind.value, KEYS, (3, 3), null_equals_null=not filters)
    plan = plan_of(kind, filter_nulls=(filters,))
    types = BOTH[:3] if kind in (JoinKind.SEMI, JoinKind.ANTI) else BOTH
    with TableHarness(plan, LEFT, types, long_lived=long_lived) as harness:
        harness.row_types.append(RIGHT)
        for side, part, snapshot in steps:
            before = len(harness.batches)
            harness.feed(part, side)
            out = [each for b in harness.batches[before:] for each in changes_in(b)]
            for change in part:
                expected = model.process(side, *change)
                found, out = out[: len(expected)], out[len(expected) :]
                assert sorted(found, key=repr) == expected
            assert out == []
            if snapshot:
                harness.end_epoch()
        left, right = (
            materialised([c for side, part, _ in steps if side == wanted for c in part])
            for wanted in (0, 1)
        )
        assert materialised(harness.changes) == whole(kind, left, right, model)


_PLAIN = (JoinSide((0,)), JoinSide((1,)), None, None)
SIDES = [
    (JoinSide((0,), (1,)), JoinSide((1,), (2,)), (1,), (2,)),
    (JoinSide((0,), (0,)), JoinSide((1,), (1,)), (0,), (1,)),
    (JoinSide((0,), (1,)), JoinSide((1,)), (1,), None),
]


@pytest.mark.parametrize(("left", "right", "left_key", "right_key"), SIDES)
@examples(10)
@given(data=st.data(), kind=st.sampled_from(list(JoinKind)))
def test_unique_keys_change_what_is_kept_and_nothing_else(
    left: JoinSide,
    right: JoinSide,
    left_key: tuple[int, ...],
    right_key: tuple[int, ...] | None,
    data: Any,
    kind: JoinKind,
) -> None:
    steps = data.draw(mixed(left=left_key, right=right_key))
    plain = run(plan_of(kind), steps)
    keyed = run(plan_of(kind, left=left, right=right), steps)
    assert materialised(keyed) == materialised(plain)
    assert sorted(keyed, key=repr) == sorted(plain, key=repr)


def is_true(left: Row, right: Row) -> bool:
    return bool(left[2] > right[0])


@pytest.fixture
def condition() -> Any:
    from millstream.expressions.nodes import InputReference
    from millstream.expressions.resolution import resolve_call

    n = InputReference(2, "n", BigIntType())
    m = InputReference(3, "m", BigIntType())
    return resolve_call(">", n, m)


def test_condition_over_both_sides(condition: Any) -> None:
    @examples(13)
    @given(steps=mixed(), kind=st.sampled_from(list(JoinKind)))
    def check(steps: list[tuple[int, list[Change], bool]], kind: JoinKind) -> None:
        model = Join(kind.value, KEYS, (3, 3), is_true)
        expected = [o for side, part, _ in steps for c in part for o in model.process(side, *c)]
        found = run(plan_of(kind, condition=condition), steps)
        assert materialised(found) == materialised(expected)
        assert ([kind for kind, _ in found] and found) or not expected
        assert sorted(found, key=repr) == sorted(expected, key=repr)

    check()


def test_inner_joins_pass_kinds_on() -> None:
    one, other = ("a", 1, 1), (5, "a", 9)
    steps: list[tuple[int, list[Change], bool]] = [
        (0, [(I, one)], False),
        (1, [(I, other), (UB, other), (UA, other), (D, other)], True),
    ]
    row = (*one, *other)
    assert run(plan_of(JoinKind.INNER), steps) == [(I, row), (UB, row), (UA, row), (D, row)]


def test_a_row_that_comes_again_replaces_itself() -> None:
    """Upserts, where the join key has the unique key of the input."""
    plan = plan_of(JoinKind.LEFT, right=JoinSide((1,), (1,)))
    steps: list[tuple[int, list[Change], bool]] = [
        (0, [(I, ("a", 1, 1))], True),
        (1, [(I, (1, "a", 1)), (UA, (2, "a", 1)), (D, (2, "a", 1))], True),
    ]
    assert run(plan, steps) == [
        (I, ("a", 1, 1, None, None, None)),
        (D, ("a", 1, 1, None, None, None)),
        (I, ("a", 1, 1, 1, "a", 1)),
        (I, ("a", 1, 1, 2, "a", 1)),
        (D, ("a", 1, 1, 2, "a", 1)),
        (I, ("a", 1, 1, None, None, None)),
    ]


def test_rows_of_a_side_expire() -> None:
    plan = plan_of(JoinKind.INNER, left_ttl=10)
    with TableHarness(plan, LEFT, BOTH) as harness:
        harness.row_types.append(RIGHT)
        harness.feed([(I, ("a", 1, 1))], 0)
        harness.feed([(I, (7, "a", 7))], 1)
        harness.processing_time(10)
        assert harness.feed([(I, (8, "a", 8))], 1) == []
        assert harness.feed([(I, ("a", 2, 2))], 0) == [
            (I, ("a", 2, 2, 7, "a", 7)),
            (I, ("a", 2, 2, 8, "a", 8)),
        ]


def test_nothing_is_left_of_rows_that_are_gone() -> None:
    plan = plan_of(JoinKind.FULL)
    lefts = [("a", n, n) for n in range(300)]
    with TableHarness(plan, LEFT, BOTH) as harness:
        harness.row_types.append(RIGHT)
        harness.feed([(I, row) for row in lefts], 0)
        harness.feed([(I, (1, "a", 1))], 1)
        harness.end_epoch()
        harness.feed([(D, (1, "a", 1))], 1)
        harness.feed([(D, row) for row in lefts], 0)
        harness.end_epoch()
        assert list(harness.state_entries()) == []
        assert materialised(harness.changes) == {}


@pytest.mark.parametrize(("left", "right", "left_key", "right_key"), [*SIDES, _PLAIN])
@examples(12)
@given(data=st.data(), kind=st.sampled_from(list(JoinKind)))
def test_folded_changes_have_the_same_result(
    left: JoinSide,
    right: JoinSide,
    left_key: tuple[int, ...] | None,
    right_key: tuple[int, ...] | None,
    data: Any,
    kind: JoinKind,
) -> None:
    steps = data.draw(mixed(left=left_key, right=right_key))
    plain = run(plan_of(kind, left=left, right=right), steps)
    mini = run(plan_of(kind, left=left, right=right, mini_batch=True), steps)
    assert materialised(mini) == materialised(plain)
    assert len(mini) <= len(plain)


@examples(12)
@given(data=st.data(), kind=st.sampled_from([JoinKind.INNER, JoinKind.SEMI, JoinKind.ANTI]))
def test_folded_upserts_have_the_same_result(data: Any, kind: JoinKind) -> None:
    """Of sides whose rows are unique by the join key there are no -U."""
    sides = {"left": JoinSide((0,), (0,)), "right": JoinSide((1,), (1,))}
    drawn = data.draw(mixed(left=(0,), right=(1,)))
    steps = [
        (side, [change for change in part if change[0] != UB], snapshot)
        for side, part, snapshot in drawn
    ]
    plain = run(plan_of(kind, **sides), steps)
    mini = run(plan_of(kind, **sides, mini_batch=True), steps)
    assert by_key(mini) == by_key(plain)
    assert len(mini) <= len(plain)


def by_key(changes: list[Change]) -> dict[Any, Row]:
    """The table of upserts by the first column."""
    table: dict[Any, Row] = {}
    for kind, row in changes:
        if kind == D:
            table.pop(row[0], None)
        else:
            table[row[0]] = row
    return table


def test_a_row_that_is_updated_twice_in_a_batch_is_updated_once() -> None:
    plan = plan_of(JoinKind.INNER, left=JoinSide((0,), (1,)), mini_batch=True)
    one, two, three = (("a", 1, n) for n in range(3))
    other = (5, "a", 9)
    steps: list[tuple[int, list[Change], bool]] = [
        (1, [(I, other)], True),
        (0, [(I, one), (UB, one), (UA, two)], True),
        (0, [(UB, two), (UA, three), (UB, three), (UA, one)], True),
        (0, [(UB, one), (UA, two), (D, two)], True),
        (0, [(I, one), (D, one)], True),
    ]
    assert run(plan, steps) == [
        (I, (*two, *other)),
        (UB, (*two, *other)),
        (UA, (*one, *other)),
        (D, (*one, *other)),
    ]
