"""Joins and co-groups in windows against the model: windows over both inputs together.

The model puts every record, with its side, into one window operator; what a join makes of a
window are all pairs of the two sides.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.model.cases import cases, state_of
from tests.model.user_functions import key_of
from tests.model.window_programs import (
    Crash,
    Cut,
    Finish,
    Now,
    Program,
    Records,
    Watermark,
    random_program,
    random_script,
    run_step,
)

from millstream.datastream import CoGroupFunction, JoinFunction, StreamExecutionEnvironment
from millstream.testing.harness import OperatorHarness

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator

    from tests.model.window_model import Emission
    from tests.model.window_programs import Step

ASSIGNERS = ["tumbling", "sliding", "session", "processing tumbling", "processing session"]
TRIGGERS = ["default", "count", "continuous event time", "purging count"]


class Pairs(JoinFunction):
    """The pair."""

    def join(self, first: Any, second: Any) -> Any:
        return first[0], first, second


class Groups(CoGroupFunction):
    """Both sides; of a window that fires at least one has something."""

    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Iterator[Any]:
        left, right = tuple(first), tuple(second)
        yield (left or right)[0][0], left, right


def _harness(program: Program, kind: str) -> OperatorHarness:
    env = StreamExecutionEnvironment.get_execution_environment()
    left, right = (env.from_collection([("a", 0, ())]) for _ in range(2))
    both: Any = left.join(right) if kind == "join" else left.co_group(right)
    stream = both.where(key_of).equal_to(key_of).window(program.window_assigner())
    if program.trigger != "default":
        stream = stream.trigger(program.window_trigger())
    if program.evictor != "none":
        stream = stream.evictor(program.window_evictor())
    stream = stream.allowed_lateness(program.lateness)
    made = stream.apply(Pairs() if kind == "join" else Groups())
    return OperatorHarness(made._transformation.factory)


def _expected(kind: str, emission: Emission) -> list[Any]:
    sides: tuple[list[Any], list[Any]] = [], []
    for side, record in emission.elements:
        sides[side].append(record)
    if kind == "co_group":
        return [(emission.key, tuple(sides[0]), tuple(sides[1]))]
    return [(emission.key, first, second) for first in sides[0] for second in sides[1]]


def _program(chance: random.Random) -> Program:
    evictor, function = chance.choice(["none", "none", "count", "time"]), "apply"
    assigner, trigger = chance.choice(ASSIGNERS), chance.choice(TRIGGERS)
    return random_program(
        chance, assigner=assigner, trigger=trigger, evictor=evictor, function=function
    )


def _compare(kind: str, emissions: list[Emission], seen: list[tuple[Any, int]]) -> str:
    """Per key in order, as ``window_programs`` does it."""
    rests: dict[Any, list[tuple[Any, int]]] = defaultdict(list)
    for value, timestamp in seen:
        rests[value[0]].append((value, timestamp))
    for key in rests.keys() | {emission.key for emission in emissions}:
        groups: dict[int, list[tuple[Any, int]]] = defaultdict(list)
        for emission in emissions:
            if emission.key == key:
                end = emission.window[1] - 1
                groups[emission.order] += [(each, end) for each in _expected(kind, emission)]
        rest = rests[key]
        for group in groups.values():
            part, rest = rest[: len(group)], rest[len(group) :]
            if sorted(map(repr, part)) != sorted(map(repr, group)):
                return f"{key}: expected {dict(groups)}, seen {rests[key]}"
        if rest:
            return f"{key}: not expected {rest}"
    return ""


@pytest.mark.parametrize("kind", ["join", "co_group"])
def test_oracle_window_join(kind: str) -> None:
    for chance, replay in cases(80):
        program = replace(_program(chance), side_output=False)
        script: list[tuple[Step, int]] = [
            (step, chance.randrange(2)) for step in random_script(chance)
        ]
        model, harness = program.window_model(), _harness(program, kind)
        begun, mark = 0, 0
        for number, (step, side) in enumerate(script):
            model.step = number
            if isinstance(step, Records):
                for record, timestamp in step.items:
                    model.record(record[0], (side, record), timestamp)
            else:
                _advance(program, model, step)
            if isinstance(step, Crash):
                harness.crash()
                # What the timers did when the epoch began is seen at its end.
                for again, of in script[begun:number]:
                    run_step(harness, again, of)
            else:
                run_step(harness, step, side)
            if isinstance(step, Now | Cut | Finish):
                made = [each for each in model.emissions if begun <= each.step <= number]
                wrong = _compare(kind, made, harness.records[mark:])
                assert not wrong, f"{replay}\n{program}\n{script}\n{wrong}"
                begun, mark = number + 1, len(harness.records)
        late = harness.metrics.get("numLateRecordsDropped", 0)
        assert late == len(model.late), f"{replay}\n{program}\n{script}"
        if program.event_time:
            assert state_of(harness) == [], f"{replay}\n{program}\n{script}"


def _advance(program: Program, model: Any, step: Step) -> None:
    if isinstance(step, Watermark):
        model.advance_watermark(step.time)
    elif isinstance(step, Now):
        model.advance_processing_time(step.time)
    elif isinstance(step, Cut):
        model.advance_processing_time(model.now)
    elif isinstance(step, Finish):
        model.advance_watermark(2**63 - 1)
