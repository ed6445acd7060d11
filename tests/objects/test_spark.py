"""Jobs on Spark whose checkpoints are on S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.objects.server import KEY, SECRET
from tests.objects.test_kill_jobs import S3Chain

if TYPE_CHECKING:
    from pathlib import Path

    from tests.objects.server import S3Server

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]


def test_a_job_continues_on_spark_after_kills(
    bucket: str, s3_server: S3Server, tmp_path: Path
) -> None:
    chain = S3Chain(tmp_path, bucket, 1, "local[2]", records=600)
    assert chain.start("manifest.publish.after:2").killed
    assert chain.start("sink.commit.after:1").killed
    assert chain.start(slow=False).exit_code == 0
    name = bucket.removeprefix("s3://")
    for key in s3_server.keys(name):
        content = s3_server.content(name, key)
        assert SECRET.encode() not in content
        assert KEY.encode() not in content
