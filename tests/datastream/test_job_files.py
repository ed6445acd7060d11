"""Files of the program on its workers: modules, archives, requirements, cached files."""

from __future__ import annotations

import importlib
import io
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest

from millstream.checkpoint.local_storage import LocalStorage
from millstream.configuration.configuration import Configuration
from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from millstream.engines.spark.session import python_executable
from millstream.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ProgramError,
    RequirementsError,
    UserFunctionError,
)
from millstream.execution.job import _pack, delete_older_files, ship_files
from millstream.graph.job_files import JobFiles, job_files_of
from millstream.graph.model import JobGraph
from millstream.runtime.job_files import bring_files, extract, working_directory
from millstream.testing.local_run import run_and_collect
from millstream.testing.mini_cluster import MiniCluster


@pytest.fixture(name="env")
def new_environment() -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    return env.set_parallelism(1)


@pytest.fixture(autouse=True)
def nothing_on_the_path() -> object:
    yield
    bring_files(JobFiles())


def answers(env: StreamExecutionEnvironment, function: object) -> list[object]:
    return run_and_collect(env.from_collection([1, 2]).map(function))[0]  # type: ignore[arg-type]


def write_module(directory: Path, name: str, factor: int) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.py"
    path.write_text(f"def times(value):\n    return {factor} * value\n")
    return path


def times_of(name: str) -> object:
    def use(value: int) -> object:
        return importlib.import_module(name).times(value)

    return use


def wheel(directory: Path, name: str, factor: int) -> Path:
    """A wheel of one module."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    contents = {
        f"{name}.py": f"def times(value):\n    return {factor} * value\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*contents, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in {**contents, f"{info}/RECORD": record}.items():
            archive.writestr(file, content)
    return path


@pytest.mark.both_engines
def test_modules_directories_and_archives_of_python(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    env.add_python_file(str(write_module(tmp_path, "alone_shipped", 3)))
    write_module(tmp_path / "package" / "inside_shipped", "__init__", 5)
    env.add_python_file(str(tmp_path / "package"))
    env.add_python_file(str(wheel(tmp_path, "zipped_shipped", 7)))
    found = env.from_collection([1, 2])
    streams = [
        found.map(times_of(name))  # type: ignore[arg-type]
        for name in ("alone_shipped", "inside_shipped", "zipped_shipped")
    ]
    assert run_and_collect(*streams) == [[3, 6], [5, 10], [7, 14]]


@pytest.mark.both_engines
def test_a_module_of_another_job_is_not_taken(tmp_path: Path) -> None:
    found = []
    for factor in (3, 4):
        env = StreamExecutionEnvironment.get_execution_environment(Configuration())
        env.set_parallelism(1)
        env.add_python_file(str(write_module(tmp_path / str(factor), "same_shipped", factor)))
        found.append(answers(env, times_of("same_shipped")))
    assert found == [[3, 6], [4, 8]]
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    with pytest.raises(UserFunctionError, match="No module named 'same_shipped'"):
        answers(env, times_of("same_shipped"))


@pytest.mark.both_engines
def test_of_two_files_with_one_module_the_last_is_imported(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_parallelism(1)
    for number, factor in enumerate((3, 4)):
        directory = tmp_path / str(number)
        env.add_python_file(str(write_module(directory, "twice_shipped", factor)))
        env.add_python_file(str(wheel(directory, "twice_zipped", factor)))
        write_module(directory / "code", "twice_in_directory", factor)
        env.add_python_file(str(directory / "code"))
    source = env.from_collection([1, 2])
    names = ("twice_shipped", "twice_zipped", "twice_in_directory")
    streams = [source.map(times_of(name)) for name in names]  # type: ignore[arg-type]
    assert run_and_collect(*streams) == [[4, 8]] * len(names)


@pytest.mark.both_engines
def test_archives_are_in_the_working_directory(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    tool = tmp_path / "tool.sh"
    tool.write_text("#!/bin/sh\necho ran\n")
    tool.chmod(0o755)
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("words/a.txt", "zipped")
        archive.write(tool, "tool.sh")
    with tarfile.open(tmp_path / "data.tar.gz", "w:gz") as archive_of_tar:
        entry = tarfile.TarInfo("b.txt")
        entry.size = 6
        archive_of_tar.addfile(entry, io.BytesIO(b"tarred"))
    env.add_python_archive(str(tmp_path / "data.zip"))
    env.add_python_archive(str(tmp_path / "data.tar.gz"), "other")

    def read(value: int) -> tuple[int, str, str, str]:
        ran = subprocess.run(["data.zip/tool.sh"], capture_output=True, text=True, check=True)
        texts = [Path(name).read_text() for name in ("data.zip/words/a.txt", "other/b.txt")]
        return value, texts[0], texts[1], ran.stdout

    before = Path.cwd()
    assert answers(env, read) == [(n, "zipped", "tarred", "ran\n") for n in (1, 2)]
    assert Path.cwd() == before


@pytest.mark.both_engines
def test_cached_files_are_found_by_name(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("mill")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("stream")
    (tmp_path / "tool").write_text("#!/bin/sh\necho ran\n")
    env.register_cached_file((tmp_path / "words.txt").as_uri(), "words")
    env.register_cached_file(str(tmp_path / "model"), "the model; 1")
    env.register_cached_file(str(tmp_path / "tool"), "tool", True)

    class Read(MapFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            cache = runtime_context.get_distributed_cache()
            self.text = cache.get_file("words").read_text()
            self.text += (cache.get_file("the model; 1") / "weights").read_text()
            tool = cache.get_file("tool")
            self.text += subprocess.run([tool], capture_output=True, text=True, check=True).stdout
            self.writable = os.access(cache.get_file("words"), os.X_OK)

        def map(self, value: int) -> tuple[str, bool]:
            return self.text, self.writable

    assert answers(env, Read()) == [("millstreamran\n", False)] * 2
    listed = (
        f"- name:words,path:{tmp_path}/words.txt\n- name:'the model; 1',path:{tmp_path}/model\n"
    )
    env.get_configuration().set_string("pipeline.cached-files", listed)
    env.register_cached_file(str(tmp_path / "tool"), "tool", True)
    assert answers(env, Read()) == [("millstreamran\n", False)] * 2

    class Missing(MapFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            runtime_context.get_distributed_cache().get_file("sentences")

        def map(self, value: int) -> int:
            return value

    with pytest.raises(ProgramError, match="no file is registered as 'sentences'"):
        answers(env, Missing())


@pytest.mark.both_engines
def test_requirements_are_installed_from_a_directory(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    wheel(tmp_path / "packages", "required_shipped", 11)
    (tmp_path / "requirements.txt").write_text("required_shipped==1.0\n")
    env.set_python_requirements(str(tmp_path / "requirements.txt"), str(tmp_path / "packages"))
    assert answers(env, times_of("required_shipped")) == [11, 22]
    assert "required_shipped" in sys.modules
    installed = Path(os.environ["_PYTHON_REQUIREMENTS_INSTALL_DIR"])
    assert Path(str(sys.modules["required_shipped"].__file__)).parent == installed
    bring_files(JobFiles())
    assert "_PYTHON_REQUIREMENTS_INSTALL_DIR" not in os.environ
    assert "required_shipped" not in sys.modules


#: Builds a wheel of one module, as the build systems that would have to be fetched do.
BACKEND = """
import pathlib, zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    info = "built_shipped-1.0.dist-info"
    contents = {
        "built_shipped.py": pathlib.Path("built_shipped.py").read_text(),
        f"{info}/METADATA": "Metadata-Version: 2.1\\nName: built_shipped\\nVersion: 1.0\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    contents[f"{info}/RECORD"] = "".join(f"{name},,\\n" for name in [*contents, f"{info}/RECORD"])
    name = "built_shipped-1.0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(directory) / name, "w") as wheel:
        for path, text in contents.items():
            wheel.writestr(path, text)
    return name
"""


@pytest.mark.extended
@pytest.mark.both_engines
def test_requirements_are_built_from_source_distributions(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "packages").mkdir()
    files = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: built_shipped\nVersion: 1.0\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\n'
        'backend-path = ["."]\n',
        "backend.py": BACKEND,
        "built_shipped.py": "def times(value):\n    return 13 * value\n",
    }
    with tarfile.open(tmp_path / "packages" / "built_shipped-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"built_shipped-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    (tmp_path / "requirements.txt").write_text("built_shipped\n")
    env.set_python_requirements(str(tmp_path / "requirements.txt"), str(tmp_path / "packages"))
    assert answers(env, times_of("built_shipped")) == [13, 26]


@pytest.mark.both_engines
def test_requirements_that_cannot_be_installed_say_what_pip_says(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "requirements.txt").write_text("nowhere_shipped\n")
    env.set_python_requirements(str(tmp_path / "requirements.txt"), str(tmp_path / "packages"))
    with pytest.raises(RequirementsError, match=r"(?s)pip cannot install .*nowhere_shipped"):
        answers(env, times_of("nowhere_shipped"))


def without_operators(options: dict[str, str]) -> JobGraph:
    return JobGraph("a job", {}, [], [], Configuration(options))


def shipped(tmp_path: Path, **entries: str) -> JobFiles:
    keys = {name.replace("_", ".", 1).replace("_", "-"): text for name, text in entries.items()}
    storage = LocalStorage(tmp_path / "checkpoints", fsync=False)
    return ship_files(without_operators(keys), storage, tmp_path / "local")


def test_what_has_not_changed_is_not_sent_again_and_what_is_not_needed_goes(
    tmp_path: Path,
) -> None:
    module = write_module(tmp_path, "first_shipped", 1)
    other = write_module(tmp_path, "second_shipped", 2)
    blobs = tmp_path / "checkpoints" / "files"
    both = shipped(tmp_path, python_files=f"{module},{other}")
    sent = {path.name: path.stat().st_ino for path in blobs.iterdir()}
    assert len(sent) == 2
    assert shipped(tmp_path, python_files=f"{module},{other}").files == both.files
    assert {path.name: path.stat().st_ino for path in blobs.iterdir()} == sent
    module.write_text("changed = True\n")
    changed = shipped(tmp_path, python_files=str(module))
    # A run that has not been taken over finds what it has sent.
    bring_files(both)
    assert changed.storage is not None
    delete_older_files(changed, changed.storage)
    (only,) = blobs.iterdir()
    assert only.name not in sent
    bring_files(changed)
    assert importlib.import_module("first_shipped").changed


@pytest.mark.both_engines
def test_a_run_that_takes_the_job_over_deletes_what_it_does_not_need(tmp_path: Path) -> None:
    for factor in (1, 2):
        module = write_module(tmp_path, "of_run", factor)
        env = StreamExecutionEnvironment.get_execution_environment(Configuration())
        env.set_parallelism(1).add_python_file(str(module))
        env.from_sequence(1, 100).sink_to(BlackholeSink())
        cluster = MiniCluster(env.get_job_graph("files"), tmp_path / "checkpoints", limits=[5])
        cluster.run(1)
        cluster.coordinator.close()
        (only,) = (tmp_path / "checkpoints" / "files").iterdir()
        assert only.read_text() == module.read_text()


def test_files_may_be_a_list_of_a_configuration_file(tmp_path: Path) -> None:
    modules = [write_module(tmp_path, name, 1) for name in ("one_listed", "two_listed")]
    listed = "".join(f"  - {module}\n" for module in modules)
    (tmp_path / "config.yaml").write_text(f"python.files:\n{listed}")
    configuration = Configuration.from_file(tmp_path / "config.yaml")
    assert [file.path for file in job_files_of(configuration)] == [str(m) for m in modules]


def test_damaged_and_missing_copies_are_refused(tmp_path: Path) -> None:
    files = shipped(tmp_path, python_files=str(write_module(tmp_path, "damaged_shipped", 1)))
    (blob,) = (tmp_path / "checkpoints" / "files").iterdir()
    blob.chmod(0o600)
    blob.write_bytes(b"evil = True\n")
    with pytest.raises(CorruptCheckpointError, match="is not what was sent of"):
        bring_files(files)
    blob.unlink()
    with pytest.raises(CorruptCheckpointError, match="is missing"):
        bring_files(files)
    assert not [path for path in (tmp_path / "local").rglob("*") if path.suffix == ".py"]


def test_workers_that_ask_at_once_make_one(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(20):
        (tmp_path / "data" / str(number)).write_text("x")
    files = shipped(tmp_path, python_archives=str(tmp_path / "data"))
    errors: list[Exception] = []

    def ask() -> None:
        try:
            bring_files(files)
        except Exception as error:  # noqa: BLE001 - shown by the assertion
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    made = files.working_directory
    assert made is not None
    assert len(list((made / "data").iterdir())) == 20
    assert sorted(path.name for path in made.parent.iterdir()) == sorted([made.name, "lock"])
    with working_directory(files):
        assert Path("data/7").read_text() == "x"
    # Removed with the local state of the job, it is made again.
    shutil.rmtree(tmp_path / "local")
    bring_files(files)
    assert made.exists()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "python.files",
            "/no/such.py",
            "python.files: there is no file or directory '/no/such.py'",
        ),
        ("python.archives", "/no/such.zip#a", "python.archives: there is no file"),
        ("python.archives", "/tmp#../up", "is no name of one directory"),
        ("python.archives", "/tmp#a,/#a", "are both to be 'a' on the workers"),
        ("python.requirements", "/no/such.txt", "python.requirements: there is no file"),
        ("python.files", "- /no/such.py\n- /no/other.py", "there is no file .*'/no/such.py'"),
        ("pipeline.cached-files", "- name:a,path:/tmp\n- name:b", "has no name or no path"),
        ("pipeline.cached-files", "name:'a,path:/tmp", "has a quote ' that is not closed"),
        ("pipeline.cached-files", "name:a", "has no name or no path"),
        ("pipeline.cached-files", "name:a,path:hdfs://host/a", "is not on this machine"),
        ("pipeline.cached-files", "name:'../a',path:/tmp", "is no name of a file"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, key: str, value: str, message: str) -> None:
    storage = LocalStorage(tmp_path, fsync=False)
    with pytest.raises(ConfigurationError, match=message):
        ship_files(without_operators({key: value}), storage, tmp_path)


@pytest.mark.both_engines
def test_archive_that_is_none(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no archive")
    env.add_python_archive(str(tmp_path / "notes.txt"))
    with pytest.raises(ConfigurationError, match="neither a zip nor a tar archive"):
        answers(env, abs)


def test_python_of_an_archive(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho the python of the archive\n")
    python.chmod(0o755)
    with zipfile.ZipFile(tmp_path / "venv.zip", "w") as archive:
        archive.write(python, "venv/bin/python")
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.add_python_archive(str(tmp_path / "venv.zip"), "mine")
    env.set_python_executable("mine/venv/bin/python")
    found = python_executable(env.get_configuration())
    ran = subprocess.run([found], capture_output=True, text=True, check=True)
    assert ran.stdout == "the python of the archive\n"
    env.set_python_executable("/usr/bin/python3")
    assert python_executable(env.get_configuration()) == "/usr/bin/python3"


def test_archives_that_cannot_be_extracted_are_named(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("x")
    (tmp_path / "link").symlink_to("/etc/passwd")
    with tarfile.open(tmp_path / "absolute.tar", "w") as archive:
        archive.add(tmp_path / "link", "link")
    with zipfile.ZipFile(tmp_path / "linked.zip", "w") as packed:
        entry = zipfile.ZipInfo("link")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        packed.writestr(entry, "target")
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("numbers", bytes(range(256)) * 100)
    damaged = bytearray(whole.getvalue())
    damaged[60:90] = bytes(30)
    (tmp_path / "damaged.zip").write_bytes(damaged)
    for name in ("absolute.tar", "linked.zip", "damaged.zip"):
        with pytest.raises(ConfigurationError, match=name):
            extract(tmp_path / name, tmp_path / f"out-{name}", name)


def test_directories_are_sent_with_links_and_empty_directories(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "inner.txt").write_text("inner")
    source = tmp_path / "source"
    (source / "empty").mkdir(parents=True)
    (source / "linked").symlink_to(shared)
    (source / "linked" / "back").symlink_to(source)
    _pack(source, tmp_path / "packed")
    extract(tmp_path / "packed", tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / "linked" / "inner.txt").read_text() == "inner"
    assert (tmp_path / "unpacked" / "empty").is_dir()
