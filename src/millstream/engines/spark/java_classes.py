"""Java that lies beside these modules, compiled in the JVM of a session when it is wanted.

What it is: ``X.java`` of this directory as the constructor of its class ``X``, by the compiler that
Spark brings along for the code that it generates.

What it is not: what those classes do (``split_source.py``, ``worker_homes.py``, to be read next).
"""

from __future__ import annotations

import importlib.resources
from typing import Any

__all__ = ["compiled"]


def compiled(gateway: Any, name: str) -> Any:
    """The only constructor of a class, as ``java.lang.reflect`` has it.

    Args:
        gateway: py4j's, to the JVM.
        name: of the class, and of its file without ``.java``.

    Raises:
        Py4JError: it does not compile against this Spark.
    """
    text = importlib.resources.files("millstream.engines.spark") / f"{name}.java"
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
    thread = gateway.jvm.java.lang.Thread.currentThread()
    compiler.setParentClassLoader(thread.getContextClassLoader())
    compiler.cook(text.read_text())
    (constructor,) = compiler.getClassLoader().loadClass(name).getConstructors()
    return constructor
