"""The conformance suite finds each way in which a sink can be broken, and names the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.conformance.reference import ReferenceSink

from millstream.common import Types
from millstream.connectors.commit_protocols.staged_values import GenericWriteAheadSink
from millstream.contracts.batch import Batch
from millstream.contracts.sink import DeliveryGuarantee
from millstream.testing.conformance import ConformanceError, check_sink

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

BATCHES = [Batch(Types.LONG(), values=[3, 1]), Batch(Types.LONG(), values=[2])]
TEETH = {
    "shows too early": "writer contract 2: output is visible before the commit .too many",
    "shows what was aborted": "writer contract 4: aborted output is visible",
    "writes for an empty epoch": "writer contract 5: an epoch without records changed the output",
    "keeps output in a field": "committer contract 2: committed output is not visible",
    "shares a name": "writer contract 4: attempt 'winner' of subtask 0 .*FileExists",
    "refuses what it committed": "committer contract 1: commit is not idempotent: output of",
    "copies at each commit": "committer contract 1: commit is not idempotent .too many",
    "commits the first only": "committer contract 2: epoch 4 is not visible exactly once .*missing",
    "drops what is kept": "committer contract 3: abort_orphans dropped what others keep",
    "drops output of other jobs": "committer contract 3: abort_orphans dropped what others keep",
    "drops output of other sinks": "committer contract 3: abort_orphans dropped what others keep",
    "drops output of newer runs": "committer contract 3: abort_orphans dropped what others keep",
    "takes committed output away": "committer contract 3: dropping an epoch.*missing",
    "drops nothing": "committer contract 3: abort_orphans left the losing attempt.*loser",
    "cannot abort twice": "committer contract 3: abort_orphans fails with nothing to drop",
    "forgets what it committed": "committer contract 7: an older run committed an epoch that a",
    "locks while it writes": "writer contract 6: the next epoch, which is being written, keeps a",
    "drops what it does not commit": "writer contract 6: the next epoch.*of checkpoint .* is lost",
    "looks for its epoch alone": "committer contract 9: output of checkpoints that failed, with",
    "mixes the order": "epoch 2 is not visible exactly once .in another order",
    "no committer": "an exactly-once sink that is not idempotent needs a committer",
    "adds rows": "an idempotent sink: written again, the same rows are not the same .again",
    "loses records": "an at-least-once sink lost records of a later epoch: lost are",
}
#: Seen only when a process is killed.
DEADLY = {
    "keeps output in memory": "writer contract 3: what a writer pre-committed did not survive",
    "notes before it commits": "committer contract 2: a commit that was killed in the middle",
}


def check(directory: Path, fault: str, *, processes: bool) -> None:
    sink = ReferenceSink(directory, fault)
    check_sink(
        lambda: ReferenceSink(directory, fault),
        BATCHES,
        sink.read,
        leftovers=sink.leftovers,
        ordered=True,
        processes=processes,
    )


@pytest.mark.parametrize("fault", ["", "at-least-once"])
def test_a_sink_that_is_right(tmp_path: Path, fault: str) -> None:
    check(tmp_path, fault, processes=True)


@pytest.mark.parametrize("fault", list(TEETH))
def test_a_broken_sink_is_found(tmp_path: Path, fault: str) -> None:
    with pytest.raises(ConformanceError, match=f"^.*{TEETH[fault]}"):
        check(tmp_path, fault, processes=False)


@pytest.mark.parametrize("fault", list(DEADLY))
def test_a_sink_that_cannot_be_killed_is_found(tmp_path: Path, fault: str) -> None:
    check(tmp_path / "unkilled", fault, processes=False)  # it takes a kill
    with pytest.raises(ConformanceError, match=f"^{DEADLY[fault]}"):
        check(tmp_path / "killed", fault, processes=True)


class Unnoted(GenericWriteAheadSink):
    """Says that it is exactly-once, and notes what it wrote in a step of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.guarantee = DeliveryGuarantee.EXACTLY_ONCE

    def send_values(self, values: Iterable[object], checkpoint_id: int, timestamp: int) -> bool:
        with self.path.open("a") as file:
            file.writelines(f"{value}\n" for value in values)
        return True


def test_a_sink_that_notes_what_it_wrote_too_late_is_found(tmp_path: Path) -> None:
    path = tmp_path / "lines"

    def read() -> list[str]:
        return path.read_text().split() if path.exists() else []

    broken = "committer contract 2: a commit that died at wal.send.after is not resumed .too many"
    with pytest.raises(ConformanceError, match=f"^{broken}"):
        check_sink(lambda: Unnoted(path), BATCHES, read, processes=False)
