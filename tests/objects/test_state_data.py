"""State of savepoints and checkpoints on S3: shown, changed and restored."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.checkpoint.test_savepoint import (
    CANONICAL,
    COUNT,
    KEYS,
    PATH,
    finish,
    results,
    start,
    whole,
)
from tests.pipelined.test_stop import lines, read
from tests.pipelined.test_stop import start as start_job

from millstream.checkpoint import ManifestLog
from millstream.checkpoint.storages import open_storage
from millstream.cli.main import main
from millstream.configuration import options
from millstream.state_processor import SavepointReader, SavepointWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest
    from tests.objects.server import S3Server

    Eventually = Callable[[Callable[[], bool], str], None]


def save(directory: Path, location: str) -> str:
    """Take a savepoint after two of the checkpoints of a job."""
    cluster = start(directory)
    assert cluster.run_epoch()
    request = cluster.job.savepoints.ask(location, CANONICAL)
    assert cluster.run_epoch()
    cluster.close_instances()
    cluster.coordinator.close()
    return str(request.result())


def test_oracle_state_is_changed_and_a_job_starts_from_it(bucket: str, tmp_path: Path) -> None:
    saved = save(tmp_path / "first", f"{bucket}/savepoints")
    before = results(tmp_path / "first")
    with SavepointReader.read(saved) as reader:
        (info,) = reader.states("count")
        rows = reader.read_keyed_state("count", info.name).to_arrow().to_pylist()
    seen = Counter(n % KEYS for n in range(before.total()))
    assert {row["key"]: row["value"]["f1"] for row in rows} == seen
    for row in rows:
        row["value"]["f1"] += 100
    with SavepointWriter.from_existing_savepoint(saved) as writer:
        written = writer.with_keyed_state("count", info.name, rows).write(f"{bucket}/written")
    assert written.startswith(f"{bucket}/written/savepoint-")
    second = start(tmp_path / "second", settings={PATH: written})
    finish(second)
    rest = whole() - before
    changed = Counter({(key, count + 100): n for (key, count), n in rest.items()})
    assert results(tmp_path / "second") == changed
    assert before.total() + changed.total() == COUNT


def test_the_command_shows_compares_and_exports(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = save(tmp_path / "first", f"{bucket}/savepoints")
    with SavepointWriter.from_existing_savepoint(saved) as writer:
        copy = writer.write(f"{bucket}/copies")
    assert main(["state", saved]) == 0
    assert f"in {saved}" in capsys.readouterr().out
    assert main(["state", saved, "diff", copy]) == 0
    assert main(["state", saved, "export", str(tmp_path / "exported")]) == 0
    assert list((tmp_path / "exported").rglob("*.parquet"))
    capsys.readouterr()
    assert main(["state", f"{bucket}/nothing"]) == 1
    assert f"no savepoint and no checkpoint directory {bucket}/nothing" in capsys.readouterr().err


def test_a_job_goes_back_to_an_older_checkpoint(
    bucket: str,
    s3_server: S3Server,
    tmp_path: Path,
    eventually: Eventually,
    capsys: pytest.CaptureFixture[str],
) -> None:
    location, name = f"{bucket}/checkpoints", bucket.removeprefix("s3://")
    settings = {options.CHECKPOINTS_DIRECTORY.key: location, options.NUM_RETAINED.key: "1000"}
    client = start_job(tmp_path, "epochs", settings)
    eventually(lambda: read(client) > 300, "records")
    client.stop().result()
    log, written = ManifestLog(open_storage(location)), len(lines(tmp_path))
    first, *_, last = log.manifests()
    before = s3_server.keys(name)
    assert main(["checkpoints", location, "restore", str(first.epoch)]) == 1
    assert "--repeat-output" in capsys.readouterr().err
    assert s3_server.keys(name) == before
    command = ["checkpoints", location, "restore", str(first.epoch), "--repeat-output"]
    assert main(command) == 0
    assert f"a copy of checkpoint {first.epoch}" in capsys.readouterr().out
    assert main(["checkpoints", location, "verify"]) == 0
    copy = log.latest()
    assert copy is not None
    assert copy.epoch == last.epoch + 1
    assert copy.totals == first.totals
    again = start_job(tmp_path, "epochs", settings)
    count = first.totals["numbers.numRecordsIn"]
    eventually(lambda: read(again) > count, "records")
    again.stop().result()
    assert len(lines(tmp_path)) == written + read(again) - count
