"""A standalone cluster of Spark's for tests: a master and workers, on the loopback interface."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from tests.ports import free_port
from tests.support.environments import wait_until

from millstream.engines.spark.java import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds.  Only what does not start at all takes so long.
DEADLINE = 120.0
HOME = Path(pyspark.__file__).parent


@contextlib.contextmanager
def standalone_cluster(directory: Path, python_path: str, workers: int = 2) -> Iterator[str]:
    """The master's URL of a cluster whose workers have a core each; stopped whatever happens.

    Args:
        directory: for its logs and those of executors.
        python_path: of the Python workers.
        workers: how many.
    """
    port, web = free_port(), free_port()
    url = f"spark://127.0.0.1:{port}"
    place = ["--host", "127.0.0.1", "--webui-port"]
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> None:
        environment = {
            **os.environ,
            "JAVA_HOME": str(find_java().quiet_home),
            "PYTHONPATH": python_path,
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with (directory / f"{name}.log").open("wb") as log:
            command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{arguments[0]}"]
            started.append(
                subprocess.Popen(
                    [*command, *arguments[1:]],
                    env=environment,
                    cwd=directory,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def registered() -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{web}/json/", timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (OSError, json.JSONDecodeError):  # it starts; its pages may be there first
            return 0

    try:
        start("master", "master.Master", *place, str(web), "--port", str(port))
        for number in range(workers):
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(directory / "work")]
            start(f"worker-{number}", "worker.Worker", *place, str(free_port()), *size, url)
        wait_until(lambda: registered() == workers, "all workers", DEADLINE)
        yield url
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its executors, too
            process.wait()
