"""Every public method is described, where it is or where its contract is."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import TYPE_CHECKING

import millstream

if TYPE_CHECKING:
    from collections.abc import Iterator


def public_classes() -> Iterator[type]:
    for info in pkgutil.walk_packages(millstream.__path__, "millstream."):
        if not info.name.endswith("__main__"):
            for name, each in vars(importlib.import_module(info.name)).items():
                own = inspect.isclass(each) and each.__module__ == info.name
                if own and not name.startswith("_"):
                    yield each


def undescribed(cls: type) -> Iterator[str]:
    for name, each in vars(cls).items():
        kinds = (property, staticmethod, classmethod)
        if name.startswith("_") or not (inspect.isfunction(each) or isinstance(each, kinds)):
            continue
        if not any(vars(base)[name].__doc__ for base in cls.__mro__ if name in vars(base)):
            yield f"{cls.__module__}.{cls.__qualname__}.{name}"


def test_public_methods_are_described() -> None:
    classes = list(public_classes())
    assert len(classes) > 300
    assert [name for cls in classes for name in undescribed(cls)] == []


def test_a_method_without_a_description_is_found() -> None:
    class Contract:
        def described(self) -> None:
            """What it does."""

        def silent(self) -> None:
            raise NotImplementedError

    class Own(Contract):
        def described(self) -> None:
            raise NotImplementedError

        @staticmethod
        def more() -> None:
            raise NotImplementedError

    assert [name.rpartition(".")[2] for name in undescribed(Contract)] == ["silent"]
    assert [name.rpartition(".")[2] for name in undescribed(Own)] == ["more"]


def test_files_that_docstrings_name_are_there() -> None:
    package = Path(millstream.__file__).parent
    root = package.parents[1]
    missing = [
        f"{path.relative_to(root)}: {name}"
        for path in package.rglob("*.py")
        for name in re.findall(r"``([\w/]+\.py)``", path.read_text())
        if not any(
            (folder / name).exists() for folder in (path.parent, package, root, root / "src")
        )
    ]
    assert missing == []
