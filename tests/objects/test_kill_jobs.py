"""kill -9 of jobs whose checkpoints are on S3, on the local and the pipelined engine."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.recovery.test_kill_driver import FIRST, OF_EPOCHS, POINTS, RECORDS, Chain, _kill_at

from millstream.crash_points import points_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.objects.server import S3Server

#: Each start of these takes seconds; the other points are those of the tests on local directories.
SAMPLE = 5


class S3Chain(Chain):
    """One job that is started again and again, with its checkpoints on S3."""

    #: Its workers are of a new interpreter, which learns of the point from the environment.
    forked = False

    def __init__(
        self, directory: Path, bucket: str, seed: int, master: str, records: int = RECORDS
    ) -> None:
        super().__init__(directory, seed, master, records)
        self.checkpoints = f"{bucket}/checkpoints"

    def arguments(self, *, slow: bool) -> list[str]:
        arguments = super().arguments(slow=slow)
        return [*arguments[:2], self.checkpoints, *arguments[3:]]


def test_a_job_continues_from_s3_after_a_kill(
    bucket: str, s3_server: S3Server, tmp_path: Path
) -> None:
    chain = S3Chain(tmp_path, bucket, 1, "local", records=300)
    assert chain.start("manifest.publish.after:2").killed
    assert chain.start(slow=False).exit_code == 0
    assert [key for key in s3_server.keys(bucket.removeprefix("s3://")) if "/log/" in key]
    assert not list(tmp_path.rglob("job.json"))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("master", ["local", "pipelined"])
def test_crash_points_on_s3(master: str, bucket: str, tmp_path: Path) -> None:
    chance = random.Random(1)
    chain = S3Chain(tmp_path, bucket, 1, master)
    points = sorted(set(POINTS) - set(FIRST))
    if master == "pipelined":
        points = sorted({*points, *points_of("pipelined task")} - set(OF_EPOCHS))
    _kill_at(chain, FIRST[:1] + chance.sample(points, SAMPLE), chance)
    assert chain.start(slow=False).exit_code == 0
