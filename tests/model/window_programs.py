"""Windows said twice: for the model and for Millstream, and the same script run through both.

What it is: the parts that can be combined (assigners, triggers, evictors, functions), the
choice of those that are allowed together, random scripts of records, watermarks, steps of
processing time and cuts of the epoch, and the comparison.  A failing script is made smaller
before it is shown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.model import evictor_model
from tests.model import trigger_model as triggers
from tests.model import window_model as model
from tests.model.cases import state_of
from tests.model.user_functions import (
    AlwaysGap,
    Gather,
    MoodyTrigger,
    TakeOdd,
    TellApply,
    TellProcess,
    TellProcessOfSession,
    chain,
    delta,
    gap_of,
    key_of,
)

from millstream.datastream import OutputTag, StreamExecutionEnvironment
from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.testing.harness import OperatorHarness

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from millstream.datastream import DataStream, WindowedStream

LATE = OutputTag("late")
ASSIGNERS = [
    "tumbling",
    "sliding",
    "session",
    "dynamic session",
    "global",
    "processing tumbling",
    "processing sliding",
    "processing session",
    "processing dynamic session",
]
TRIGGERS = [
    "default",
    "event time",
    "processing time",
    "count",
    "continuous event time",
    "continuous processing time",
    "delta",
    "never",
    "moody",
    "purging count",
    "purging event time",
    "purging continuous event time",
    "purging moody",
]
EVICTORS = ["none", "count", "time", "delta", "odd"]
FUNCTIONS = [
    "reduce",
    "reduce, apply",
    "reduce, process",
    "aggregate",
    "aggregate, apply",
    "aggregate, process",
    "apply",
    "process",
]
#: A record is (key, number, ()).
Record = tuple[str, int, tuple[int, ...]]


@dataclass(frozen=True)
class Program:
    """What the user says about the windows."""

    assigner: str
    trigger: str
    evictor: str
    function: str
    evict_after: bool = False
    size: int = 10
    slide: int = 10
    offset: int = 0
    #: Of count, continuous and delta triggers, and of evictors.
    number: int = 3
    lateness: int = 0
    side_output: bool = False

    @property
    def merging(self) -> bool:
        return "session" in self.assigner

    @property
    def event_time(self) -> bool:
        return "processing" not in self.assigner and self.assigner != "global"

    def allowed(self) -> bool:
        """Whether the parts go together."""
        if self.merging and self.trigger in {"delta", "never"}:
            return False  # these triggers cannot merge
        # There is no reduction of nothing.
        return not (self.evictor == "odd" and self.function.startswith("reduce"))

    # -- for the model -------------------------------------------------------------------

    def window_model(self) -> model.WindowModel:
        return model.WindowModel(
            self._model_assigner(), self._model_trigger(), self._model_evictor(), self.lateness
        )

    def _model_assigner(self) -> model.Assigner:
        event_time = self.event_time
        if self.assigner.endswith("tumbling"):
            return model.Sliding(self.size, self.size, self.offset, event_time=event_time)
        if self.assigner.endswith("sliding"):
            return model.Sliding(self.size, self.slide, self.offset, event_time=event_time)
        if self.assigner.endswith("dynamic session"):
            return model.Session(gap_of, event_time=event_time)
        if self.assigner.endswith("session"):
            return model.Session(AlwaysGap(self.size), event_time=event_time)
        return model.Global()

    def _model_trigger(self) -> triggers.Trigger:
        if self.trigger == "default":
            if self.assigner == "global":
                return triggers.Never()
            return triggers.EventTime() if self.event_time else triggers.ProcessingTime()
        purging, _, name = self.trigger.rpartition("purging ")
        made: dict[str, Callable[[], triggers.Trigger]] = {
            "event time": triggers.EventTime,
            "processing time": triggers.ProcessingTime,
            "count": lambda: triggers.CountTrigger(self.number),
            "continuous event time": lambda: triggers.ContinuousEventTime(self.number),
            "continuous processing time": lambda: triggers.ContinuousProcessingTime(self.number),
            "delta": lambda: triggers.DeltaTrigger(self.number, delta),
            "never": triggers.Never,
            "moody": lambda: triggers.Moody(self.number),
        }
        trigger = made[name]()
        return triggers.Purging(trigger) if purging else trigger

    def _model_evictor(self) -> evictor_model.Evictor | None:
        after = self.evict_after
        made: dict[str, Callable[[], evictor_model.Evictor | None]] = {
            "none": lambda: None,
            "count": lambda: evictor_model.CountEvictor(self.number, after=after),
            "time": lambda: evictor_model.TimeEvictor(self.number, after=after),
            "delta": lambda: evictor_model.DeltaEvictor(self.number, delta, after=after),
            "odd": lambda: evictor_model.OddEvictor(after=after),
        }
        return made[self.evictor]()

    def expected(self, emission: model.Emission) -> Any:
        """What the function emits for it."""
        window = None if emission.window == model.GLOBAL else emission.window
        numbers = tuple(element[1] for element in emission.elements)
        first, _, then = self.function.partition(", ")
        if first == "reduce":
            element = emission.elements[0]
            contents: tuple[Any, ...] = ((*element[:2], numbers[1:], *element[3:]),)
        elif first == "aggregate":
            contents = (numbers,)
        else:
            contents, then = emission.elements, first
        if then == "apply":
            return emission.key, window, contents
        if then == "process":
            fires = 0 if self.merging else emission.fires
            return emission.key, window, contents, fires, emission.watermark
        return contents[0]

    def run_of(self, key: Any, timestamp: int) -> Any:
        """Results of one run come in order: those of a key, and with the default trigger of a
        key and window, since late records of one batch may fire their windows in any order."""
        plain = {"default", "event time", "purging event time"}
        return (key, timestamp) if self.trigger in plain else key

    # -- for Millstream ------------------------------------------------------------------

    def build(self, records: DataStream) -> DataStream:
        stream: WindowedStream = records.key_by(key_of).window(self.window_assigner())
        if self.trigger != "default":
            stream = stream.trigger(self.window_trigger())
        if self.evictor != "none":
            stream = stream.evictor(self.window_evictor())
        if self.lateness:
            stream = stream.allowed_lateness(self.lateness)
        if self.side_output:
            stream = stream.side_output_late_data(LATE)
        process = TellProcessOfSession() if self.merging else TellProcess()
        if self.function == "apply":
            return stream.apply(TellApply())
        if self.function == "process":
            return stream.process(process)
        first, _, then = self.function.partition(", ")
        window_function = {"": None, "apply": TellApply(), "process": process}[then]
        if first == "reduce":
            return stream.reduce(chain, window_function=window_function)
        return stream.aggregate(Gather(), window_function=window_function)

    def window_assigner(self) -> Any:
        size, slide, offset = self.size, self.slide, self.offset
        made: dict[str, Callable[[], Any]] = {
            "tumbling": lambda: TumblingEventTimeWindows.of(size, offset),
            "sliding": lambda: SlidingEventTimeWindows.of(size, slide, offset),
            "session": lambda: EventTimeSessionWindows.with_gap(size),
            "dynamic session": lambda: EventTimeSessionWindows.with_dynamic_gap(gap_of),
            "global": GlobalWindows.create,
            "processing tumbling": lambda: TumblingProcessingTimeWindows.of(size, offset),
            "processing sliding": lambda: SlidingProcessingTimeWindows.of(size, slide, offset),
            "processing session": lambda: ProcessingTimeSessionWindows.with_gap(size),
            "processing dynamic session": (
                lambda: ProcessingTimeSessionWindows.with_dynamic_gap(gap_of)
            ),
        }
        return made[self.assigner]()

    def window_trigger(self) -> Any:
        purging, _, name = self.trigger.rpartition("purging ")
        made: dict[str, Callable[[], Any]] = {
            "event time": EventTimeTrigger.create,
            "processing time": ProcessingTimeTrigger.create,
            "count": lambda: CountTrigger.of(self.number),
            "continuous event time": lambda: ContinuousEventTimeTrigger.of(self.number),
            "continuous processing time": (lambda: ContinuousProcessingTimeTrigger.of(self.number)),
            "delta": lambda: DeltaTrigger.of(self.number, delta),
            "never": NeverTrigger,
            "moody": lambda: MoodyTrigger(self.number),
        }
        trigger = made[name]()
        return PurgingTrigger.of(trigger) if purging else trigger

    def window_evictor(self) -> Any:
        after = self.evict_after
        made: dict[str, Callable[[], Any]] = {
            "count": lambda: CountEvictor.of(self.number, after),
            "time": lambda: TimeEvictor.of(self.number, after),
            "delta": lambda: DeltaEvictor.of(self.number, delta, after),
            "odd": lambda: TakeOdd(after),
        }
        return made[self.evictor]()

    def harness(self) -> OperatorHarness:
        """The operator alone, as the program makes it."""
        env = StreamExecutionEnvironment.get_execution_environment()
        made = self.build(env.from_collection([("a", 0, ())]))
        side_types = {LATE.tag_id: made.get_type()} if self.side_output else None
        factory = made._transformation.factory  # type: ignore[attr-defined] # one input
        return OperatorHarness(factory, side_types=side_types)


# -- scripts -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Records:
    """One batch of (record, timestamp)."""

    items: tuple[tuple[Record, int], ...]


@dataclass(frozen=True)
class Watermark:
    time: int


@dataclass(frozen=True)
class Now:
    """Processing time is now; this cuts the epoch."""

    time: int


@dataclass(frozen=True)
class Cut:
    """The epoch ends, and the next runs in another instance if ``swap``."""

    swap: bool


@dataclass(frozen=True)
class Crash:
    """What happened since the last cut is lost and done again."""


@dataclass(frozen=True)
class Finish:
    """The bounded input is over."""


Step = Records | Watermark | Now | Cut | Crash | Finish


def random_script(chance: random.Random) -> list[Step]:
    """Records out of order around a time that goes on, now and then by a leap."""
    steps: list[Step] = []
    stamps: list[int] = []
    # The clock ends below 400: it passes the end of event-time windows, or never does.
    event, now, number = chance.choice([100, 1_000]), 0, 0
    disorder = chance.choice([0, 5, 25])
    lag = chance.choice([0, 3, disorder])
    for _ in range(chance.randrange(2, 14)):
        kind = chance.random()
        if kind < 0.5:
            batch = []
            for _ in range(chance.randrange(1, 7)):
                record = (chance.choice("aab"), number, ())
                stamps.append(event - chance.randint(0, disorder))
                batch.append((record, stamps[-1]))
                number += 1
                event += chance.choice([0, 1, 1, 2, 7])
            steps.append(Records(tuple(batch)))
        elif kind < 0.75:
            time = event - lag + chance.choice([-3, -1, 0, 0, 4])
            # The last instant of a session, or of its lateness, and those around it.
            ends = [stamp + length for stamp in stamps for length in (3, 9, 7, 13)]
            near = [end for end in ends if abs(end - time) < 12]
            if near and chance.random() < 0.6:
                time = chance.choice(near) + chance.choice([-1, 0, 0, 0, 1])
            steps.append(Watermark(time))
        elif kind < 0.85:
            now += chance.choice([0, 1, 3, 9, 20])
            steps.append(Now(now))
        elif kind < 0.95:
            steps.append(Cut(chance.random() < 0.7))
        else:
            steps.append(Crash())
        if chance.random() < 0.1:
            event += chance.choice([15, 40])
    steps.append(Watermark(event + chance.choice([0, 5, 100])))
    steps.append(Now(now + 30))
    steps.append(Finish())
    return steps


def random_program(chance: random.Random, **fixed: Any) -> Program:
    """Any parts that go together."""
    while True:
        slide = chance.choice([3, 5, 10, 13])
        program = Program(
            assigner=fixed.get("assigner", chance.choice(ASSIGNERS)),
            trigger=fixed.get("trigger", chance.choice(TRIGGERS)),
            evictor=fixed.get("evictor", chance.choice(["none", "none", *EVICTORS])),
            function=fixed.get("function", chance.choice(FUNCTIONS)),
            evict_after=chance.random() < 0.5,
            size=chance.choice([4, 10]),
            slide=slide,
            offset=chance.choice([0, 0, 1, -2]),
            number=chance.choice([1, 2, 3, 7]),
            lateness=chance.choice([0, 0, 4, 30]),
            side_output=chance.random() < 0.5,
        )
        if program.allowed():
            return program


# -- both at once --------------------------------------------------------------------------------


@dataclass
class Answer:
    """What came out, by step."""

    outputs: list[list[tuple[Any, int]]] = field(default_factory=list)
    late: list[tuple[Any, int]] = field(default_factory=list)
    dropped: int = 0
    left_behind: int = 0


def model_step(made: model.WindowModel, number: int, step: Step) -> None:
    """Let the model take one step."""
    made.step = number
    if isinstance(step, Records):
        for record, timestamp in step.items:
            made.record(record[0], record, timestamp)
    elif isinstance(step, Watermark):
        made.advance_watermark(step.time)
    elif isinstance(step, Now):
        made.advance_processing_time(step.time)
    elif isinstance(step, Cut):
        made.advance_processing_time(made.now)
    elif isinstance(step, Finish):
        made.advance_watermark(model.MAX_TIME)


def run_model(program: Program, script: list[Step]) -> model.WindowModel:
    """Let the model take all steps."""
    made = program.window_model()
    for number, step in enumerate(script):
        model_step(made, number, step)
    return made


def run_operator(program: Program, script: list[Step]) -> Answer:
    answer = Answer()
    harness = program.harness()
    mark, begun = 0, 0
    for number, step in enumerate(script):
        answer.outputs.append([])
        again = range(begun, number) if isinstance(step, Crash) else range(number, number + 1)
        if isinstance(step, Crash):
            harness.crash()
            mark = len(harness.records)  # what a timer did at the start of the epoch is seen
        for each in again:
            run_step(harness, script[each])
            answer.outputs[each] = harness.records[mark:]
            mark = len(harness.records)
        if isinstance(step, Now | Cut):
            begun = number + 1
    answer.late = list(harness.side_records.get(LATE.tag_id, []))
    answer.dropped = harness.metrics.get("numLateRecordsDropped", 0)
    answer.left_behind = len(state_of(harness))
    return answer


def run_step(harness: OperatorHarness, step: Step, side: int = 0) -> None:
    """Let an operator take a step."""
    if isinstance(step, Records):
        values, stamps = zip(*step.items, strict=True)
        harness.process_all(values, stamps, side)
    elif isinstance(step, Watermark):
        harness.watermark(step.time)
    elif isinstance(step, Now):
        harness.processing_time(step.time)
    elif isinstance(step, Cut):
        harness.end_epoch(swap=step.swap)
    elif isinstance(step, Finish):
        harness.finish()


def differences(program: Program, script: list[Step]) -> str:
    """What is wrong, in words; empty if model and operator agree."""
    expected, seen = run_model(program, script), run_operator(program, script)
    emissions: dict[int, list[model.Emission]] = defaultdict(list)
    for emission in expected.emissions:
        emissions[emission.step].append(emission)
    for number, step in enumerate(script):
        wrong = _step_differs(program, emissions[number], seen.outputs[number])
        if wrong:
            return f"step {number}, {step}: {wrong}"
    late = Counter((repr(value), timestamp) for _, value, timestamp in expected.late)
    if program.side_output and Counter((repr(v), t) for v, t in seen.late) != late:
        return f"late: expected {late}, seen {seen.late}"
    if seen.dropped != (0 if program.side_output else len(expected.late)):
        return f"dropped: expected {len(expected.late)}, seen {seen.dropped}"
    if forgets(program, script) and seen.left_behind:
        return f"{seen.left_behind} entries of state are left behind"
    return ""


def forgets(program: Program, script: list[Step]) -> bool:
    """Whether nothing is left at the end: no clock to wait for, and no state of the user's."""
    by_the_clock = "processing" in program.trigger or "moody" in program.trigger
    ended = program.event_time and isinstance(script[-1], Finish)
    return ended and not by_the_clock and "process" not in program.function


def _step_differs(
    program: Program, expected: list[model.Emission], seen: list[tuple[Any, int]]
) -> str:
    """Per key in order; what happens at one time, or by one record, in any order."""
    # Results without a key are compared as a whole.
    keyed = program.function != "aggregate"
    by_key: dict[Any, list[tuple[Any, int]]] = defaultdict(list)
    for value, timestamp in seen:
        by_key[program.run_of(value[0] if keyed else None, timestamp)].append((value, timestamp))
    wanted: dict[Any, list[tuple[int, Any, int]]] = defaultdict(list)
    for emission in expected:
        timestamp = emission.window[1] - 1
        run = program.run_of(emission.key if keyed else None, timestamp)
        wanted[run].append((emission.order, program.expected(emission), timestamp))
    for run in by_key.keys() | wanted.keys():
        rest = by_key[run]
        if len(rest) != len(wanted[run]):
            return f"{run}: expected {wanted[run]}, seen {rest}"
        for order in sorted({each[0] for each in wanted[run]}) if keyed else [None]:
            at = [each[1:] for each in wanted[run] if order in (None, each[0])]
            part, rest = rest[: len(at)], rest[len(at) :]
            if Counter(map(repr, part)) != Counter(map(repr, at)):
                return f"{run}, at {order}: expected {wanted[run]}, seen {by_key[run]}"
    return ""


def check(program: Program, script: list[Step], replay: str) -> None:
    """Fail with the smallest script that shows the difference."""
    if not differences(program, script):
        return
    script = smaller(program, script)
    lines = "\n".join(f"  {step}" for step in script)
    message = f"{replay}\n{program}\n{lines}\n{differences(program, script)}"
    raise AssertionError(message)


def smaller(program: Program, script: list[Step]) -> list[Step]:
    """Leave out steps and records as long as there is a difference."""
    changed = True
    while changed:
        changed = False
        for candidate in _shorter(script):
            if candidate and differences(program, candidate):
                script, changed = candidate, True
                break
    return script


def _shorter(script: list[Step]) -> list[list[Step]]:
    found: list[list[Step]] = []
    for number, step in enumerate(script):
        found.append(script[:number] + script[number + 1 :])
        if isinstance(step, Records) and len(step.items) > 1:
            for gone in range(len(step.items)):
                items = step.items[:gone] + step.items[gone + 1 :]
                found.append([*script[:number], replace(step, items=items), *script[number + 1 :]])
    return found
