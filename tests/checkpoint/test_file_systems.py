"""What checkpoints ask of a file system: links that fail if a name is taken, whole replacements.

``MILLSTREAM_CHECKPOINT_DIRECTORY=/mnt/shared`` checks another file system than the local one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.storages import open_storage
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

WRITERS = 4
NAMES = 40


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A new directory on the file system that is to be checked."""
    chosen = os.environ.get("MILLSTREAM_CHECKPOINT_DIRECTORY", str(tmp_path))
    made = Path(tempfile.mkdtemp(prefix="millstream-check-", dir=chosen))
    yield made
    shutil.rmtree(made)


def test_of_several_that_create_a_name_one_does(directory: Path) -> None:
    storages = [LocalStorage(directory) for _ in range(WRITERS)]
    start = threading.Barrier(WRITERS)

    def create(writer: int) -> list[bool]:
        start.wait()
        content = str(writer).encode()
        return [storages[writer].put_if_absent(f"log/{name}", content) for name in range(NAMES)]

    with ThreadPoolExecutor(WRITERS) as pool:
        created = list(pool.map(create, range(WRITERS)))
    for name in range(NAMES):
        [winner] = [writer for writer in range(WRITERS) if created[writer][name]]
        assert storages[0].read(f"log/{name}") == str(winner).encode()


def test_a_blob_that_is_replaced_is_read_whole(directory: Path) -> None:
    writer, reader = LocalStorage(directory, fsync=False), LocalStorage(directory, fsync=False)
    contents = [bytes([65 + n]) * 100_000 for n in range(2)]
    writer.write("blob", contents[0])
    over = threading.Event()

    def replace() -> None:
        for number in range(100):
            writer.write("blob", contents[number % 2])
        over.set()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(replace)
        while not over.is_set() and not done.done():
            assert reader.read("blob") in contents
        done.result()


@pytest.mark.parametrize("uri", ["hdfs://host/checkpoints", "ftp://host/x"])
def test_other_schemes_are_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="is not supported"):
        open_storage(uri)
