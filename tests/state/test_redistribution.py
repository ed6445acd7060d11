"""Who gets which operator state when a job is restored."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from millstream.contracts.operator import OperatorStateHandle, OperatorStateKind, StatePart
from millstream.state.rescale import own_states, redistribute

LIST, UNION, BROADCAST = OperatorStateKind

#: Per name: the kind, and per subtask its elements, or None where it has no such state.
Layout = dict[str, tuple[OperatorStateKind, list[list[bytes] | None]]]


def handle(kind: OperatorStateKind, elements: list[bytes]) -> OperatorStateHandle:
    return OperatorStateHandle(kind, len(elements), tuple(elements))


def elements_of(parts: list[StatePart]) -> list[bytes]:
    return [element for part in parts for element in part.handle.inline[part.first : part.stop]]


def left(layout: Layout, parallelism: int) -> list[dict[str, OperatorStateHandle]]:
    return [
        {
            name: handle(kind, elements)
            for name, (kind, subtasks) in layout.items()
            if (elements := subtasks[subtask]) is not None
        }
        for subtask in range(parallelism)
    ]


@st.composite
def layouts(draw: st.DrawFn) -> tuple[int, Layout]:
    parallelism = draw(st.integers(1, 6))
    layout: Layout = {}
    for name in draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=4)):
        kind = draw(st.sampled_from(OperatorStateKind))
        subtasks: list[list[bytes] | None] = []
        for subtask in range(parallelism):
            count = draw(st.none() | st.integers(0, 7))
            made = [f"{name}{subtask}.{n}".encode() for n in range(count or 0)]
            subtasks.append(None if count is None else made)
        layout[name] = (kind, subtasks)
    return parallelism, layout


@examples(300)
@given(layouts(), st.integers(1, 6))
def test_elements_of_lists_are_dealt_out_evenly_and_in_order(
    drawn: tuple[int, Layout], parallelism: int
) -> None:
    before, layout = drawn
    found = redistribute(left(layout, before), parallelism)
    start = 0
    for name, (kind, subtasks) in sorted(layout.items()):
        given_out = [elements_of(parts.get(name, [])) for parts in found]
        if kind is not LIST:
            continue
        if parallelism == before:
            assert given_out == [elements or [] for elements in subtasks]
            continue
        in_turn = [given_out[(start + turn) % parallelism] for turn in range(parallelism)]
        everything = [element for elements in subtasks for element in elements or []]
        assert [element for elements in in_turn for element in elements] == everything
        sizes = list(map(len, in_turn))
        assert all(0 <= one - next_ <= 1 for one, next_ in pairwise(sizes))
        assert sizes[0] - sizes[-1] <= 1
        # The next name begins with the first subtask that got one element less.
        start = (start + len(everything) % parallelism) % parallelism


@examples(200)
@given(layouts(), st.integers(1, 6))
def test_unions_go_to_all_and_broadcast_is_copied(
    drawn: tuple[int, Layout], parallelism: int
) -> None:
    before, layout = drawn
    found = redistribute(left(layout, before), parallelism)
    for name, (kind, subtasks) in layout.items():
        there = [elements for elements in subtasks if elements is not None]
        given_out = [elements_of(parts[name]) if name in parts else None for parts in found]
        if not there or kind is LIST:
            continue
        if kind is UNION:
            assert given_out == [[e for elements in there for e in elements]] * parallelism
        elif parallelism == before:
            own = [
                each if each is not None else there[subtask % len(there)]
                for subtask, each in enumerate(subtasks)
            ]
            assert given_out == own
        else:
            assert given_out == [there[subtask % len(there)] for subtask in range(parallelism)]


@pytest.mark.parametrize(
    ("parallelism", "first", "second"),
    [
        # Followed by hand through Flink's RoundRobinOperatorStateRepartitioner.
        (3, [["a1", "a2"], ["a3", "a4"], ["a5"]], [["b3"], ["b4"], ["b1", "b2"]]),
        (1, [["a1", "a2", "a3", "a4", "a5"]], [["b1", "b2", "b3", "b4"]]),
        (
            4,
            [["a1", "a2"], ["a3"], ["a4"], ["a5"]],
            [["b4"], ["b1"], ["b2"], ["b3"]],
        ),
    ],
)
def test_what_flink_gives(
    parallelism: int, first: list[list[str]], second: list[list[str]]
) -> None:
    layout: Layout = {
        "a": (LIST, [[b"a1", b"a2", b"a3"], [b"a4", b"a5"]]),
        "b": (LIST, [[b"b1"], [b"b2", b"b3", b"b4"]]),
    }
    found = redistribute(left(layout, 2), parallelism)
    for name, expected in (("a", first), ("b", second)):
        given_out = [[e.decode() for e in elements_of(parts.get(name, []))] for parts in found]
        assert given_out == expected


def test_a_subtask_that_goes_on_has_its_own() -> None:
    state = handle(UNION, [b"1"])
    assert own_states({"u": state}) == {"u": [StatePart(state, 0, 1)]}
