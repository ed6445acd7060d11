"""Tests that run a job in their process run it on both engines, or it is said here why not.

``both_engines`` marks them; ``tests/conftest.py`` runs these again.  Schedules at random
(``tests/integration/job_runs.py``) draw an engine for each run.  Tests say what they are ``about``
where engines differ most, and ``make test`` has both runs of these.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.conftest import ABOUT

TESTS: Final = Path(__file__).parents[1]
#: Tests to which the engine makes no difference, and what they are about.
ELSEWHERE: Final = {
    "checkpoint/test_signature.py": "files of the driver",
    "cli/test_commands_in_messages.py": "messages of the driver",
    "conformance/test_secrets.py": "what the driver writes",
    "connectors/test_hybrid_source.py": "says itself which engine runs it",
    "coordination/test_hanging_kafka.py": "the committer",
    "databases/test_lakehouse_sinks.py": "sinks by themselves, and the text of a page",
    "databases/test_postgres_page.py": "the text of a page",
    "docs/test_aggregates.py": "the text of a page",
    "docs/test_embedded.py": "the text of a page",
    "docs/test_time.py": "the text of a page",
    "execution/test_retention.py": "files of the driver",
    "kafka/test_docs.py": "the text of a page",
    "kafka/test_security.py": "connections to the broker",
    "kafka/test_transactions_command.py": "a command",
    "pipelined/test_abandoned.py": "tasks that live on, of which checkpoints are given up",
    "pipelined/test_changed_records.py": "says itself which engine takes and which restores",
    "pipelined/test_ends_in_flight.py": "says itself which engine takes and which restores",
    "pipelined/test_restored_frames.py": "says itself which engine takes and which restores",
    "pipelined/test_unaligned.py": "says itself which engine takes and which restores",
    "sql/queries/test_bench_check.py": "a check of the benchmark",
    "sql/random/test_late_rows.py": "says itself which engine runs which part",
    "state/test_canonical_state.py": "files of a savepoint",
    "state/test_query.py": "files of a checkpoint",
    "state/test_reader.py": "files of a checkpoint",
    "state_processor/test_state_processor.py": "files of a savepoint",
}


def test_whoever_runs_a_job_runs_it_on_both() -> None:
    texts = {
        str(path.relative_to(TESTS)): path.read_text()
        for path in TESTS.rglob("test_*.py")
        if path != Path(__file__)
    }
    running = {name for name, text in texts.items() if "MiniCluster(" in text}
    on_one = {name for name in running if "mark.both_engines" not in texts[name]}
    assert on_one == set(ELSEWHERE), "mark tests both_engines, or say why not"


def test_whatever_tests_are_about_is_known() -> None:
    texts = [path.read_text() for path in TESTS.rglob("test_*.py")]
    found = {
        about for text in texts for about in re.findall(r'both_engines\(.*about="(\w+)"', text)
    }
    assert found == set(ABOUT)
