"""Checkpoints and files on a store that is slow, refuses, cuts connections, and lists what was."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from tests.checkpoint.test_manifest_log import manifest
from tests.objects import file_job
from tests.objects.proxy import Faults, Proxy

from millstream import object_stores
from millstream.checkpoint import ManifestLog
from millstream.checkpoint.storages import open_storage
from millstream.errors import FencedError, ObjectStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.objects.server import S3Server

    Make = Callable[..., Proxy]

ALL = Faults(delay=0.05, slow_down=0.05, cut_before=0.05, cut_after=0.1, stale=0.3)


@pytest.fixture
def proxied(bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Put a proxy between the server and all that is started from now on."""
    made: list[Proxy] = []
    with monkeypatch.context() as patch:

        def make(faults: Faults, seed: int = 1) -> Proxy:
            made.append(Proxy(s3_server.port, faults, seed))
            patch.setenv("AWS_ENDPOINT_URL", made[-1].endpoint)
            object_stores._s3_client.cache_clear()  # it has the address that it was made with
            return made[-1]

        yield make
    object_stores._s3_client.cache_clear()
    for each in made:
        each.stop()


def test_a_store_that_ignores_conditions_is_refused(bucket: str, proxied: Make) -> None:
    proxied(Faults(ignores_conditions=True))
    with pytest.raises(ObjectStoreError, match="does not support conditional writes"):
        open_storage(f"{bucket}/no-conditions").probe()


def test_a_store_that_lists_what_was_is_met_with_patience(bucket: str, proxied: Make) -> None:
    storage = open_storage(f"{bucket}/stale")
    proxy = proxied(Faults(stale=0.7), seed=3)
    storage = open_storage(f"{bucket}/stale")
    for number in range(10):
        assert storage.put_if_absent(f"log/{number}", b"")
        assert list(storage.list_names("log")) == [f"log/{each}" for each in range(number + 1)]
    assert proxy.made["stale"] >= 5


def test_a_store_that_never_lists_what_is_new_is_refused(bucket: str, proxied: Make) -> None:
    proxied(Faults(stale=1.0))
    storage = open_storage(f"{bucket}/never")
    assert list(storage.list_names("log")) == []
    storage.put_if_absent("log/1", b"")
    with pytest.raises(ObjectStoreError, match="does not list log/1, which was written before"):
        list(storage.list_names("log"))


@pytest.mark.parametrize("seed", [1, 2])
def test_of_two_drivers_at_once_exactly_one_publishes(
    seed: int, bucket: str, proxied: Make
) -> None:
    print(f"seed {seed}")
    proxy = proxied(ALL, seed)
    location = f"{bucket}/fenced"
    published: list[tuple[int, int]] = []

    def drive() -> None:
        log = ManifestLog(open_storage(location))
        for _ in range(4):
            log.open_generation()
            try:
                for _ in range(3):
                    version = log.publish(manifest(log.last_version, log.generation))
                    published.append((version, log.generation))
            except FencedError:
                continue

    drivers = [threading.Thread(target=drive) for _ in range(2)]
    for each in drivers:
        each.start()
    for each in drivers:
        each.join()
    assert proxy.made["cut_after"] > 0
    proxy.faults = Faults()
    entries = [e for e in ManifestLog(open_storage(location)).entries() if e.manifest is not None]
    assert [(each.version, each.generation) for each in entries] == sorted(published)
    generations = [each.generation for each in entries]
    assert generations == sorted(generations)


@pytest.mark.slow
@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_a_job_is_exact_all_the_same(
    execution: str, bucket: str, s3_server: S3Server, proxied: Make
) -> None:
    proxy = proxied(ALL)
    file_job.main(f"{bucket}/out", f"{bucket}/checkpoints", execution)
    assert proxy.made["cut_after"] > 0
    name = bucket.removeprefix("s3://")
    keys = [key for key in s3_server.keys(name, "out") if ".pending" not in key]
    lines = [line for key in keys for line in s3_server.content(name, key).split()]
    assert sorted(map(int, lines)) == list(range(file_job.COUNT))
