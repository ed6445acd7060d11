"""Programs whose windows are changed in the middle, against the model.

What it is: the window operators of two programs with the same windows; one takes random steps, the
other goes on from its state.  If the second says that it can, its results are those of a model
that has the same records and whose trigger, evictor and lateness are changed at that point; what it
says it cannot convert is counted, by what it says.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.model import trigger_model as triggers
from tests.model import window_model as model
from tests.model.cases import cases, state_of
from tests.model.window_programs import (
    ASSIGNERS,
    FUNCTIONS,
    TRIGGERS,
    Answer,
    Crash,
    Cut,
    Program,
    _step_differs,
    forgets,
    model_step,
    random_program,
    random_script,
    run_step,
)

if TYPE_CHECKING:
    import random

    from tests.model.window_programs import Step

    from millstream.testing.harness import OperatorHarness


def _kind(trigger: triggers.Trigger) -> type:
    return _kind(trigger.nested) if isinstance(trigger, triggers.Purging) else type(trigger)


def _model(before: Program, after: Program, script: list[Step], at: int) -> model.WindowModel:
    """What the model makes of it: changed behind step ``at``."""
    made = before.window_model()
    for number, step in enumerate(script):
        model_step(made, number, step)
        if number == at:
            other = after.window_model()
            if "process" not in before.function:
                made.fires.clear()  # nobody has counted them
            made.change(other, restart=_kind(made.trigger) is not _kind(other.trigger))
            made.advance_processing_time(made.now)
    return made


def _run(before: Program, after: Program, script: list[Step], at: int) -> Answer:
    answer = Answer()
    harness = before.harness()
    factory = after.harness().factory
    mark = 0
    for number, step in enumerate(script):
        run_step(harness, step)
        if number == at:
            _change(harness, factory)
        answer.outputs.append(harness.records[mark:])
        mark = len(harness.records)
    answer.dropped = harness.metrics.get("numLateRecordsDropped", 0)
    answer.left_behind = len(state_of(harness))
    return answer


def _change(harness: OperatorHarness, factory: Any) -> None:
    """End the epoch and go on in an operator of the other program."""
    harness.factory = factory
    long_lived, harness.long_lived = harness.long_lived, False
    harness.end_epoch()
    harness.long_lived = long_lived


def _differences(before: Program, after: Program, script: list[Step], at: int) -> str:
    expected, seen = _model(before, after, script, at), _run(before, after, script, at)
    emissions: dict[int, list[model.Emission]] = defaultdict(list)
    for emission in expected.emissions:
        emissions[emission.step].append(emission)
    for number, step in enumerate(script):
        program = before if number < at else after
        if number == at:
            continue  # partly of both
        wrong = _step_differs(program, emissions[number], seen.outputs[number])
        if wrong:
            return f"step {number}, {step}: {wrong}"
    if seen.dropped != len(expected.late):
        return f"dropped: expected {len(expected.late)}, seen {seen.dropped}"
    if forgets(before, script) and forgets(after, script) and seen.left_behind:
        return f"{seen.left_behind} entries of state are left behind"
    return ""


def _script(chance: random.Random) -> tuple[list[Step], int]:
    """Steps, and a cut among them behind which the program is changed."""
    script: list[Step] = [step for step in random_script(chance) if not isinstance(step, Crash)]
    at = chance.randrange(1, len(script) - 1)
    script.insert(at, Cut(swap=True))
    return script, at


def _changed(before: Program, chance: random.Random) -> Program:
    """Another program with the same windows."""
    while True:
        other = random_program(chance, assigner=before.assigner)
        after = replace(
            other, size=before.size, slide=before.slide, offset=before.offset, side_output=False
        )
        if after.allowed():
            return after


def refusal_of(before: Program, after: Program) -> str | None:
    """What the second program says to the windows of the first."""
    old, new = before.harness().factory, after.harness().factory
    section = old.state_sections()[0]  # type: ignore[attr-defined] # of a window operator
    found: str | None = new.refusal(section)  # type: ignore[attr-defined] # as above
    return found


def _smaller(
    before: Program, after: Program, script: list[Step], at: int
) -> tuple[list[Step], int]:
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(script))):
            if number == at:
                continue
            shorter = script[:number] + script[number + 1 :]
            behind = at - (number < at)
            if _differences(before, after, shorter, behind):
                script, at, changed = shorter, behind, True
                break
    return script, at


def _check(before: Program, after: Program, script: list[Step], at: int, replay: str) -> None:
    if not _differences(before, after, script, at):
        return
    script, at = _smaller(before, after, script, at)
    lines = "\n".join(
        f"  {'=> ' if number == at else ''}{step}" for number, step in enumerate(script)
    )
    wrong = _differences(before, after, script, at)
    message = f"{replay}\nbefore {before}\nafter  {after}\n{lines}\n{wrong}"
    raise AssertionError(message)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("assigner", ASSIGNERS)
def test_oracle_any_change_of_windows(assigner: str) -> None:
    """Trigger, evictor, lateness and function at once."""
    converted = 0
    for chance, replay in cases(25, all_of_them=True):
        before = replace(random_program(chance, assigner=assigner), side_output=False)
        after = _changed(before, chance)
        if refusal_of(before, after) is None:
            converted += 1
            _check(before, after, *_script(chance), replay)
    assert converted > 2


CHANGES = [
    *itertools.product(["tumbling", "sliding", "session"], ["default"], TRIGGERS, [0, 4], [4, 0]),
    *itertools.product(["tumbling", "session"], TRIGGERS, ["default"], [0, 4], [4, 0]),
]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_oracle_change_of_trigger_and_lateness(function: str) -> None:
    """The function and the kind of content stay: all is gone on with that a trigger takes over."""
    refused: Counter[str] = Counter()
    for chance, replay in cases(len(CHANGES)):
        assigner, old, new, was, now = chance.choice(CHANGES)
        before = Program(assigner, old, "none", function, lateness=was)
        after = Program(assigner, new, "none", function, lateness=now)
        if not (before.allowed() and after.allowed()):
            continue
        reason = refusal_of(before, after)
        if reason is None:
            _check(before, after, *_script(chance), replay)
        else:
            refused[f"{new}: {reason}"] += 1
    assert all("moody" in each and "on_restore(window, ctx)" in each for each in refused), refused
