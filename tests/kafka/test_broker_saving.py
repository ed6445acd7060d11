"""The broker of the measurements does not save itself while it is measured, works, and ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from bench.broker_saving import saving_stopped
from bench.kafka_broker import create_topic, read_committed
from confluent_kafka import Producer

from millstream.testing.kafka_broker import broker_process

_SECONDS = 30
_HOST = "127.0.0.1"
#: As a broker, of which only its threads are looked at; this one begins to save late.
_PROCESS = """
import ctypes, threading, time
def save():
    print("ready", flush=True)
    time.sleep(0.1)
    ctypes.CDLL(None).prctl(15, b"autosave", 0, 0, 0)
    time.sleep(1000)
threading.Thread(target=save, daemon=True).start()
time.sleep(1000)
"""


def test_a_broker_saves_nothing_within_the_block(tmp_path: Path) -> None:
    saved = tmp_path / "data" / "kafka.json"
    with broker_process(tmp_path, port := _free_port()) as process:
        servers = f"{_HOST}:{port}"
        with saving_stopped(process):
            assert _stopped_threads(process) == ["autosave"]
            topic = create_topic(servers, "numbers", 1)
            producer = Producer({"bootstrap.servers": servers})
            producer.produce(topic, b"a value")
            assert producer.flush(_SECONDS) == 0
            assert list(read_committed(servers, topic)) == [[b"a value"]]
            assert _stopped_threads(process) == ["autosave"]
            assert not saved.exists() or topic not in saved.read_text()
        deadline = time.monotonic() + _SECONDS
        while not (saved.exists() and topic in saved.read_text()):
            assert time.monotonic() < deadline, "it does not go on behind the block"
            time.sleep(0.05)


def test_the_end_of_a_broker_that_dies_within_the_block_can_be_waited_for() -> None:
    process = subprocess.Popen([sys.executable, "-c", _PROCESS], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    with saving_stopped(process.pid):
        assert _stopped_threads(process.pid) == ["autosave"]
        os.kill(process.pid, signal.SIGKILL)
        assert process.stdout.read() == b"", "it has ended"
    assert process.wait(_SECONDS) == -signal.SIGKILL
    process.stdout.close()


def _stopped_threads(process: int) -> list[str]:
    """Names of the threads that a tracer has stopped."""
    threads = [each.read_text() for each in Path(f"/proc/{process}/task").glob("*/stat")]
    states = [
        (text[text.index("(") + 1 : text.rindex(")")], text.rpartition(")")[2]) for text in threads
    ]
    return [name for name, rest in states if rest.split()[0] == "t"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
