"""What is measured, against whom, and what ratio is wanted.

What it is: plain data.  A ``Measurement`` is one process that reports one rate; a ``Comparison``
sets Millstream's rate in relation to a peer's, both measured in the same run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.data import Dataset

__all__ = [
    "EMPTY_EPOCH_SECONDS",
    "LATENCY_SECONDS",
    "PIPELINED_LATENCY_SECONDS",
    "RECORD_LATENCY_SECONDS",
    "RECOVERY_SECONDS",
    "SESSION_ROWS_PER_SECOND",
    "STATE_MEMORY_BYTES",
    "Comparison",
    "Measurement",
    "comparisons",
    "costly_comparisons",
    "flink_comparisons",
    "own_measurements",
    "pipelined_comparisons",
    "pyflink_comparisons",
    "sql_comparisons",
]

_EVENTS = 2_000_000
_QUICK_EVENTS = 200_000
#: A stream so many times as long shows what large epochs save; the peer's rate does not change.
_LONGER = 4
_BUFFERED_EVENTS = 5_000_000
#: Read before the epochs without data.
_IDLE_EVENTS = 20_000
#: Bytewax and transformWithState need minutes for all events over 50,000 keys; their rate does
#: not depend on how many they get, so they get fewer, in files of the same size.
_SLOW_PEER_FILES = 4
_SLOWEST_PEER_EVENTS = 200_000
#: PyFlink's functions take some thousand records a second.
_PYFLINK_EVENTS = 100_000
#: Half a minute more than what is left out at the beginning; 1,000 in a second.
_LATENCY_EVENTS = 50_000
_QUICK_LATENCY_EVENTS = 20_000
#: One run against one would show the mood of the machine as much as the guarantee.
_KAFKA_REPEAT = 5

#: Wanted: an epoch without data takes less.
EMPTY_EPOCH_SECONDS = 0.5
#: Wanted: sessions of 50,000 keys with built-in aggregates.
SESSION_ROWS_PER_SECOND = 300_000
#: Wanted: 10 s windows sliding by 1 s and by 100 ms take at most three times as long as those that
#: slide by 10 s, although they give 10 and 100 times as many results.
_SLIDING_RATIO = 1 / 3
#: Wanted: a filter of SQL takes at most 1.2 times as long as that of a stream with columns.
_FILTER_RATIO = 1 / 1.2
#: Wanted: exactly-once from Kafka to Kafka, compared with at-least-once.
_KAFKA_RATIO = 0.7
#: Wanted: 99 of 100 events written to Kafka have a readable result in less.
LATENCY_SECONDS = 1.5
#: The same on the pipelined engine, with a checkpoint each 100 ms.
PIPELINED_LATENCY_SECONDS = 0.25
#: And 99 of 100 have passed the keyed operator in less.
RECORD_LATENCY_SECONDS = 0.02
#: Wanted: from the kill of a slot to the first record of the next run.
RECOVERY_SECONDS = 2.0
#: Wanted of the pipelined engine on two cores: counts, and windows with a user's function.
_PIPELINED_ROWS_PER_SECOND = 1_000_000
#: Wanted: from Kafka to Kafka, compared with what Kafka's client does alone.
_FLOOR_RATIO = 2 / 3
#: Wanted: functions that are costly per call, compared with micro-batches, start included; and
#: their records.
_COSTLY_RATIO = 0.5
_COSTLY_EVENTS = 50_000
_BATCHED = {"pandas", "model"}  # one call for many records
#: Busy processes beside a job on two cores, and the part of its rate that is wanted then: of its
#: share of the cores, half.
_HOGS = 2
_CROWDED_RATIO = 0.25
#: Events per second where latency is measured, beside 1,000; seconds that they come.
_FAST_RATE = 20_000
_FAST_SECONDS = 30
_QUICK_FAST_SECONDS = 14
#: Wanted: 5,000,000 keys of state take less, driver, JVM and workers together.
STATE_MEMORY_BYTES = 6 * 2**30


@dataclass(frozen=True)
class Measurement:
    """One process to run."""

    system: str
    module: str
    #: The kind of result, for ``bench/check.py``; empty if there is none to check.
    kind: str
    dataset: Dataset
    arguments: tuple[str, ...] = ()
    #: Windows that are open at the end stay out of the result.
    closed_only: bool = False
    #: Processes that are busy beside it.
    hogs: int = 0

    @property
    def name(self) -> str:
        """A unique name for files and messages."""
        extra = "-".join(argument.strip("-") for argument in self.arguments)
        dataset = self.dataset
        name = f"{self.module}-{extra or self.kind}-{dataset.keys}-{dataset.events}"
        return f"{name}-hogs-{self.hogs}" if self.hogs else name


@dataclass(frozen=True)
class Comparison:
    """Millstream against one peer."""

    workload: str
    millstream: Measurement
    peer: Measurement
    #: Millstream's rate divided by the peer's must be at least this; None: for information.
    at_least: float | None
    #: Each is run so many times at least, in turn; the medians are compared.
    repeat: int = 1
    #: Besides, Millstream's rate must be at least this; None: for information.
    rows_per_second: int | None = None


def _millstream(
    workload: str, kind: str, dataset: Dataset, execution: str = "epochs"
) -> Measurement:
    system = "Millstream"
    arguments: tuple[str, ...] = ("--workload", workload)
    if execution != "epochs":
        system, arguments = f"Millstream {execution}", (*arguments, "--execution", execution)
    return Measurement(system, "millstream_jobs", kind, dataset, arguments)


def _bytewax(workload: str, dataset: Dataset, *, processes: int = 1) -> Measurement:
    arguments = ("--workload", workload, "--processes", str(processes))
    return Measurement("Bytewax", "peer_bytewax", workload, dataset, arguments)


def _transform_with_state(variant: str, dataset: Dataset) -> Measurement:
    module, arguments = "peer_transform_with_state", ("--variant", variant)
    return Measurement("Spark transformWithState", module, "count", dataset, arguments)


def _spark_sql(dataset: Dataset) -> Measurement:
    return Measurement("Spark SQL", "peer_spark_sql", "windows", dataset, closed_only=True)


def _sql(
    workload: str, dataset: Dataset, execution: str = "epochs", *, mini_batch: bool = False
) -> Measurement:
    arguments: tuple[str, ...] = ("--workload", workload)
    system = "Millstream SQL"
    if mini_batch:
        system, arguments = f"{system}, mini-batches", (*arguments, "--mini-batch")
    if execution != "epochs":
        system, arguments = f"{system} {execution}", (*arguments, "--execution", execution)
    kind = {"windows": "windows", "filter": "map_filter"}.get(workload, f"sql_{workload}")
    return Measurement(system, "sql_jobs", kind, dataset, arguments)


def _from_csv(workload: str, dataset: Dataset, execution: str = "epochs") -> Measurement:
    made = _sql(workload, dataset, execution)
    return replace(made, kind=f"sql_{workload}", arguments=(*made.arguments, "--csv"))


def _flink_sql(workload: str, dataset: Dataset) -> Measurement:
    return Measurement("Flink SQL", "peer_flink_sql", "", dataset, ("--workload", workload))


def _spark_sql_variant(variant: str, dataset: Dataset) -> Measurement:
    kind = "map_filter" if variant == "filter" else ""
    return Measurement("Spark SQL", "peer_spark_sql", kind, dataset, ("--variant", variant))


def _kafka_floor(dataset: Dataset) -> Measurement:
    return Measurement("Kafka's client", "kafka_floor", "", dataset)


def _kafka_both(dataset: Dataset) -> Measurement:
    """One program that consumes and produces."""
    return Measurement("Kafka's client, both", "kafka_floor", "", dataset, ("--both",))


#: Texts as they are, exactly-once.
_PASSED_ON = "passed_on"


def _kafka(guarantee: str, dataset: Dataset, execution: str = "epochs", *more: str) -> Measurement:
    arguments: tuple[str, ...] = ("--workload", f"kafka_{guarantee}", *more)
    system = guarantee.replace("_", "-")
    if execution != "epochs":
        system, arguments = f"{system}, {execution}", (*arguments, "--execution", execution)
    kind = "copy" if guarantee == _PASSED_ON else "count"
    return Measurement(system, "kafka_jobs", kind, dataset, arguments)


def _slow_channel(mode: str) -> Measurement:
    system = f"{mode.replace('_', '-')}, pipelined"
    return Measurement(system, "slow_channel", "", Dataset(0, 1_000), ("--mode", mode))


def comparisons(*, quick: bool) -> list[Comparison]:
    """All comparisons, in the order in which they are printed."""
    few = Dataset(_QUICK_EVENTS if quick else _EVENTS, 1_000)
    many = replace(few, keys=50_000)
    fewer_events = many
    fewest_events = many
    if not quick:
        events = _EVENTS * _SLOW_PEER_FILES // many.files
        fewer_events = replace(many, events=events, files=_SLOW_PEER_FILES)
        fewest_events = replace(many, events=_SLOWEST_PEER_EVENTS)
    count = [_millstream("count", "count", dataset) for dataset in (few, many)]
    windows = [_millstream("windows", "windows", dataset) for dataset in (few, many)]
    long = replace(few, events=_LONGER * few.events)
    longer = _millstream("windows", "windows", long)
    longer_built_in = _millstream("windows_built_in", "windows", long)
    built_in = [_millstream("windows_built_in", "windows", dataset) for dataset in (few, many)]
    sliding = {
        slide: _millstream(f"sliding_{slide}", f"sliding_{slide}", few)
        for slide in (10_000, 1_000, 100)
    }
    map_filter = _millstream("map_filter", "map_filter", few)
    in_arrow = Measurement("Spark mapInArrow", "peer_map_in_arrow", "map_filter", few)
    return [
        Comparison("running count", count[0], _bytewax("count", few), 1.0),
        Comparison("running count", count[0], _transform_with_state("frames", few), None),
        Comparison("running count", count[1], _bytewax("count", many), 1.0),
        Comparison("running count", count[1], _transform_with_state("rows", fewer_events), 8.0),
        Comparison("windows, user's function", windows[0], _bytewax("windows", few), 4.0),
        Comparison("windows, user's function", windows[1], _bytewax("windows", fewest_events), 4.0),
        Comparison("windows, user's, longer stream", longer, _bytewax("windows", few), 4.0),
        Comparison("windows, built in", built_in[0], _spark_sql(few), 5.0),
        Comparison("windows, built in", built_in[1], _spark_sql(many), 5.0),
        Comparison("windows, built in, longer stream", longer_built_in, _spark_sql(few), 5.0),
        *(
            Comparison(f"10 s windows by {slide} ms", sliding[slide], sliding[10_000], ratio)
            for slide, ratio in ((1_000, _SLIDING_RATIO), (100, _SLIDING_RATIO))
        ),
        Comparison("map and filter", map_filter, in_arrow, 1.0),
        Comparison("map and filter", map_filter, _bytewax("map_filter", few, processes=2), 0.8),
        Comparison(
            "Kafka to Kafka, exactly-once",
            _kafka("exactly_once", few),
            _kafka("at_least_once", few),
            _KAFKA_RATIO,
            _KAFKA_REPEAT,
        ),
        Comparison(
            "Kafka to Kafka, of the floor",
            _kafka("exactly_once", few),
            _kafka_floor(few),
            _FLOOR_RATIO,
        ),
        Comparison(
            "Kafka to Kafka, of a plain program",
            _kafka("exactly_once", few),
            _kafka_both(few),
            None,
        ),
        Comparison(
            "Kafka to Kafka, texts passed on, of a plain program",
            _kafka(_PASSED_ON, few),
            _kafka_both(few),
            None,
        ),
    ]


def pipelined_comparisons(*, quick: bool) -> list[Comparison]:
    """The workloads on the pipelined engine, against the peers and against epochs."""
    few = Dataset(_QUICK_EVENTS if quick else _EVENTS, 1_000)
    long = replace(few, events=_LONGER * few.events)
    many = replace(few, keys=50_000)
    long_of_many = replace(long, keys=50_000)

    def pipelined(workload: str, kind: str, dataset: Dataset) -> Measurement:
        return _millstream(workload, kind, dataset, "pipelined")

    count = [pipelined("count", "count", dataset) for dataset in (long, long_of_many)]
    windows = pipelined("windows", "windows", long)
    built_in = [
        pipelined("windows_built_in", "windows", dataset) for dataset in (long, long_of_many)
    ]
    map_filter = pipelined("map_filter", "map_filter", long)
    in_epochs = _millstream("count", "count", few)
    exactly_once, at_least_once = (
        _kafka(guarantee, few, "pipelined") for guarantee in ("exactly_once", "at_least_once")
    )
    rows = [
        Comparison(
            "running count", count[0], _bytewax("count", few), 4.0, 1, _PIPELINED_ROWS_PER_SECOND
        ),
        Comparison("running count", count[0], in_epochs, None),
        Comparison(
            "running count", count[1], _bytewax("count", many), 4.0, 1, _PIPELINED_ROWS_PER_SECOND
        ),
        Comparison(
            *("windows, user's function", windows, _bytewax("windows", few), 4.0, 1),
            _PIPELINED_ROWS_PER_SECOND,
        ),
        Comparison("windows, built in", built_in[0], _spark_sql(few), 5.0),
        Comparison("windows, built in", built_in[1], _spark_sql(many), 15.0),
        Comparison("map and filter", map_filter, _bytewax("map_filter", few, processes=2), 1.5),
        Comparison("Kafka to Kafka", exactly_once, at_least_once, 0.9, _KAFKA_REPEAT),
        Comparison("Kafka to Kafka, of the floor", exactly_once, _kafka_floor(few), _FLOOR_RATIO),
        Comparison("Kafka to Kafka, of a plain program", exactly_once, _kafka_both(few), None),
        Comparison(
            "Kafka to Kafka, texts passed on, of a plain program",
            _kafka(_PASSED_ON, few, "pipelined"),
            _kafka_both(few),
            None,
        ),
    ]
    crowded, in_crowded_epochs = (replace(each, hogs=_HOGS) for each in (count[0], in_epochs))
    rows += [
        Comparison("running count beside CPU hogs", crowded, count[0], _CROWDED_RATIO),
        Comparison("running count beside CPU hogs", crowded, in_crowded_epochs, None),
    ]
    at_least, exactly = (_slow_channel(mode) for mode in ("at_least_once", "exactly_once"))
    rows.append(
        Comparison("one slow channel, at-least-once", at_least, exactly, None, _KAFKA_REPEAT)
    )
    return [replace(row, workload=f"{row.workload}, pipelined") for row in rows]


def _costly(function: str, execution: str, events: int) -> Measurement:
    arguments = ("--function", function, "--execution", execution)
    dataset = Dataset(events, 1)
    return Measurement(f"Millstream {execution}", "costly_calls", "", dataset, arguments)


def costly_comparisons(*, quick: bool) -> list[Comparison]:
    """Functions that are costly per call, pipelined against micro-batches."""
    events = _COSTLY_EVENTS // 5 if quick else _COSTLY_EVENTS
    names = {
        "async": "asynchronous enrichment",
        "pandas": "pandas function",
        "model": "model inference by map_batches",
    }

    def measured(function: str, execution: str) -> Measurement:
        # Learning the size of a call takes a second, and a call takes thousands.
        return _costly(function, execution, events * (20 if function in _BATCHED else 1))

    return [
        Comparison(
            f"{name}, pipelined",
            measured(function, "pipelined"),
            measured(function, "epochs"),
            _COSTLY_RATIO,
        )
        for function, name in names.items()
    ]


def sql_comparisons(*, quick: bool) -> list[Comparison]:
    """Statements against Spark SQL, and against our own streams."""
    few = Dataset(_QUICK_EVENTS if quick else _EVENTS, 1_000)
    many = replace(few, keys=50_000)
    rows = [Comparison("filter", _sql("filter", few), _spark_sql_variant("filter", few), None)]
    for dataset in (few, many):
        peer = _spark_sql_variant("aggregate", dataset)
        rows.append(Comparison("group aggregate", _sql("aggregate", dataset), peer, None))
        batched = _sql("aggregate", dataset, mini_batch=True)
        rows.append(Comparison("group aggregate, mini-batches", batched, peer, None))
    windows = _sql("windows", few)
    rows.append(Comparison("windows", windows, _spark_sql(few), None))
    streams = _millstream("windows_built_in", "windows", few)
    rows.append(Comparison("windows, of streams", windows, streams, None))
    columns = _millstream("map_columns", "map_filter", few)
    rows.append(Comparison("filter, of streams", _sql("filter", few), columns, _FILTER_RATIO))
    return [replace(row, workload=f"SQL {row.workload}") for row in rows]


def flink_comparisons(*, quick: bool) -> list[Comparison]:
    """Statements against Flink's SQL, from the same CSV files into a blackhole."""
    few = Dataset(_QUICK_EVENTS if quick else _EVENTS, 1_000)
    many = replace(few, keys=50_000)
    rows = [("filter", few), ("windows", few)]
    for workload in ("aggregate", "join", "top_10", "last"):
        rows += [(workload, few), (workload, many)]
    found = []
    for workload, dataset in rows:
        ours, theirs = _from_csv(workload, dataset), _flink_sql(workload, dataset)
        found.append(Comparison(f"SQL {workload}, CSV", ours, theirs, None))
    return found


def _swapped(workload: str, mode: str, dataset: Dataset) -> Measurement:
    """The program of ``bench/pyflink_program.py`` on PyFlink or on Millstream."""
    system = f"PyFlink, {mode}" if mode in {"process", "thread"} else f"Millstream {mode}"
    kind = "map_filter" if workload == "pandas_udf" else workload
    return Measurement(
        system, "peer_pyflink", kind, dataset, ("--workload", workload, "--mode", mode)
    )


def pyflink_comparisons(*, quick: bool) -> list[Comparison]:
    """The same programs on PyFlink and, with swapped imports, on Millstream."""
    few = Dataset(_QUICK_EVENTS if quick else _EVENTS, 1_000)
    workloads = [("map_filter", 1_000), ("count", 1_000), ("count", 50_000), ("windows", 1_000)]
    rows = []
    for workload, keys in [*workloads, ("pandas_udf", 1_000)]:
        ours = _swapped(workload, "pipelined", replace(few, keys=keys))
        for mode in ("process", "thread"):
            theirs = _swapped(workload, mode, Dataset(_PYFLINK_EVENTS, keys))
            name = f"{workload.replace('_', ' ')}, swapped imports"
            rows.append(Comparison(name, ours, theirs, None))
    return rows


def own_measurements(*, quick: bool) -> tuple[Measurement, ...]:
    """What has a target but no peer: epochs without data, sessions, large state, latency, recovery.

    One that is there twice has two lines.
    """
    idle = _millstream("idle", "", Dataset(_IDLE_EVENTS, 1_000, files=2))
    keys = 500_000 if quick else 5_000_000
    state = _millstream("state", "state", Dataset(keys * 6 // 5, keys, distinct=True))
    sessions = _millstream(
        "sessions", "sessions", Dataset(_QUICK_EVENTS if quick else _EVENTS, 50_000)
    )
    elements = _BUFFERED_EVENTS // 10 if quick else _BUFFERED_EVENTS
    buffered = _millstream("buffered", "buffered", Dataset(elements, 1_000))
    events = _QUICK_LATENCY_EVENTS if quick else _LATENCY_EVENTS
    latency = _kafka("latency", Dataset(events, 1_000))
    pipelined = _kafka("latency", Dataset(events, 1_000), "pipelined")
    many = _FAST_RATE * (_QUICK_FAST_SECONDS if quick else _FAST_SECONDS)
    fast = _kafka("latency", Dataset(many, 1_000), "pipelined", "--rate", str(_FAST_RATE))
    long_of_many = Dataset((_QUICK_EVENTS if quick else _EVENTS) * _LONGER, 50_000)
    checkpoints = _millstream("count", "count", long_of_many, "pipelined")
    recovery = Measurement("Millstream pipelined", "recovery", "", Dataset(0, 1_000))
    twice = (pipelined, pipelined, fast, fast)
    slow = (_slow_channel("at_least_once"), _slow_channel("exactly_once"))
    return idle, sessions, state, buffered, latency, *twice, checkpoints, *slow, recovery
