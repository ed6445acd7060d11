"""The archive of Spark's classes: how it comes to be, when it is used, and what can go wrong."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream.engines.spark import make_class_archive, session
from millstream.engines.spark.java import JavaRuntime
from millstream.engines.spark.make_class_archive import QUIET, make, prune
from millstream.engines.spark.session import ClassArchive, key_of
from millstream.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Mapping

WORDS = (Path(__file__).parents[2] / "examples" / "word_count.py").read_text()
#: Whether the JVM of the session has mapped an archive of ours.
MAPPED = """
from pyspark.sql import SparkSession
jvm = SparkSession.getActiveSession().sparkContext._gateway.proc.pid
print("/millstream/classes/" in open(f"/proc/{jvm}/maps").read())
"""
OF_A_JOB = "org/apache/spark/sql/execution/streaming/runtime/MicroBatchExecution\n"
#: Makes an "archive" of its arguments, and takes it for good unless told otherwise.
JAVA = """\
#!/bin/sh
echo "$@" >> '{said}'
for argument in "$@"; do case "$argument" in
  -Xshare:dump) dump=1 ;;
  -XX:SharedArchiveFile=*) archive=${{argument#*=}} ;;
esac; done
[ -z "$dump" ] || echo made > "$archive"
{then}
"""


@pytest.fixture(autouse=True)
def no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the tests tell Java what to share."""
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A Spark of one file."""
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "spark-core.jar").write_text("1")
    return tmp_path / "spark"


@pytest.fixture
def runtime(tmp_path: Path) -> JavaRuntime:
    """A Java that only has to be there."""
    for part in ("bin/java", "lib/modules"):
        path = tmp_path / "java" / part
        path.parent.mkdir(parents=True)
        path.write_text("1")
    return JavaRuntime(tmp_path / "java", 17, "PATH", tmp_path / "java" / "bin" / "java")


@pytest.fixture
def loaded(tmp_path: Path) -> Path:
    """The list of the classes that a session with a job has loaded."""
    path = tmp_path / "classes.list"
    path.write_text(f"java/lang/Object id: 0\n{OF_A_JOB}")
    return path


def fake_java(tmp_path: Path, then: str = "true") -> tuple[str, Path]:
    """A Java, and where it writes what it is asked."""
    java, said = tmp_path / "fake-java", tmp_path / "said.txt"
    java.write_text(JAVA.format(said=said, then=then))
    java.chmod(0o755)
    return str(java), said


def test_the_key_is_all_that_an_archive_depends_on(home: Path, runtime: JavaRuntime) -> None:
    java = runtime.executable
    keys = [key_of(java, home, ["-Xmx1g"]), key_of(java, home, ["-Xmx2g"])]
    (home / "jars" / "spark-core.jar").write_text("22")
    keys.append(key_of(java, home, ["-Xmx1g"]))
    (home / "jars" / "more.jar").write_text("1")
    keys.append(key_of(java, home, ["-Xmx1g"]))
    (java.parents[1] / "lib" / "modules").write_text("22")
    keys.append(key_of(java, home, ["-Xmx1g"]))
    assert len(set(keys)) == len(keys)
    assert key_of(java, home, ["-Xmx1g"]) == keys[-1]


@pytest.mark.parametrize("variable", ["SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS"])
def test_who_tells_java_what_to_share_is_left_alone(
    variable: str, monkeypatch: pytest.MonkeyPatch, home: Path, runtime: JavaRuntime, tmp_path: Path
) -> None:
    monkeypatch.setenv(variable, "-Xmx1g")
    assert ClassArchive.of(tmp_path, runtime, home, {}) is not None
    monkeypatch.setenv(variable, "-Xmx1g -Xshare:off")
    assert ClassArchive.of(tmp_path, runtime, home, {}) is None
    monkeypatch.delenv(variable)
    own = {"spark.driver.extraJavaOptions": "-XX:SharedArchiveFile=/mine"}
    assert ClassArchive.of(tmp_path, runtime, home, own) is None


def test_a_spark_that_cannot_be_read_has_no_archive(runtime: JavaRuntime, tmp_path: Path) -> None:
    assert ClassArchive.of(tmp_path, runtime, tmp_path / "nowhere", {}) is None


def test_a_session_records_then_uses_then_gives_up(
    home: Path, runtime: JavaRuntime, tmp_path: Path
) -> None:
    def archive() -> ClassArchive:
        found = ClassArchive.of(tmp_path / "cache", runtime, home, {})
        assert found is not None
        return found

    first = archive()
    assert first.java_options(tmp_path) == [f'-XX:DumpLoadedClassList="{tmp_path}/classes.list"']
    assert not first.give_up("it has none")
    first.path.write_text("made")
    os.utime(first.path, (1, 1))
    second = archive()
    assert second.java_options(tmp_path) == [*QUIET, f'-XX:SharedArchiveFile="{first.path}"']
    assert first.path.stat().st_mtime > 1, "it is noted that it is in use"
    assert second.give_up("the JVM ended")
    assert not first.path.exists()
    assert archive().java_options(tmp_path) == []
    note = first.path.with_suffix(".failed")
    assert note.read_text() == "the JVM ended\n"
    os.utime(note, (1, 1))
    assert archive().java_options(tmp_path), "it is tried again after some days"


def test_a_cache_that_cannot_be_written_is_no_error(
    home: Path, runtime: JavaRuntime, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    archive = ClassArchive.of(tmp_path / "file", runtime, home, {})
    assert archive is not None
    assert archive.java_options(tmp_path) == []


def test_an_archive_appears_whole(tmp_path: Path, loaded: Path) -> None:
    java, said = fake_java(tmp_path)
    archive = tmp_path / "classes-1.jsa"
    options = ["-Xmx1g", "-XX:+UseSerialGC", "-XX:-UseCompressedOops", "-Xshare:auto"]
    assert make(java, "/a.jar:/b.jar:/a.jar", options, loaded, archive)
    assert archive.read_text() == "made\n"
    dump, trial = said.read_text().splitlines()
    assert "-Xmx1g -XX:-UseCompressedOops" in dump
    assert "UseSerialGC" not in dump
    assert dump.endswith("-cp /a.jar:/b.jar:/./a.jar"), "Java 21 mixes up what is there twice"
    assert trial.endswith("-cp /a.jar:/b.jar:/a.jar -version")
    assert "-XX:+UseSerialGC" in trial
    assert "-Xshare:on" in trial
    assert "-Xshare:auto" not in trial
    assert not archive.with_suffix(".new").exists()
    assert not make(java, "/a.jar", options, loaded, archive), "there is one"
    assert len(said.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    "then", ["echo no room; exit 1", '[ -n "$dump" ] || { echo no room; exit 1; }']
)
def test_what_fails_is_noted_and_removed(then: str, tmp_path: Path, loaded: Path) -> None:
    """Making it, or trying it."""
    java, _ = fake_java(tmp_path, then)
    archive = tmp_path / "classes-1.jsa"
    assert not make(java, "a.jar", [], loaded, archive)
    assert "no room" in archive.with_suffix(".failed").read_text()
    assert not archive.exists()
    assert not archive.with_suffix(".new").exists()


def test_only_one_process_makes_archives(tmp_path: Path, loaded: Path) -> None:
    java, said = fake_java(tmp_path)
    with (tmp_path / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not make(java, "a.jar", [], loaded, tmp_path / "classes-1.jsa")
    assert not said.exists()
    assert make(java, "a.jar", [], loaded, tmp_path / "classes-1.jsa")


def test_a_session_without_a_job_makes_none(tmp_path: Path, loaded: Path) -> None:
    java, said = fake_java(tmp_path)
    loaded.write_text("java/lang/Object id: 0\n")
    assert not make(java, "a.jar", [], loaded, tmp_path / "classes-1.jsa")
    assert not said.exists()


def test_old_archives_go(tmp_path: Path) -> None:
    now = time.time()
    for days, name in enumerate(["new", "used", "third", "fourth"]):
        path = tmp_path / f"classes-{name}.jsa"
        path.touch()
        os.utime(path, (now - days * 86_400, now - days * 86_400))
    left = [tmp_path / f"classes-{name}" for name in ("a.new", "b.list", "c.failed")]
    for path in left:
        path.touch()
        os.utime(path, (1, 1))
    prune(tmp_path, keep=tmp_path / "classes-new.jsa")
    assert {path.name for path in tmp_path.iterdir()} == {
        f"classes-{name}.jsa" for name in ("new", "used", "third")
    }
    os.utime(tmp_path / "classes-third.jsa", (1, 1))
    prune(tmp_path, keep=tmp_path / "classes-new.jsa")
    assert not (tmp_path / "classes-third.jsa").exists(), "nobody has used it"


def test_large_archives_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_class_archive, "_MOST_BYTES", 10)
    (tmp_path / "classes-1.jsa").write_text("six by")
    (tmp_path / "classes-2.jsa").write_text("six by")
    prune(tmp_path, keep=tmp_path / "classes-1.jsa")
    assert [path.name for path in tmp_path.iterdir()] == ["classes-1.jsa"]


def test_the_process_that_makes_it_needs_no_one(tmp_path: Path, loaded: Path) -> None:
    """Its own program: with nothing imported, and after its session's end."""
    java, _ = fake_java(tmp_path)
    archive = ClassArchive(tmp_path / "cache", "1", Path(java))
    (recording,) = archive.java_options(loaded.parent)
    assert str(loaded) in recording
    archive.check(FakeJvm())
    archive.make()
    deadline = time.monotonic() + 60
    lists = list((tmp_path / "cache").glob("*.list"))
    while not archive.path.exists() or any(path.exists() for path in lists):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not loaded.exists()


def test_a_jvm_that_an_archive_brings_down_starts_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    started: list[str] = []

    def start(settings: Mapping[str, object], locks: tuple[int, ...]) -> None:
        del locks
        started.append(str(settings["spark.driver.defaultJavaOptions"]))
        if len(started) == 2:
            message = "Spark's JVM does not start"
            raise EngineError(message)

    monkeypatch.setattr(session, "_start_jvm", start)
    _, archive = session._launch({}, "local[2]", archived=True)
    assert archive is not None
    assert "LoadedClassList" in started[0]
    archive.path.write_text("damaged")
    session._launch({}, "local[2]", archived=True)
    assert str(archive.path) in started[1]
    assert "Shared" not in started[2]
    assert not archive.path.exists()
    _, none = session._launch({}, "local[2]", archived=False)
    assert none is None
    assert "Class" not in started[-1]


class FakeJvm:
    """What an archive asks of a JVM."""

    def __getattr__(self, name: str) -> Any:
        return self

    def getProperty(self, name: str) -> str:  # noqa: N802 - Java's name
        return {"java.vm.info": "mixed mode", "java.class.path": "a.jar"}[name]

    def getRuntimeMXBean(self) -> FakeJvm:  # noqa: N802 - Java's name
        return self

    def getInputArguments(self) -> list[str]:  # noqa: N802 - Java's name
        return ["-XX:DumpLoadedClassList=x", "-Xmx1g"]


def test_an_archive_that_the_jvm_did_not_take_is_removed(tmp_path: Path) -> None:
    archive = ClassArchive(tmp_path, "1", tmp_path / "java")
    archive.path.write_text("of another Java")
    assert archive.java_options(tmp_path)
    archive.check(FakeJvm())
    assert not archive.path.exists()
    archive.make()
    assert [path.name for path in tmp_path.iterdir()] == ["classes-1.failed"]


@pytest.mark.soak  # to make an archive takes a minute of processor time
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark")  # which sets PYTHONPATH
def test_the_second_session_has_its_classes_from_an_archive(tmp_path: Path) -> None:
    """As users have it: with nothing told to Java."""
    (tmp_path / "t").mkdir()
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(tmp_path / "t")}
    environment.pop("SPARK_LOCAL_DIRS", None)

    def words() -> list[str]:
        run = subprocess.run(
            [sys.executable, "-c", WORDS + MAPPED],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        assert [line for line in run.stderr.splitlines() if ": epoch " not in line] == []
        assert list((tmp_path / "t").iterdir()) == []
        return run.stdout.splitlines()

    counts, mapped = words()
    assert mapped == "False"
    cache = tmp_path / "millstream" / "classes"
    deadline = time.monotonic() + 500
    while any(cache.glob("*.list")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert sorted(path.suffix for path in cache.iterdir()) == ["", ".jsa"]
    assert words() == [counts, "True"]
    assert sorted(path.suffix for path in cache.iterdir()) == ["", ".jsa"]
