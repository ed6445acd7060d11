"""Small state files of a task in one object."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.pipelined.test_stop import environment, numbers, read

from millstream.checkpoint import ManifestLog
from millstream.checkpoint.object_storage import ObjectStorage
from millstream.checkpoint.packs import pack_of, packing
from millstream.checkpoint.storages import open_storage
from millstream.cli.main import main
from millstream.datastream.connectors import DiscardingSink
from millstream.errors import ObjectStoreError
from millstream.state.local_copies import download_snapshot, upload_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.objects.server import S3Server

    from millstream.contracts.key_value_store import StateFile, StateHandle
    from millstream.datastream import JobClient

    Eventually = Callable[[Callable[[], bool], str], None]


def files_in(directory: Path, **contents: bytes) -> list[Path]:
    directory.mkdir()
    paths = []
    for name, content in contents.items():
        paths.append(directory / name)
        paths[-1].write_bytes(content)
    return paths


def handle_of(files: dict[str, StateFile]) -> StateHandle:
    return {"backend": "x", "id": "s", "key_groups": (0, 1), "files": list(files.values())}


def test_files_of_all_operators_of_a_task_are_one_object(bucket: str, tmp_path: Path) -> None:
    storage = ObjectStorage(bucket)
    large = bytes(2 << 20)
    first = files_in(tmp_path / "first", a=b"1" * 10, b=b"", c=large)
    second = files_in(tmp_path / "second", d=b"22")
    with packing(storage):
        made = upload_files(storage, first, "u", "s") | upload_files(storage, second, "v", "s")
    packs = {pack_of(made[name]["remote"]) for name in "ad"}
    assert len(packs) == 1
    assert {pack_of(made[name]["remote"]) for name in "bc"} == {None}
    assert len(list(storage.list_names("state"))) == 3
    download_snapshot(storage, handle_of(made), tmp_path / "back")
    for path in (*first, *second):
        assert (tmp_path / "back" / path.name).read_bytes() == path.read_bytes()
    assert all(storage.exists(file["remote"]) for file in made.values())


def test_a_pack_that_cannot_be_written_is_written_before_the_next_one(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store of a task takes its files for uploaded, and names them in the next snapshot."""
    storage = ObjectStorage(bucket)
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> None:
            message = "away"
            raise ObjectStoreError(message)

        patch.setattr(ObjectStorage, "write", refuse)
        with pytest.raises(ObjectStoreError, match="away"), packing(storage):
            made = upload_files(storage, files_in(tmp_path / "first", a=b"1"), "u", "s")
        with pytest.raises(ObjectStoreError, match="away"), packing(storage):
            pytest.fail("a second one would be gathered while the first one is in memory")
    assert list(storage.list_names("state")) == []
    with packing(storage):
        made |= upload_files(storage, files_in(tmp_path / "second", b=b"2"), "u", "t")
    assert len(list(storage.list_names("state"))) == 2
    download_snapshot(storage, handle_of(made), tmp_path / "back")


@pytest.mark.parametrize(
    ("execution", "backend"),
    [("pipelined", "hashmap"), ("pipelined", "rocksdb"), ("epochs", "rocksdb")],
)
def test_a_checkpoint_of_a_small_job_is_three_objects(
    execution: str,
    backend: str,
    bucket: str,
    s3_server: S3Server,
    tmp_path: Path,
    eventually: Eventually,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An object for the state of each of two subtasks, and the manifest."""
    location = f"{bucket}/job"
    settings = {"execution.checkpointing.dir": location, "state.backend.type": backend}

    def start() -> JobClient:
        env = environment(tmp_path, execution, settings)
        keyed = numbers(env).key_by(lambda n: n % 5)
        keyed.reduce(max).uid("greatest").sink_to(DiscardingSink()).uid("nothing")
        if execution == "epochs":  # a task has all operators of a stage
            keyed.reduce(min).uid("least").sink_to(DiscardingSink()).uid("nothing more")
        return env.execute_async("small")

    client = start()
    eventually(lambda: read(client) > 300, "records")
    client.stop().result()
    requests = s3_server.requests(bucket.removeprefix("s3://"))
    count = len([each for each in requests if each.startswith("PUT /job/log")])
    states = [each for each in requests if each.startswith("PUT /job/state")]
    assert all("/pack-" in each for each in states)
    assert len(states) <= 2 * count
    capsys.readouterr()
    assert main(["checkpoints", location]) == 0
    assert "Objects written by the newest checkpoint: 3, its manifest" in capsys.readouterr().out
    assert main(["checkpoints", location, "verify"]) == 0
    # What nothing names is deleted; packs of retained checkpoints are left.
    log = ManifestLog(open_storage(location))
    kept = {pack_of(file["remote"]) for each in log.manifests() for file in each.files()}
    assert set(open_storage(location).list_names("state")) == kept
    last = log.latest()
    assert last is not None
    again = start()
    eventually(lambda: read(again) > last.totals["numbers.numRecordsIn"], "records")
    again.cancel().result()
