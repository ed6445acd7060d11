"""Tables in object stores: INSERT OVERWRITE, and the commit of partitions."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

import pytest
from tests.objects import table_job

from millstream.crash_points import points_of
from millstream.testing.crash import run_once

if TYPE_CHECKING:
    from pathlib import Path

    from obstore.store import AzureStore, GCSStore, S3Store
    from tests.objects.server import S3Server

COUNT = 60
KEYS = "abd"


class Tables:
    """Tables with old rows, which have negative numbers, and new ones to replace them with."""

    def __init__(self, client: S3Store | GCSStore | AzureStore) -> None:
        self.client = client
        for number in range(3):
            rows = [{"id": n, "k": KEYS[n % len(KEYS)]} for n in range(COUNT) if n % 3 == number]
            self._put(f"given/{number}.json", rows)
        self._put("parts/k=a/old.json", [{"id": -1}])
        self._put("parts/k=c/old.json", [{"id": -3}])
        self._put("whole/old.json", [{"id": -4, "k": "x"}])

    def _put(self, key: str, rows: list[dict[str, object]]) -> None:
        self.client.put(key, "".join(json.dumps(row) + "\n" for row in rows).encode())

    def keys(self) -> list[str]:
        return [entry["path"] for page in self.client.list() for entry in page]

    def rows(self, prefix: str) -> list[int]:
        """The numbers in the files that readers see."""
        keys = [k for k in self.keys() if k.startswith(prefix) and not re.search(r"(^|/)[._]", k)]
        contents = [bytes(self.client.get(key).bytes()) for key in keys]
        return sorted(json.loads(line)["id"] for each in contents for line in each.splitlines())

    def check(self, *, whole: bool) -> None:
        """Nothing is there twice, and new rows only where no old ones are; in the end all."""
        wanted = {key: list(range(n, COUNT, len(KEYS))) for n, key in enumerate(KEYS)}
        assert self.rows("parts/k=c/") == [-3], "a partition without new rows has changed"
        for table in ("parts/k=a/", "whole/"):
            found = self.rows(table)
            assert found in ([-1], [-4], []) or min(found) >= 0, f"{table}: old beside new rows"
        for table in ("parts", "whole", "added"):
            found = [each for each in self.rows(f"{table}/") if each >= 0]
            assert len(found) == len(set(found)), f"{table}: a row is there twice"
            assert found == list(range(COUNT)) or not whole, table
        for key in KEYS:
            for table in ("parts", "added"):
                is_complete = f"{table}/k={key}/_SUCCESS" in self.keys()
                assert self.rows(f"{table}/k={key}/") == wanted[key] or not is_complete, key
                assert is_complete or not whole
        if whole:
            left = [key for key in self.keys() if ".pending" in key or "/kept-" in key]
            assert left == []


def run(base: str, execution: str, directory: Path, crash: str = "") -> bool:
    """Run the job; returns whether it was killed."""
    done = run_once(
        [sys.executable, table_job.__file__, base, execution],
        directory=directory,
        crash=crash,
        deadline=120,
    )
    assert done.killed or not done.exit_code, done.output
    if not done.killed:
        assert f"committed {base}/parts/k=a {{'k': 'a'}}" in done.output
    return done.killed


def test_a_table_is_replaced_and_partitions_are_committed(
    bucket: str, s3_server: S3Server, tmp_path: Path
) -> None:
    tables = Tables(s3_server.client(bucket.removeprefix("s3://")))
    assert not run(bucket, "epochs", tmp_path)
    tables.check(whole=True)
    assert s3_server.uploads(bucket.removeprefix("s3://")) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_it_is_killed_at_each_step(
    execution: str, bucket: str, s3_server: S3Server, tmp_path: Path
) -> None:
    tables = Tables(s3_server.client(bucket.removeprefix("s3://")))
    kill_at_each_step(tables, bucket, execution, tmp_path)


def kill_at_each_step(tables: Tables, base: str, execution: str, directory: Path) -> None:
    """Kill the job at each step of both, then let it end."""
    of_tables = [f"overwrite.{step}" for step in ("delete.before", "delete.after", "move.after")]
    kills = 0
    for point in ["upload.parts.after", *of_tables, *points_of("partition commit"), ""]:
        kills += run(base, execution, directory / (point or "end"), point and f"{point}:1")
        tables.check(whole=not point)
    assert kills >= 4
