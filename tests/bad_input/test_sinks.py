"""Bad input of sinks: every connector, every kind, through a job that then goes on.

Each case runs the first epoch, then meets what is wrong.  It checks the error, what a reader sees
then, and, the cause removed, that the job comes to its end with every record once.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.bad_input.jobs import (
    BAD,
    PER_EPOCH,
    RESULT,
    ROWS,
    TEXTS,
    rows_with,
    run,
    sink_graph,
    submit,
)
from tests.bad_input.outlets import (
    DATABASES,
    FileOutlet,
    KafkaOutlet,
    Outlet,
    make_outlet,
)

from millstream.common import Row
from millstream.contracts.sink import DeliveryGuarantee
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from millstream.types.types import TypeInformation

pytestmark = pytest.mark.both_engines(every=8)

KEYS = sorted(row.key for row in ROWS)
FIRST = sorted(row.key for row in ROWS[:PER_EPOCH])


def nothing(outlet: Any) -> None:
    """Nothing has to be done."""


@dataclass(frozen=True)
class Cause:
    """Something wrong that appears after the first epoch."""

    #: Patterns of what the message must say beside sink, target and epoch.
    says: tuple[str, ...]
    #: The record of the second epoch that is refused, and the type of all.
    bad: Row | None = None
    kind: TypeInformation = RESULT
    place: str = r"sink 'results' \(jobs.py:\d+, uid results-sink\).* checkpoint 1, subtask [01]: "
    #: Of the sink.
    options: Mapping[str, Any] = field(default_factory=dict)
    breaks: Callable[[Any], None] = nothing
    mends: Callable[[Any], None] = nothing


def statement(text: str) -> Callable[[Any], None]:
    return lambda outlet: outlet.execute(text)


ADVICE = "Correct the record, filter it out before the sink, or change the table"
RENAMED = "ALTER TABLE results RENAME {} TO {}"
TABLE: dict[str, Cause] = {
    "constraint": Cause(("(?i)check", "bad-key", "1000000", ADVICE), Row("bad-key", 10**6, 5)),
    "null": Cause(("(?i)not.null", "null, 5, 5|None, 'n': 5", ADVICE), Row(None, 5, 5)),
    "duplicate": Cause(
        ("(?i)unique|duplicate", "k1", ADVICE),
        Row("k1", 99, 5),
        breaks=statement("CREATE UNIQUE INDEX single ON results (key)"),
    ),
    "does not parse": Cause(
        (r"refuses record {'key': 'bad-key', 'n': 'seven', 'id': 5}", ADVICE),
        Row("bad-key", "seven", 5),
        TEXTS,
    ),
    "no table": Cause(
        ("there is no table 'results'", "create it"),
        breaks=statement(RENAMED.format("", "elsewhere")),
        mends=statement("ALTER TABLE elsewhere RENAME TO results"),
    ),
    "no column": Cause(
        (r"no column 'n'; it has \['key', 'm', 'id'", r"give columns="),
        breaks=statement(RENAMED.format("COLUMN n", "m")),
        mends=statement(RENAMED.format("COLUMN m", "n")),
    ),
}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("cause", list(TABLE))
@pytest.mark.parametrize("connector", DATABASES)
def test_tables(connector: str, cause: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    outlet = make_outlet(connector, request, tmp_path)
    check(outlet, TABLE[cause], tmp_path)


def bad_bucket(row: Row) -> str:
    return "../up" if row.key == "bad-key" else ""


def no_bucket(row: Row) -> str:
    if row.key == "bad-key":
        message = "no bucket"
        raise LookupError(message)
    return ""


def to_text(row: Row) -> bytes:
    if row.key == "bad-key":
        message = "no text for it"
        raise ValueError(message)
    return json.dumps(row.as_dict()).encode()


def put_a_file_there(outlet: FileOutlet) -> None:
    outlet.directory.rename(outlet.directory.with_name("away"))
    outlet.directory.write_text("no directory")


def put_it_back(outlet: FileOutlet) -> None:
    outlet.directory.unlink()
    outlet.directory.with_name("away").rename(outlet.directory)


NAMED = r"'bad-key', 5, 5|key='bad-key', n=5, id=5"
FILES: dict[str, Cause] = {
    "hidden bucket": Cause(
        (r"bucket '../up'", NAMED, "relative directory"),
        Row("bad-key", 5, 5),
        options={"bucket_assigner": bad_bucket},
    ),
    "no bucket": Cause(
        (r"LookupError\('no bucket'\)", NAMED),
        Row("bad-key", 5, 5),
        options={"bucket_assigner": no_bucket},
    ),
    "no directory": Cause(
        (
            "cannot rename .*is a file, not a directory",
            "checkpoint 0",
            "stay pre-committed",
            "next run .* commits them",
        ),
        place="sink results-sink could not commit",  # again, which it does at each start
        breaks=put_a_file_there,
        mends=put_it_back,
    ),
}
LARGE = Row("bad-key", "x" * 2_000_000, 5)
KAFKA: dict[str, Cause] = {
    "does not serialize": Cause(
        ("the value of record", NAMED, "no text for it"),
        Row("bad-key", 5, 5),
        options={"value": to_text},
    ),
    "too large": Cause(
        ("larger than the sink may send: 2000031 bytes", "bad-key", "message.max.bytes"),
        LARGE,
        TEXTS,
    ),
}


def test_a_topic_that_is_deleted_while_the_job_runs(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The next run has a new producer; this broker makes the topic again by itself."""
    outlet = make_outlet("kafka-at-least-once", request, tmp_path)
    assert isinstance(outlet, KafkaOutlet)

    def go(epochs: int = 100) -> None:
        run(sink_graph(outlet.sink(), parallelism=1), tmp_path / "checkpoints", epochs)

    go(epochs=1)
    outlet.broker.delete(outlet.topic)
    with pytest.raises(
        SinkError, match=f"sink 'results'.*checkpoint 1.*{outlet.topic}.*UNKNOWN_TOPIC"
    ):
        go()
    go()
    assert set(outlet.read()) >= set(KEYS) - set(FIRST)


@pytest.mark.parametrize("cause", list(FILES))
def test_files(cause: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    check(make_outlet("file", request, tmp_path), FILES[cause], tmp_path)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("cause", list(KAFKA))
@pytest.mark.parametrize("connector", ["kafka-exactly-once", "kafka-at-least-once"])
def test_kafka(connector: str, cause: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    check(make_outlet(connector, request, tmp_path), KAFKA[cause], tmp_path)


def check(outlet: Outlet, cause: Cause, directory: Path) -> None:
    checkpoints = directory / "checkpoints"

    def graph(bad: Row | None) -> Any:
        rows: list[Any] = rows_with(None if bad is None else Row(key=bad[0], n=bad[1], id=bad[2]))
        if cause.kind is TEXTS:
            rows = [Row(key=row.key, n=str(row.n), id=row.id) for row in rows]
        return sink_graph(outlet.sink(**cause.options), rows, cause.kind, outlet.parallelism)

    good = graph(None)
    submit(good)
    run(good, checkpoints, epochs=1)
    assert outlet.read() == FIRST
    cause.breaks(outlet)
    with pytest.raises(SinkError) as caught:
        run(graph(cause.bad), checkpoints)
    message = str(caught.value)
    print(message)
    cause.mends(outlet)
    exact = outlet.sink().guarantee is DeliveryGuarantee.EXACTLY_ONCE
    seen = outlet.read()
    if exact:
        assert seen == FIRST, "nothing of the epoch is visible, what was before is"
    assert set(FIRST) <= set(seen) <= set(KEYS) - {f"k{BAD}"}
    assert re.search(cause.place, message)
    assert outlet.name in message
    for each in cause.says:
        assert re.search(each, message), each
    run(graph(None), checkpoints)
    assert (outlet.read() if exact else sorted(set(outlet.read()))) == KEYS
    assert list(outlet.leftovers()) == []
