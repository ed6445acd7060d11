"""Whose checkpoint directory it is."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from millstream.checkpoint import JobIdentity, LocalStorage
from millstream.checkpoint.model import OperatorRecord
from millstream.contracts.operator import FUNCTION_STATES
from millstream.errors import CorruptCheckpointError, ForeignCheckpointError, UnknownFormatError

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = {
    "source": OperatorRecord("source", "source", "files", "job.py:3", connector="FileSource"),
    "count": OperatorRecord("count", "operator", "count", "job.py:5", sections=(FUNCTION_STATES,)),
}


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path, fsync=False)


def test_claimed_once_and_kept(storage: LocalStorage) -> None:
    job_id = JobIdentity.claim(storage, "job", PROGRAM)
    assert JobIdentity.claim(storage, "job", dict(reversed(list(PROGRAM.items())))) == job_id
    assert JobIdentity.load(storage) == JobIdentity(job_id, "job", PROGRAM)


def test_racing_claims_agree(storage: LocalStorage) -> None:
    with ThreadPoolExecutor(4) as pool:
        ids = set(pool.map(lambda _: JobIdentity.claim(storage, "job", PROGRAM), range(8)))
    assert len(ids) == 1


def test_another_name_is_another_job_and_changes_nothing(
    storage: LocalStorage, tmp_path: Path
) -> None:
    JobIdentity.claim(storage, "job", PROGRAM)
    before = (tmp_path / "job.json").read_bytes()
    with pytest.raises(ForeignCheckpointError, match="'job', this one 'other'"):
        JobIdentity.claim(storage, "other", PROGRAM)
    assert (tmp_path / "job.json").read_bytes() == before


@pytest.mark.parametrize("version", [0, 2, 3, 4, "1", None])
def test_unknown_format(storage: LocalStorage, version: object) -> None:
    storage.write("job.json", json.dumps({"format_version": version}).encode())
    with pytest.raises(UnknownFormatError, match=f"version {version!r};.* reads format version 1"):
        JobIdentity.claim(storage, "job", PROGRAM)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"format_version": 1}', b"\xff"])
def test_damaged(storage: LocalStorage, content: bytes) -> None:
    storage.write("job.json", content)
    with pytest.raises(CorruptCheckpointError, match=r"job\.json"):
        JobIdentity.claim(storage, "job", PROGRAM)


def test_a_log_without_an_owner_is_not_taken(storage: LocalStorage) -> None:
    storage.write("log/00000000000000000000.json", b"")
    with pytest.raises(CorruptCheckpointError, match=r"no job\.json"):
        JobIdentity.claim(storage, "job", PROGRAM)
