"""Windows with built-in aggregates against the model: the vectorised operators.

They see batches: late records of one batch may fire their window once, with all of them, where
the model fires for each.  Everything else must be the same, aggregate by aggregate.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest
from tests.integration.job_runs import (
    SplitsSource,
    collect,
    collected,
    event_time,
    run_schedule,
    temporary_directory,
)
from tests.model.cases import cases, state_of
from tests.model.schedules import dropped, random_schedule
from tests.model.window_model import GLOBAL, MAX_TIME
from tests.model.window_programs import (
    ASSIGNERS,
    EVICTORS,
    LATE,
    TRIGGERS,
    Crash,
    Cut,
    Finish,
    Now,
    Program,
    Records,
    forgets,
    random_program,
    random_script,
    run_model,
    run_step,
)

from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.aggregates import (
    Avg,
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    Min,
    Quantile,
    Sum,
)
from millstream.testing.harness import OperatorHarness

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.model.window_model import Emission, WindowModel
    from tests.model.window_programs import Step

    from millstream.datastream import DataStream

RECORD = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
#: Windows of the vectorised operators; others are worked on record by record.
VECTORISED = ["tumbling", "sliding", "session"]
#: The records of an untyped script are (key, number, ()), of a typed one (key, number, value).
MODULUS = 5

AGGREGATES: dict[str, Any] = {
    "n": Count(),
    "total": Sum(2),
    "least": Min(2),
    "most": Max(2),
    "mean": Avg(2),
    "first": First(1),
    "last": Last(1),
    "distinct": CountDistinct(2),
    "numbers": Collect(1),
    "median": Quantile(2),
    "odd": Count(where=pc.field("f1") > 7),
    "odd_total": Sum(2).filter(pc.field("f1") > 7),
}


def _value(number: int) -> int:
    return number * 7 % MODULUS - 2


def _expected(names: list[str], elements: list[tuple[int, int]]) -> list[Any]:
    """Of (timestamp, number), in order of arrival."""
    ordered = sorted(elements, key=lambda each: each[0])  # stable
    numbers = [number for _, number in ordered]
    values = sorted(map(_value, numbers))
    late = [_value(number) for number in numbers if number > 7]
    answers: dict[str, Any] = {
        "n": len(values),
        "total": sum(values),
        "least": values[0],
        "most": values[-1],
        "mean": round(sum(values) / len(values), 9),
        "first": numbers[0],
        "last": numbers[-1],
        "distinct": len(set(values)),
        "numbers": numbers,
        "median": float(values[math.ceil(len(values) / 2) - 1]),
        "odd": len(late),
        "odd_total": sum(late) if late else None,
    }
    return [answers[name] for name in names]


def _told(content: list[Any]) -> list[Any]:
    return [round(each, 9) if isinstance(each, float) else each for each in content]


def _names(chance: random.Random) -> list[str]:
    """Mostly a few; not all can be computed together before the exchange."""
    return chance.sample(list(AGGREGATES), chance.choice([1, 2, 2, 4, len(AGGREGATES)]))


def _build(program: Program, names: list[str], records: DataStream) -> DataStream:
    stream = records.key_by(lambda record: record[0]).window(program.window_assigner())
    if program.trigger != "default":
        stream = stream.trigger(program.window_trigger())
    if program.evictor != "none":
        stream = stream.evictor(program.window_evictor())
    stream = stream.allowed_lateness(program.lateness)
    if program.side_output:
        stream = stream.side_output_late_data(LATE)
    return stream.aggregate({name: AGGREGATES[name] for name in names})


def _compare(
    program: Program,
    names: list[str],
    emissions: list[Emission],
    seen: list[tuple[Any, ...]],
    times: dict[int, int],
    passing: set[Emission] | None = None,
) -> str:
    """Per window: the last result, and before it only results that the model has too.

    With a trigger or an evictor all results of the model are there.  ``passing`` need not be
    seen.
    """
    rows: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for key, start, end, *content in seen:
        rows[key, start, end].append(_told(content))
    wanted: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    needed: dict[tuple[Any, ...], Any] = {}
    for each in emissions:
        elements = [(times[element[1]], element[1]) for element in each.elements]
        window = (None, None) if each.window == GLOBAL else each.window
        answer = _expected(names, elements)
        wanted[each.key, *window].append(answer)
        if each not in (passing or ()):
            needed[each.key, *window] = answer
    if not needed.keys() <= rows.keys() <= wanted.keys():
        return f"windows: expected {wanted}, seen {rows}"
    for window, found in rows.items():
        fires = wanted[window]
        if program.trigger != "default" or program.evictor != "none":
            if found != fires:
                return f"{window}: expected {fires}, seen {found}"
            continue
        rest = iter(fires)
        last = found[-1] in (fires[-1], needed.get(window, found[-1]))
        if not last or not all(row in rest for row in found):
            return f"{window}: expected {fires}, seen {found}"
    return ""


def _extended(model: WindowModel, emissions: list[Emission]) -> set[Emission]:
    """Those of late records whose session another record of the same batch has extended."""
    return {each for each in emissions if each.window not in model.sessions[each.key]}


def _passing(program: Program, script: list[Step]) -> set[Emission]:
    """The emissions that a vectorised operator passes over: see ``_extended``."""
    found: set[Emission] = set()
    if "session" not in program.assigner or program.trigger != "default":
        return found
    for number, step in enumerate(script):
        if isinstance(step, Records):
            model = run_model(program, script[: number + 1])
            found |= _extended(model, [each for each in model.emissions if each.step == number])
    return found


def _run_harness(
    program: Program,
    names: list[str],
    script: list[Step],
    model: WindowModel,
    chance: random.Random,
) -> str:
    env = StreamExecutionEnvironment.get_execution_environment()
    made = _build(program, names, env.from_collection([("a", 0, 0)], RECORD))
    harness = OperatorHarness(
        made._transformation.factory,  # type: ignore[attr-defined] # one input
        input_type=RECORD,
        output_type=made.get_type(),
        side_types={LATE.tag_id: RECORD} if program.side_output else None,
    )
    times = {item[0][1]: item[1] for step in script if isinstance(step, Records)
             for item in step.items}  # fmt: skip
    passing = _passing(program, script)
    begun = mark = 0
    for number, step in enumerate(script):
        if isinstance(step, Crash):
            harness.crash()
            again = script[begun:number]
        else:
            again = [step]
        for each in again:
            if isinstance(each, Records):
                values = [(key, n, _value(n)) for (key, n, _), _ in each.items]
                stamps = [stamp for _, stamp in each.items]
                harness.process_all(values, stamps, columnar=chance.random() < 0.7)
            else:
                run_step(harness, each)
        if isinstance(step, Now | Cut | Finish):
            emissions = [each for each in model.emissions if begun <= each.step <= number]
            records: list[Any] = harness.records[mark:]
            rows = [tuple(value) for value, _ in records]
            wrong = _compare(program, names, emissions, rows, times, passing)
            if wrong:
                return f"up to step {number}: {wrong}"
            begun, mark = number + 1, len(harness.records)
    late = Counter((value[1], timestamp) for _, value, timestamp in model.late)
    sides: list[Any] = harness.side_records.get(LATE.tag_id, [])
    if program.side_output and Counter((value[1], time) for value, time in sides) != late:
        return f"late: expected {late}, seen {sides}"
    if harness.metrics["numLateRecordsDropped"] != (0 if program.side_output else len(model.late)):
        return f"dropped: expected {len(model.late)}, seen {harness.metrics}"
    return "state is left behind" if state_of(harness) and forgets(program, script) else ""


def _check(program: Program, chance: random.Random, replay: str) -> None:
    names, script = _names(chance), random_script(chance)
    model = run_model(program, script)
    wrong = _run_harness(program, names, script, model, chance)
    steps = "\n".join(f"  {step}" for step in script)
    assert not wrong, f"{replay}\n{program} {names}\n{steps}\n{wrong}"


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("assigner", ASSIGNERS)
def test_oracle_built_in_aggregates(assigner: str) -> None:
    count = {"session": 200}.get(assigner, 40 if assigner in VECTORISED else 15)
    for chance, replay in cases(count):
        program = random_program(
            chance, assigner=assigner, trigger="default", evictor="none", function="apply"
        )
        _check(program, chance, replay)


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_oracle_built_in_aggregates_with_triggers_and_evictors(trigger: str) -> None:
    evictors = [evictor for evictor in EVICTORS if evictor != "odd"]
    for chance, replay in cases(8):
        program = random_program(
            chance, trigger=trigger, evictor=chance.choice(evictors), function="apply"
        )
        _check(program, chance, replay)


def test_oracle_jobs_with_built_in_aggregates() -> None:
    """With what is computed before the exchange, at parallelism 1 to 3."""
    for chance, replay in cases(10):
        program = random_program(
            chance,
            assigner=chance.choice([*VECTORISED, "dynamic session"]),
            trigger="default",
            evictor="none",
            function="apply",
        )
        names, schedule, bound = _names(chance), random_schedule(chance), chance.choice([0, 5, 25])
        model, events, times, time = program.window_model(), [], {}, 1_000
        passing: set[Emission] = set()
        batch = 0  # records between two watermarks may come as one
        disorder = chance.choice([0, 5, 25])
        for number in range(chance.randrange(1, 60)):
            time += chance.choice([0, 1, 1, 2, 7, 20])
            key, times[number] = chance.choice("aabcde"), time - chance.randint(0, disorder)
            events.append((key, number, _value(number), times[number]))
            model.record(key, (key, number), times[number])
            if times[number] - bound - 1 > model.watermark:
                if program.merging:
                    passing |= _extended(model, model.emissions[batch:])
                model.advance_watermark(times[number] - bound - 1)
                batch = len(model.emissions)
        if program.merging:
            passing |= _extended(model, model.emissions[batch:])
        model.advance_watermark(MAX_TIME)

        def build(
            env: StreamExecutionEnvironment,
            directory: Path,
            program: Program = program,
            names: list[str] = names,
            events: list[Any] = events,
            bound: int = bound,
        ) -> None:
            strategy = event_time(bound).with_timestamp_assigner(lambda record, _: record[3])
            four = Types.TUPLE([Types.STRING(), *[Types.LONG()] * 3])
            records = env.from_source(SplitsSource([events], four), strategy, "records")
            made = _build(program, names, records)
            collect(made, directory)
            if program.side_output:
                collect(made.get_side_output(LATE), directory, "late")

        with temporary_directory() as directory:
            try:
                manifest = run_schedule(build, schedule, directory)
                seen = [tuple(row) for row in collected(directory)]
                assert _compare(program, names, model.emissions, seen, times, passing) == ""
                if program.side_output:
                    late = Counter(value[1] for _, value, _ in model.late)
                    assert Counter(row[1] for row in collected(directory, "late")) == late
                assert dropped(manifest) == (0 if program.side_output else len(model.late))
            except Exception as error:
                error.add_note(f"{replay}\n{program} {names}\n{bound=} {schedule}\n{events}")
                raise
