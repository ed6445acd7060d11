"""Sessions of Millstream's own: closed to other machines, silent, and nothing left behind."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError

from millstream.common import Configuration
from millstream.engines.spark import session
from millstream.engines.spark.engine import one_line
from millstream.engines.spark.worker_daemon import quiet
from millstream.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

JOB = Path(__file__).parent / "counting_job.py"
WORDS = Path(__file__).parents[2] / "examples" / "word_count.py"
LISTENING = "0A"


def listening(pid: int) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Where a process listens."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        if descriptor.is_symlink():
            sockets.add(str(descriptor.readlink()))
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and f"socket:[{fields[9]}]" in sockets:
                # Words of four bytes, each in the order of the machine.
                packed = bytes.fromhex(fields[1].partition(":")[0])
                words = [packed[at : at + 4][::-1] for at in range(0, len(packed), 4)]
                found.append(ipaddress.ip_address(b"".join(words)))
    return found


def test_everything_listens_on_loopback(spark: SparkSession) -> None:
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    addresses = listening(jvm)
    assert addresses, "the gateway at least"
    for address in addresses:
        mapped = getattr(address, "ipv4_mapped", None) or address
        assert mapped.is_loopback, addresses
    conf: Any = spark.sparkContext.getConf()
    secret = conf.get("spark.authenticate.secret")
    assert conf.get("spark.authenticate") == "true"
    assert len(secret) == 64
    assert secret not in Path(f"/proc/{jvm}/cmdline").read_text()
    assert secret not in spark.sparkContext._jsc.sc().conf().toDebugString()


def test_the_user_goes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {}

    def launch(settings: dict[str, object], master: str, *, archived: bool) -> dict[str, str]:
        given.update(settings, master=master, archived=archived)
        message = "far enough"
        raise EngineError(message)

    monkeypatch.setattr(session, "_launch", launch)
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    configuration = Configuration()
    configuration.set_string("spark.driver.bindAddress", "0.0.0.0")
    configuration.set_string("spark.authenticate", "false")
    with pytest.raises(EngineError):
        session.start_session(configuration)
    assert given["spark.driver.bindAddress"] == "0.0.0.0"
    assert given["spark.authenticate"] == "false"
    assert given["spark.driver.host"] == "127.0.0.1"
    given.clear()
    configuration.set_string("millstream.spark.master", "spark://far-away:7077")
    with pytest.raises(EngineError):
        session.start_session(configuration)
    assert "spark.driver.host" not in given, "a cluster has to reach the driver"


@pytest.mark.parametrize(
    ("settings", "master"),
    [
        ({}, None),
        ({"millstream.spark.master": "local[3]"}, "local[3]"),
        ({"spark.master": "local[2]"}, "local[2]"),
        ({"millstream.spark.master": "local[3]", "spark.master": "yarn"}, "local[3]"),
    ],
)
@pytest.mark.parametrize("submitted", [True, False])
def test_the_master_of_spark_submit_is_taken(
    settings: dict[str, str], master: str | None, submitted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, object] = {}

    def get(builder: Any, settings: dict[str, object]) -> None:
        found.update(builder._options)
        found.update(settings)

    monkeypatch.setattr(session, "_get", get)
    monkeypatch.setattr("pyspark.SparkContext._gateway", object())
    if submitted:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    session.start_session(Configuration(settings))
    assert found.get("spark.master") == (master or (None if submitted else "local[*]"))


@pytest.mark.usefixtures("spark")  # which sets PYTHONPATH
def test_an_example_says_nothing_but_its_progress_and_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path / "t")}
    environment.pop("SPARK_LOCAL_DIRS", None)
    (tmp_path / "t").mkdir()
    run = subprocess.run(
        [sys.executable, str(WORDS)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "('be', 1) ('be', 2) ('not', 1) ('or', 1) ('to', 1) ('to', 2)\n"
    own = re.compile(r"Millstream Streaming Job: epoch \d+ \| .*")
    assert [line for line in run.stderr.splitlines() if not own.fullmatch(line)] == []
    assert list((tmp_path / "t").iterdir()) == []


@pytest.mark.usefixtures("spark")  # which sets PYTHONPATH
def test_an_interrupt_of_millstream_run_is_one_line(
    tmp_path: Path, eventually: Callable[[Callable[[], bool], str], None]
) -> None:
    """As a terminal sends it: to all processes of the group."""
    environment = {**os.environ, "TMPDIR": str(tmp_path / "t")}
    environment.pop("SPARK_LOCAL_DIRS", None)
    (tmp_path / "t").mkdir()
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "millstream", "run", str(JOB), "wait", str(tmp_path)],
            env=environment,
            cwd=tmp_path,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        eventually(
            lambda: process.poll() is not None or any((tmp_path / "output").glob("[!._]*")),
            "the first epoch",
        )
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    lines = (tmp_path / "said").read_text().splitlines()
    assert [line for line in lines if " INFO " not in line] == ["millstream: interrupted"]
    assert code == 130
    assert list((tmp_path / "t").iterdir()) == []


def test_a_worker_ends_in_silence_when_its_task_is_given_up() -> None:
    def worker(connection: object, authenticated: bool) -> int:
        del connection
        if not authenticated:
            raise BrokenPipeError
        return 0

    run: Any = quiet(worker)
    assert run(None, False) == 1
    assert run(None, True) == 0


def test_an_error_of_spark_in_a_line() -> None:
    text = (
        "An error occurred while calling o97.collectToPython.\n: org.apache.spark.SparkException:"
        " Job aborted due to stage failure: ExecutorLostFailure (executor 1 exited)\n"
        "Driver stacktrace:\n\tat org.apache.spark.scheduler.DAGScheduler.abort(DAG.scala:1)\n"
    )
    line = one_line(Py4JError(text))
    assert line == (
        "org.apache.spark.SparkException: Job aborted due to stage failure: ExecutorLostFailure"
        " (executor 1 exited)"
    )
    assert one_line(ValueError()) == "ValueError"
    assert one_line(EngineError("a\n\tat b")) == "a\n\tat b", "ours are short, and complete"
