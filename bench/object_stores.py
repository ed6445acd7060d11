"""What checkpoints cost in an object store, and how long a start from a savepoint in it takes.

The job is that of ``bench/savepoints.py``.  The store is a server with the interface of S3 on
loopback (``moto``, in Python): times are its own as well, but requests and bytes are those of any
store.

``started``: seconds per GiB of the savepoint until the first records of a job that starts from it.
``requests``, ``mebibytes``: sent per checkpoint once all keys are there, on average.

Run by ``bench/run.py`` (``--only object``).  Read next: ``docs/how-to/object-stores.md``.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from bench.growing import growing_arguments
from bench.measure import Outcome
from bench.savepoints import start, wait_for

from millstream.checkpoint import ManifestLog
from millstream.checkpoint.storages import open_storage
from millstream.object_stores import REQUEST_KINDS, SENT_BYTES, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORKLOADS: Final = ("started", "requests", "mebibytes")

#: Checkpoints that are averaged.
_CHECKPOINTS: Final = 10
_PATIENCE: Final = 900.0
_BUCKET: Final = "s3://bench"
_GIBIBYTE: Final = 2**30


@contextlib.contextmanager
def _server() -> Iterator[None]:
    """A server with a bucket, which the environment lets every process use."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    os.environ.update(
        AWS_ENDPOINT_URL=endpoint,
        AWS_ACCESS_KEY_ID="bench",
        AWS_SECRET_ACCESS_KEY="bench",
        AWS_REGION="us-east-1",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _create_bucket(endpoint)
        yield
    finally:
        process.kill()
        process.wait()


def _create_bucket(endpoint: str) -> None:
    import boto3
    from botocore.exceptions import BotoCoreError

    client: Any = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            client.create_bucket(Bucket=_BUCKET.removeprefix("s3://"))
        except BotoCoreError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _per_checkpoint(keys: int, scratch: Path) -> dict[str, float]:
    """Return requests and MiB per checkpoint."""
    location = f"{_BUCKET}/checkpoints"
    client = start(scratch, "counted", keys, checkpoints=location)
    wait_for(client, keys)
    log = ManifestLog(open_storage(location))
    last = log.latest()
    first = last.epoch if last is not None else 0
    deadline = time.monotonic() + _PATIENCE
    counts: dict[int, dict[str, int]] = {}
    while len(counts) < _CHECKPOINTS:
        last = log.latest()
        if last is not None and last.epoch > first + 1:
            counts[last.epoch] = last.requests
        if time.monotonic() > deadline:
            message = f"{len(counts)} checkpoints in {_PATIENCE} s"
            raise TimeoutError(message)
        time.sleep(0.1)
    client.cancel().result()
    requests = sum(each.get(kind, 0) for each in counts.values() for kind in REQUEST_KINDS)
    sent = sum(each.get(SENT_BYTES, 0) for each in counts.values())
    return {
        "requests": requests / len(counts),
        "mebibytes": sent / len(counts) / 2**20,
    }


def _started(keys: int, scratch: Path) -> float:
    """Return seconds per GiB."""
    client = start(scratch, "first", keys)
    wait_for(client, keys)
    savepoint = client.trigger_savepoint(f"{_BUCKET}/savepoints").result()
    client.cancel().result()
    size = sum(each.size for each in ObjectStore(savepoint).list_objects())
    started = time.monotonic()
    second = start(scratch, "second", keys, savepoint, checkpoints=f"{_BUCKET}/second")
    wait_for(second, 1)
    seconds = time.monotonic() - started
    second.cancel().result()
    return seconds / (size / _GIBIBYTE)


def main() -> None:
    """Measure one workload at one size and save the outcome."""
    arguments = growing_arguments(WORKLOADS)
    with _server():
        if arguments.workload == "started":
            figure = _started(arguments.size, arguments.scratch)
        else:
            figure = _per_checkpoint(arguments.size, arguments.scratch)[arguments.workload]
    Outcome(figures={"seconds": figure}).save(arguments.report)
    os._exit(0)  # jobs of one process end with it; nothing of them is needed


if __name__ == "__main__":
    main()
