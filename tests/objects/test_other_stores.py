"""Google Cloud Storage and Azure Blob Storage: what is shown on S3, on emulators of both."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.objects.test_kill_jobs import S3Chain
from tests.objects.test_object_stores import (
    storage,
    test_a_put_whose_answer_was_lost_is_known_by_its_writer,
    test_blobs_are_signed,
    test_files_travel_both_ways,
    test_list_names_is_sorted_and_below_the_prefix,
    test_of_concurrent_puts_one_wins,
    test_put_if_absent_keeps_the_first,
    test_write_replaces_and_reads_tell_what_is_missing,
)
from tests.objects.test_packs import test_files_of_all_operators_of_a_task_are_one_object
from tests.objects.test_savepoints import (
    test_a_running_job_is_saved_and_another_one_starts_there,
    test_of_two_drivers_at_once_exactly_one_publishes,
)
from tests.recovery.test_kill_driver import FIRST, OF_EPOCHS, POINTS, _kill_at

from millstream.checkpoint.storages import open_storage
from millstream.crash_points import points_of
from millstream.errors import ObjectStoreError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.objects.azure_server import AzureServer
    from tests.objects.google_server import GoogleServer

    Server = AzureServer | GoogleServer

__all__ = [
    "storage",
    "test_a_put_whose_answer_was_lost_is_known_by_its_writer",
    "test_a_running_job_is_saved_and_another_one_starts_there",
    "test_blobs_are_signed",
    "test_files_of_all_operators_of_a_task_are_one_object",
    "test_files_travel_both_ways",
    "test_list_names_is_sorted_and_below_the_prefix",
    "test_of_concurrent_puts_one_wins",
    "test_of_two_drivers_at_once_exactly_one_publishes",
    "test_put_if_absent_keeps_the_first",
    "test_write_replaces_and_reads_tell_what_is_missing",
]

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]

#: Each start of these takes seconds.
SAMPLE = 3


@pytest.fixture(params=["google_server", "azure_server"], ids=["gs", "az"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server, which the environment lets clients use."""
    found: Server = request.getfixturevalue(request.param)
    for name, value in found.environment().items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def bucket(server: Server) -> str:
    """A new bucket or container, as a URI."""
    return f"{server.scheme}://{server.new_bucket()}"


def test_what_is_missing_is_named(bucket: str) -> None:
    scheme = bucket.partition(":")[0]
    missing = open_storage(f"{scheme}://nosuchbucket/x")
    for step in (missing.check, missing.probe, lambda: missing.put_if_absent("x", b"")):
        with pytest.raises(ObjectStoreError, match="there is no bucket 'nosuchbucket'"):
            step()
    there = open_storage(bucket)
    there.check()
    there.probe()
    assert not there.is_there()
    there.write("a", b"1")
    there.delete(["a", "never"])
    assert not there.is_there()


@pytest.mark.slow
@pytest.mark.parametrize("master", ["local", "pipelined"])
def test_jobs_that_are_killed(master: str, bucket: str, tmp_path: Path) -> None:
    chance = random.Random(1)
    chain = S3Chain(tmp_path, bucket, 1, master, records=600)
    points = sorted(set(POINTS) - set(FIRST))
    if master == "pipelined":
        points = sorted({*points, *points_of("pipelined task")} - set(OF_EPOCHS))
    _kill_at(chain, FIRST[:1] + chance.sample(points, SAMPLE), chance)
    assert chain.start(slow=False).exit_code == 0
