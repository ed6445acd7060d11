"""Names of output, letter for letter: what other releases left in targets must be recognised."""

from __future__ import annotations

import re

import pytest

from millstream.connectors.commit_protocols.staged_values import attempt_name
from millstream.connectors.output_names import OutputNames, TransactionalIdParts, generation_of
from millstream.contracts.sink import WriterContext

JOB = "0123456789abcdef0123456789abcdef"
CONTEXT = WriterContext(JOB, "out/1", 1, 2, 7, "a/1", generation=3)
NAMES = OutputNames.of(CONTEXT)
SERVER = "millstream-3eb1bd439947eb76-cbefdf0fa9b840f3-"
DIGITS = "[0-9a-f]{12}"


@pytest.mark.parametrize(
    ("name", "form"),
    [
        (NAMES.directory, f"{JOB}/out%2F1"),
        (OutputNames.of_file(CONTEXT, "pending"), rf"g3-000007-1-a%2F1-{DIGITS}\.pending"),
        (
            attempt_name(CONTEXT, "values"),
            rf"sinks/{JOB}/out%2F1/g3-000007-1-a%2F1-{DIGITS}\.values",
        ),
        (NAMES.of_part(CONTEXT), f"{SERVER}g3-e7-s1-{DIGITS}"),
        (NAMES.of_session(3, "commit"), f"{SERVER}g3-commit"),
        (NAMES.of_producer("own-prefix", 3), f"own-prefix-{JOB}-59ea133a-g3-{DIGITS}"),
    ],
    ids=["directory", "file", "attempt", "part", "session", "producer"],  # names are random
)
def test_names_are_those_of_earlier_releases(name: str, form: str) -> None:
    assert re.fullmatch(form, name)


def test_each_attempt_has_names_of_its_own() -> None:
    made = [OutputNames.of_file(CONTEXT, "x"), NAMES.of_part(CONTEXT), NAMES.of_producer("p", 3)]
    again = [OutputNames.of_file(CONTEXT, "x"), NAMES.of_part(CONTEXT), NAMES.of_producer("p", 3)]
    assert not set(made) & set(again)


def test_every_name_tells_its_generation() -> None:
    assert generation_of(OutputNames.of_file(CONTEXT, "pending")) == 3
    assert generation_of(NAMES.of_part(CONTEXT), NAMES.on_server) == 3
    assert generation_of(NAMES.of_session(12, "commit"), NAMES.on_server) == 12
    assert generation_of(NAMES.of_producer("p-g1-x", 3), NAMES.transactional("p-g1-x")) == 3
    parts = TransactionalIdParts.of(NAMES.of_producer("p-g1-x", 3))
    assert parts == TransactionalIdParts("p-g1-x", JOB, NAMES.tag, 3)
    for foreign in ("", "commit", "gx-1", "7-1", "g7", f"{SERVER}g7-1"):
        assert generation_of(foreign) is None
    assert TransactionalIdParts.of("somebody-else") is None


def test_orphans_are_of_this_run_and_older_ones() -> None:
    own = {run: OutputNames("j", "s").of_session(run, "x") for run in (1, 2, 3, 4)}
    owner = OutputNames("j", "s").on_server
    assert OutputNames.orphans(own.values(), {own[2]}, 3, owner) == [own[1], own[3]]
