"""Finding out, before anything is shipped, whether user code can be pickled, and if not why not.

What it is: a try with cloudpickle, as Spark will do it, and on failure a search for the smallest
object that cannot be pickled: a variable a lambda closes over, a global it uses, an attribute.

What it is not: the shipping itself.

Read next: ``graph/translate.py``.
"""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.errors import UnpicklableFunctionError
from millstream.types.pickling import dumps_by_value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FunctionType

__all__ = ["LARGE", "check_picklable", "warn_of_size"]

_LOG: Final = logging.getLogger("millstream")
#: From so many bytes on something of the user's is worth a warning.
LARGE: Final = 10 << 20

_MAX_DEPTH = 6
_SHOWN = 120


@dataclass(frozen=True, slots=True)
class _Culprit:
    path: str
    value: object
    error: Exception


def check_picklable(value: object, *, what: str, operator: str, location: str) -> int:
    """Raise unless ``value`` can be shipped to the workers; returns its size there in bytes.

    Args:
        value: the user's function or object.
        what: what to call it, such as "function".
        operator: name of the operator that uses it.
        location: "job.py:12", where the operator was made.

    Raises:
        UnpicklableFunctionError: it cannot; names the innermost object that is to blame.
    """
    try:
        return len(dumps_by_value(value))
    except Exception as failure:  # noqa: BLE001 - user classes raise anything from __reduce__
        error = failure
    culprit = _find(value, _title(value), error, depth=0, seen=set())
    shown = _describe(culprit.value)
    message = (
        f"the {what} of operator '{operator}' ({location}) cannot be shipped to the workers: "
        f"{culprit.path} is {shown}, which cannot be pickled ({culprit.error}). "
        "Create such objects in open(), which runs in the worker, or in the function itself."
    )
    raise UnpicklableFunctionError(message) from culprit.error


def warn_of_size(value: object, size: int, *, what: str, operator: str, location: str) -> None:
    """Warn of what is so large that each worker takes long to get it; see ``check_picklable``."""
    path, largest = _title(value), size
    for part_path, part in _parts(value, path):
        found = _size(part)
        if found > size // 2:
            path, largest = part_path, found
            break
    _LOG.warning(
        "the %s of operator %r (%s) is %d MB when it is shipped to the workers, of which %s takes"
        " %d MB; each worker gets a copy, and after every restart again. Load such data in open(),"
        " from a file that the workers can read or that env.register_cached_file() ships",
        *(what, operator, location, size >> 20, path, largest >> 20),
    )


def _size(value: object) -> int:
    try:
        return len(dumps_by_value(value))
    except Exception:  # noqa: BLE001 - a part that is left out by what has it
        return 0


def _failure(value: object) -> Exception | None:
    try:
        dumps_by_value(value)
    except Exception as error:  # noqa: BLE001 - user classes raise anything from __reduce__
        return error
    return None


def _title(value: object) -> str:
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    return str(name)


def _describe(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a broken __repr__ must not hide the message
        text = "an object"
    if len(text) > _SHOWN:
        text = text[: _SHOWN - 3] + "..."
    return f"{text} of type {type(value).__module__}.{type(value).__qualname__}"


def _find(value: object, path: str, error: Exception, depth: int, seen: set[int]) -> _Culprit:
    """Descend to the first part that fails by itself, as long as there is one."""
    seen.add(id(value))
    if depth < _MAX_DEPTH:
        for part_path, part in _parts(value, path):
            if id(part) in seen:
                continue
            part_error = _failure(part)
            if part_error is not None:
                return _find(part, part_path, part_error, depth + 1, seen)
    return _Culprit(path, value, error)


def _parts(value: object, path: str) -> Iterator[tuple[str, object]]:
    """What pickling ``value`` would pickle as well, with a name for each."""
    if inspect.ismethod(value):
        yield _title(value.__self__), value.__self__
    elif inspect.isfunction(value):
        yield from _parts_of_function(value, path)
    elif isinstance(value, type):
        members = vars(value).items()
        yield from ((f"{path}.{name}", part) for name, part in members if name[:2] != "__")
    elif isinstance(value, dict):
        yield from ((f"{path}[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"{path}[{index}]", part) for index, part in enumerate(value))
    else:
        yield from ((f"{path}.{name}", part) for name, part in _attributes(value))
        if type(value).__module__ == "__main__":  # then the class is pickled too
            yield type(value).__qualname__, type(value)


def _parts_of_function(function: FunctionType, path: str) -> Iterator[tuple[str, object]]:
    variables = inspect.getclosurevars(function)
    for name, part in variables.nonlocals.items():
        yield f"variable '{name}' used by {path}", part
    for name, part in variables.globals.items():
        yield f"global '{name}' used by {path}", part
    for index, part in enumerate(function.__defaults__ or ()):
        yield f"default value {index} of {path}", part


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    yield from getattr(value, "__dict__", {}).items()
    for owner in type(value).__mro__:
        slots = owner.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                yield name, getattr(value, name)
