"""Whose checkpoint directory it is."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from millstream.checkpoint import JobIdentity, LocalStorage
from millstream.errors import CorruptCheckpointError, ForeignCheckpointError, UnknownFormatError

if TYPE_CHECKING:
    from pathlib import Path

FINGERPRINT = {"source": "file", "count": "reduce"}


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path, fsync=False)


def test_claimed_once_and_kept(storage: LocalStorage) -> None:
    job_id = JobIdentity.claim(storage, "job", FINGERPRINT)
    assert JobIdentity.claim(storage, "job", dict(reversed(FINGERPRINT.items()))) == job_id
    assert JobIdentity.load(storage) == JobIdentity(job_id, "job", FINGERPRINT)


def test_racing_claims_agree(storage: LocalStorage) -> None:
    with ThreadPoolExecutor(4) as pool:
        ids = set(pool.map(lambda _: JobIdentity.claim(storage, "job", FINGERPRINT), range(8)))
    assert len(ids) == 1


def test_foreign_job_gets_a_diff_and_changes_nothing(storage: LocalStorage, tmp_path: Path) -> None:
    JobIdentity.claim(storage, "job", FINGERPRINT)
    before = (tmp_path / "job.json").read_bytes()
    other = {"source": "socket", "windows": "window"}
    with pytest.raises(ForeignCheckpointError) as caught:
        JobIdentity.claim(storage, "other", other)
    lines = str(caught.value).splitlines()
    assert "'job', this one 'other'" in lines[1]
    assert lines[2:5] == [
        "  - count (reduce): in the checkpoint, not in this job",
        "  ~ source: file in the checkpoint, socket in this job",
        "  + windows (window): in this job, not in the checkpoint",
    ]
    assert (tmp_path / "job.json").read_bytes() == before


def test_another_name_alone_is_another_job(storage: LocalStorage) -> None:
    JobIdentity.claim(storage, "job", FINGERPRINT)
    with pytest.raises(ForeignCheckpointError, match="'other'"):
        JobIdentity.claim(storage, "other", FINGERPRINT)


def test_unknown_format(storage: LocalStorage) -> None:
    storage.write("job.json", json.dumps({"format_version": 2}).encode())
    with pytest.raises(UnknownFormatError, match="version 2"):
        JobIdentity.claim(storage, "job", FINGERPRINT)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"format_version": 1}', b"\xff"])
def test_damaged(storage: LocalStorage, content: bytes) -> None:
    storage.write("job.json", content)
    with pytest.raises(CorruptCheckpointError, match=r"job\.json"):
        JobIdentity.claim(storage, "job", FINGERPRINT)


def test_a_log_without_an_owner_is_not_taken(storage: LocalStorage) -> None:
    storage.write("log/00000000000000000000.json", b"")
    with pytest.raises(CorruptCheckpointError, match=r"no job\.json"):
        JobIdentity.claim(storage, "job", FINGERPRINT)
