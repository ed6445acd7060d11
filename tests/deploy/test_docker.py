"""The image, outside of a container: what it copies, installs and starts, and its health check."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from millstream import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.deploy.conftest import HealthServer

ROOT: Final = Path(__file__).parents[2]
DOCKERFILE: Final = ROOT / "deploy" / "docker" / "Dockerfile"
ENTRYPOINT: Final = ROOT / "deploy" / "docker" / "entrypoint.sh"
BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines if line)]


def arguments(name: str) -> list[str]:
    return [rest for found, rest in instructions() if found == name]


def run(
    *command: str, path: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the entry point with this interpreter first in the path."""
    places = [str(path)] if path else []
    places += [str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": ":".join(places), **variables}
    return subprocess.run(
        ["/bin/sh", str(ENTRYPOINT), *command],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=60,
    )


def test_what_is_copied_exists() -> None:
    for rest in arguments("COPY"):
        *sources, _ = [each for each in shlex.split(rest) if not each.startswith("--")]
        assert all((ROOT / each).exists() for each in sources), rest


def test_the_package_is_installed_with_extras_that_exist() -> None:
    (command,) = [rest for rest in arguments("RUN") if "pip install" in rest]
    (source,) = [each for each in shlex.split(command) if "[" in each]
    directory, _, extras = source.partition("[")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = extras.rstrip("]").split(",")
    assert set(names) <= set(project["optional-dependencies"])
    assert {"web", "objectstore"} <= set(names)
    # What the build of the package reads is copied there.
    copied = " ".join(arguments("COPY"))
    assert f" {directory}/" in copied
    for each in ("pyproject.toml", project["readme"], *project["license-files"]):
        assert each in copied
    image = arguments("FROM")[0]
    version = re.fullmatch(r"python:(\d+)\.(\d+)-slim-\w+", image)
    assert version is not None
    assert (int(version[1]), int(version[2])) >= (3, 11)


@pytest.mark.slow
@pytest.mark.extended
def test_the_package_builds_from_what_is_copied(tmp_path: Path) -> None:
    for rest in arguments("COPY")[:2]:
        *sources, _ = shlex.split(rest)
        for each in sources:
            subprocess.run(["cp", "-r", str(ROOT / each), str(tmp_path)], check=True)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", str(tmp_path / "w")]
    subprocess.run([*command, str(tmp_path)], check=True, timeout=300)
    (wheel,) = (tmp_path / "w").glob("millstream-*.whl")
    assert "millstream/rest/static/index.html" in zipfile.ZipFile(wheel).namelist()


def test_it_runs_as_a_user_by_number() -> None:
    (user,) = arguments("USER")
    assert int(user) > 0
    assert f"--uid {user} " in " ".join(arguments("RUN"))
    # Nothing is installed by that user.
    names = [name for name, _ in instructions()]
    assert "RUN" not in names[names.index("USER") :]


def test_the_entry_point_is_millstream() -> None:
    *_, entry = json.loads(arguments("ENTRYPOINT")[0])
    assert f"deploy/docker/entrypoint.sh {entry}" in arguments("COPY")[-1]
    assert os.access(ENTRYPOINT, os.X_OK)
    done = run("--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"millstream {__version__}")
    (command,) = map(json.loads, arguments("CMD"))
    assert "COMMAND" in run(*command).stdout
    assert run("no-such-command").returncode == 2


def test_the_health_check_asks_the_driver(health_server: Callable[..., HealthServer]) -> None:
    check = json.loads(arguments("HEALTHCHECK")[0].partition("CMD ")[2])
    assert check[0] == json.loads(arguments("ENTRYPOINT")[0])[-1]
    for status, code in ((200, 0), (503, 1)):
        server = health_server(status)
        done = run(*check[1:], MILLSTREAM_HEALTH_URL=f"{server.url}/healthz")
        assert done.returncode == code, done.stderr
        assert server.paths == ["/healthz"]
    done = run(*check[1:], MILLSTREAM_HEALTH_URL="http://127.0.0.1:1/healthz")
    assert done.returncode == 1
    assert "http://127.0.0.1:8081/healthz" in ENTRYPOINT.read_text()
    assert arguments("EXPOSE") == ["8081"]


def test_executors_are_started_as_spark_describes_them(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nfor each in "$@"; do printf "%s\\n" "$each"; done\n')
    java.chmod(0o755)
    done = run(
        "executor",
        path=tmp_path,
        JAVA_HOME="",
        SPARK_JAVA_OPT_0="-Dspark.driver.port=7078",
        SPARK_JAVA_OPT_1="-Dwith.blank=a b",
        SPARK_JAVA_OPT_10="-Dlast=*",
        SPARK_EXECUTOR_MEMORY="1024m",
        SPARK_DRIVER_URL="spark://CoarseGrainedScheduler@10.0.0.1:7078",
        SPARK_EXECUTOR_ID="3",
        SPARK_EXECUTOR_CORES="2",
        SPARK_APPLICATION_ID="app-1",
        SPARK_EXECUTOR_POD_IP="10.0.0.2",
        SPARK_RESOURCE_PROFILE_ID="0",
        SPARK_EXECUTOR_POD_NAME="orders-exec-3",
        SPARK_CONF_DIR="/opt/spark/conf",
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["-Dspark.driver.port=7078", "-Dwith.blank=a b", "-Dlast=*"]
    assert lines[3:6] == ["-Xms1024m", "-Xmx1024m", "-cp"]
    jars = jars_of_spark()
    assert lines[6] == f"/opt/spark/conf:{jars}/*"
    assert lines[7] == BACKEND
    given = dict(zip(lines[8::2], lines[9::2], strict=True))
    assert given == {
        "--driver-url": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "app-1",
        "--hostname": "10.0.0.2",
        "--resourceProfileId": "0",
        "--podName": "orders-exec-3",
    }


def jars_of_spark() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "jars"


def test_sparks_package_can_run_on_kubernetes() -> None:
    (jar,) = jars_of_spark().glob("spark-kubernetes_*.jar")
    assert f"{BACKEND.replace('.', '/')}.class" in zipfile.ZipFile(jar).namelist()
