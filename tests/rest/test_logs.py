"""Logs and options are shown without secrets, and nothing else of the disk is."""

from __future__ import annotations

import asyncio
import logging
import runpy
import threading
from typing import TYPE_CHECKING

import pytest
from tests.support.environments import wait_until

from millstream import logs
from millstream.configuration.redaction import redacted_text
from millstream.rest import app
from millstream.rest import logs as rest_logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.rest.conftest import RunningJob

    Start = Callable[..., RunningJob]


def _names(running: RunningJob, owner: str = "/jobmanager") -> list[str]:
    return [each["name"] for each in running.client.get(f"{owner}/logs")["logs"]]


def test_the_log_of_the_driver_is_kept_without_secrets(start: Start, tmp_path: Path) -> None:
    handler = logging.FileHandler(tmp_path / "program.log")
    logging.getLogger("program").addHandler(handler)
    try:
        running = start()
        logging.getLogger("program").warning("connect to %s", "postgres://me:hunter2@db/shop")
        assert _names(running)[0] == "driver.log"
        assert "program.log" in _names(running)
        for path in ("logs/driver.log", "logs/program.log", "log"):
            answer = running.client.request(f"/jobmanager/{path}")
            assert answer.headers["content-type"] == "text/plain; charset=utf-8"
            assert "postgres://me:******@db/shop" in answer.body
        below = f"/jobs/{running.id}/jobmanager/logs/driver.log"
        assert "me:******@db" in running.client.request(below).body
    finally:
        logging.getLogger("program").removeHandler(handler)
        handler.close()


def test_files_whose_names_begin_like_a_log_are_not_shown(start: Start, tmp_path: Path) -> None:
    handler = logging.FileHandler(tmp_path / "orders")
    logging.getLogger("program").addHandler(handler)
    shown = {"orders", "orders.1", "orders.2026-11-28", "orders.2026-11-28_10-00-00"}
    for name in {*shown, "orders.yaml", "orders-key.pem", "orders.1.yaml"}:
        (tmp_path / name).touch()
    try:
        running = start()
        assert {each for each in _names(running) if each.startswith("orders")} == shown
        assert running.client.request("/jobmanager/logs/orders.yaml").status == 404
    finally:
        logging.getLogger("program").removeHandler(handler)
        handler.close()


def test_the_stacks_of_threads_are_shown_without_secrets(start: Start, tmp_path: Path) -> None:
    program = tmp_path / "waits.py"
    program.write_text(
        "def connect(address, ended):\n    ended.wait()\n\n\n"
        "def run(ended):\n    connect('postgres://me:hunter2@db/shop', ended)\n"
    )
    ended = threading.Event()
    run = runpy.run_path(str(program))["run"]
    thread = threading.Thread(target=run, args=(ended,), name="waits")
    thread.start()
    try:
        running = start()

        def stack() -> str:
            found = running.client.get("/jobmanager/thread-dump")["threadInfos"]
            (shown,) = (each for each in found if each["threadName"] == "waits")
            return str(shown["stringifiedThreadInfo"])

        wait_until(lambda: "postgres://" in stack(), "the thread waits", 30)
        assert "postgres://me:******@db/shop" in stack()
    finally:
        ended.set()
        thread.join()


def test_a_long_log_is_masked_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A regular expression keeps all other threads of the driver waiting."""
    lengths: list[int] = []

    def note(text: str) -> str:
        lengths.append(len(text))
        return redacted_text(text)

    monkeypatch.setattr(rest_logs, "redacted_text", note)
    line = "connect to postgres://me:hunter2@db/shop \u00e4\n"
    path = tmp_path / "long.log"
    path.write_text(line * 20_000)
    assert rest_logs._read(path) == line.replace("hunter2", "******") * 20_000
    assert max(lengths) < 100_000


def test_old_responses_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may be a log of megabytes."""
    loop = asyncio.new_event_loop()
    kept = app._Kept()
    monkeypatch.setattr(app, "_FRESH", -1.0)
    for number in range(3):
        kept.keep(f"/jobmanager/log?{number}", loop.create_future())
    loop.close()
    assert len(kept.responses) == 1


@pytest.mark.parametrize(
    "name",
    [
        "..%2F..%2Fetc%2Fpasswd",
        "..%2fprogram.log",
        "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "../../../etc/passwd",
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        "..",
        ".",
        "driver.log%00",
        "driver.log%2F..%2Fdriver.log",
        "job-x.json",
    ],
)
def test_only_listed_files_are_read(start: Start, name: str) -> None:
    running = start()
    secret = logs.log_directory().parent / "job-x.json"
    secret.write_text("root: hunter2")
    try:
        for owner in ("/jobmanager", "/taskmanagers/slot-0", f"/jobs/{running.id}/jobmanager"):
            answer = running.client.request(f"{owner}/logs/{name}")
            assert answer.status in {400, 404}, (owner, answer)
            assert "root:" not in str(answer.body)
    finally:
        secret.unlink()


def test_a_link_among_the_logs_is_no_way_out(start: Start) -> None:
    running = start()
    link = logs.log_directory() / "other.log"
    link.symlink_to("/etc/passwd")
    try:
        assert "other.log" not in _names(running)
        assert running.client.request("/jobmanager/logs/other.log").status == 404
    finally:
        link.unlink()


def test_options_are_shown_without_secrets(start: Start) -> None:
    running = start(
        {
            "pipeline.global-job-parameters": "city:Berlin,db.password:hunter2",
            "millstream.rest.token": "hunter2hunter2hunter2",
        }
    )
    running.client.headers["Authorization"] = "Bearer hunter2hunter2hunter2"
    paths = ("/jobmanager/config", f"/jobs/{running.id}/jobmanager/config")
    for path in (*paths, f"/jobs/{running.id}/config", "/jobmanager/environment"):
        answer = running.client.request(path)
        assert answer.status == 200
        assert "hunter2" not in str(answer.body), path
    found = {each["key"]: each["value"] for each in running.client.get("/jobmanager/config")}
    assert found["pipeline.global-job-parameters"] == "city:Berlin,db.password:******"
    execution = running.get("/config")["execution-config"]
    assert execution["user-config"] == {"city": "Berlin", "db.password": "******"}


def test_a_full_log_starts_again_and_keeps_the_one_before(tmp_path: Path) -> None:
    logger = logging.getLogger("rotated")
    logger.propagate = False
    # Process 0 is not this one, which is a worker therefore.
    first, second = (logs.KeptLog(tmp_path, 0, limit=2000) for _ in range(2))
    for handler in (first, second):
        logger.addHandler(handler)
    for number in range(100):
        logger.warning("line %d", number)
    sizes = {each.name: each.stat().st_size for each in tmp_path.iterdir()}
    assert sizes.keys() == {"workers.log", "workers.log.1"}
    assert max(sizes.values()) < 2300
    assert (tmp_path / "workers.log").read_text().endswith("line 99\n")
    for handler in (first, second):
        logger.removeHandler(handler)
        handler.close()


def test_programs_without_logging_still_see_warnings(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    before, root.handlers = root.handlers, []
    try:
        start()
        assert any(isinstance(each, logs.KeptLog) for each in root.handlers)
        logging.getLogger("program").warning("shown once")
        assert capsys.readouterr().err == "shown once\n"
    finally:
        root.handlers = [*before, *root.handlers]
