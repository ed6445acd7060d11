"""Whole jobs with windows against the model: parallelism 1 to 3, cut, stopped and rescaled.

The parts of the programs are those of ``test_window_properties.py``, but for processing time,
which in a whole job is that of the clock.  The input is one split with a watermark behind every
record, so time is exact.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from tests.integration.job_runs import (
    SplitsSource,
    collect,
    collected,
    event_time,
    run_schedule,
    temporary_directory,
)
from tests.model.cases import cases
from tests.model.schedules import dropped, random_schedule
from tests.model.window_model import MAX_TIME, WindowModel
from tests.model.window_programs import LATE, Program, random_program

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from millstream.checkpoint.model import Manifest
    from millstream.datastream import StreamExecutionEnvironment

#: (key, number, (), timestamp).
Event = tuple[str, int, tuple[int, ...], int]

ASSIGNERS = ["tumbling", "sliding", "session", "dynamic session", "global"]
TRIGGERS = [
    "default",
    "event time",
    "count",
    "continuous event time",
    "delta",
    "purging count",
    "purging continuous event time",
]


def _program(chance: random.Random) -> Program:
    while True:
        assigner, trigger = chance.choice(ASSIGNERS), chance.choice(TRIGGERS)
        if "session" in assigner and trigger == "delta":
            continue  # it cannot merge
        program = random_program(chance, assigner=assigner, trigger=trigger)
        # Without the key in the result nothing would tell its order.
        if program.function != "aggregate":
            return program


def _events(chance: random.Random) -> list[Event]:
    events: list[Event] = []
    time, disorder = 1_000, chance.choice([0, 5, 25])
    for number in range(chance.randrange(1, 60)):
        time += chance.choice([0, 1, 1, 2, 7, 7, 20])
        stamp = time - chance.randint(0, disorder)
        events.append((chance.choice("aabcde"), number, (), stamp))
    return events


def _run_model(program: Program, events: list[Event], bound: int) -> WindowModel:
    model = program.window_model()
    for event in events:
        model.step += 1
        model.record(event[0], event, event[3])
        model.step += 1
        model.advance_watermark(event[3] - bound - 1)
    model.step += 1
    model.advance_watermark(MAX_TIME)
    return model


def _check(program: Program, model: WindowModel, directory: Path, manifest: Manifest) -> None:
    seen: dict[str, list[Any]] = defaultdict(list)
    for value in collected(directory):
        seen[value[0]].append(value)
    wanted: dict[str, list[tuple[Any, Any]]] = defaultdict(list)
    for emission in model.emissions:
        moment = emission.step, emission.order
        wanted[emission.key].append((moment, program.expected(emission)))
    assert seen.keys() == wanted.keys()
    for key, expected in wanted.items():
        rest = seen[key]
        assert len(rest) == len(expected), (key, expected, rest)
        for moment in sorted({each[0] for each in expected}):
            group = Counter(repr(value) for at, value in expected if at == moment)
            part, rest = rest[: group.total()], rest[group.total() :]
            assert Counter(map(repr, part)) == group, (key, moment, expected, seen[key])
    if program.side_output:
        late = Counter(repr(value) for _, value, _ in model.late)
        assert Counter(map(repr, collected(directory, "late"))) == late
    assert dropped(manifest) == (0 if program.side_output else len(model.late))


def test_oracle_jobs() -> None:
    for chance, replay in cases(20):
        program, events, schedule = _program(chance), _events(chance), random_schedule(chance)
        bound = chance.choice([0, 5, 25])

        def build(
            env: StreamExecutionEnvironment,
            directory: Path,
            program: Program = program,
            events: list[Event] = events,
            bound: int = bound,
        ) -> None:
            strategy = event_time(bound).with_timestamp_assigner(lambda record, _: record[3])
            made = program.build(env.from_source(SplitsSource([events]), strategy, "records"))
            collect(made, directory)
            if program.side_output:
                collect(made.get_side_output(LATE), directory, "late")

        model = _run_model(program, events, bound)
        with temporary_directory() as directory:
            try:
                manifest = run_schedule(build, schedule, directory)
                _check(program, model, directory, manifest)
            except Exception as error:
                error.add_note(f"{replay}\n{program}\n{bound=} {schedule}\n{events}")
                raise
