"""Compiled check of one value against a type, for values that come one by one.

``v.__class__ is int and -2**31 <= v < 2**31`` for an INT: it accepts what certainly fits; for all
else the columns of the type decide.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from millstream.types.basic_types import BasicTypeInfo
from millstream.types.composite_types import (
    CompositeTypeInfo,
    DataclassTypeInfo,
    NamedTupleTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
)
from millstream.types.row import Row, row_class
from millstream.types.type_information import (
    ColumnMismatchError,
    PickledBytesTypeInfo,
    SerializedTypeInfo,
    mismatch_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.types.type_information import TypeInformation


#: Given what has the current key in ``cache_key``, the values by key, and what takes a value that
#: the predicate refuses and returns if it fits after all.
MakeSetter: TypeAlias = (
    "Callable[[object, dict[Any, Any], Callable[[Any], None]], Callable[[Any], None]]"
)
_SETTER: Final = """
def make(keyed, values, refuse):
    def update(v):
        if not (v is None or {}):
            refuse(v)
        values[keyed.cache_key] = v
    return update
"""
#: Python compares numbers of so few bits much faster than others.
_QUICK_BITS: Final = 30
_BITS: Final = {"Byte": 7, "Short": 15, "Integer": 31, "Long": 63}
_CLASSES: Final = {
    "String": "str",
    "Character": "str",
    "Boolean": "bool",
    "Float": "float",
    "Double": "float",
}


def compile_check(kind: TypeInformation) -> Callable[[object], bool] | None:
    """Make the predicate of a type; None if any value fits.

    Its yes is certain; after a no ``misfit`` decides.  None is a yes: it stands for no value.
    """
    if isinstance(kind, PickledBytesTypeInfo | SerializedTypeInfo):
        return None
    scope: dict[str, Any] = {}
    text = _expression(kind, "v", scope, map(str, itertools.count()))
    predicate: Callable[[object], bool] = eval(f"lambda v: v is None or {text}", scope)  # noqa: S307 - made of types
    return predicate


def compile_setter(kind: TypeInformation) -> MakeSetter:
    """Make what makes a function that stores a value if the predicate of its type is true.

    It is one function for check and store: a call per value costs as much as either.
    """
    scope: dict[str, Any] = {}
    text = _expression(kind, "v", scope, map(str, itertools.count()))
    # Compiled as code of this file: an error that passes through it is located in the program.
    exec(compile(_SETTER.format(text), __file__, "exec"), scope)  # noqa: S102 - made of types
    made: MakeSetter = scope["make"]
    return made


def is_quick(kind: TypeInformation) -> bool:
    """Whether the predicate of a type looks at values itself, without making columns of them."""
    if isinstance(kind, CompositeTypeInfo):
        return all(map(is_quick, kind.get_field_types()))
    return isinstance(kind, PickledBytesTypeInfo | SerializedTypeInfo | BasicTypeInfo)


def misfit(kind: TypeInformation, value: object, advice: str) -> str | None:
    """Why a value is not of a type, with advice at the end; None if it is."""
    try:
        kind.column_to_arrow([value])
    except ColumnMismatchError as mismatch:
        text = mismatch_text(mismatch, kind, [value], advice)
        return text.removeprefix("value 0: ").removeprefix("value 0, ")
    return None


def _expression(kind: TypeInformation, name: str, scope: dict[str, Any], new: Iterator[str]) -> str:
    """Python that is true if ``name`` is a value of the type; what it uses goes into ``scope``."""
    if isinstance(kind, PickledBytesTypeInfo | SerializedTypeInfo):
        return "True"
    if isinstance(kind, BasicTypeInfo):
        return _of_basic(str(kind), name)
    if isinstance(kind, CompositeTypeInfo):
        return _of_composite(kind, name, scope, new)
    column = f"column{next(new)}"
    scope[column] = partial(_makes_column, kind)
    return f"{column}({name})"


def _makes_column(kind: TypeInformation, value: object) -> bool:
    try:
        kind.column_to_arrow([value])
    except ColumnMismatchError:
        return False
    return True


def _of_basic(kind: str, name: str) -> str:
    bits = _BITS.get(kind)
    if bits is None:
        return f"{name}.__class__ is {_CLASSES[kind]}"
    fits = f"{-(2**bits)} <= {name} < {2**bits}"
    if bits > _QUICK_BITS:
        fits = f"({-(2**_QUICK_BITS)} < {name} < {2**_QUICK_BITS} or {fits})"
    return f"{name}.__class__ is int and {fits}"


def _of_composite(
    kind: CompositeTypeInfo, name: str, scope: dict[str, Any], new: Iterator[str]
) -> str:
    fields = kind.get_field_names()
    if isinstance(kind, DataclassTypeInfo):
        reads = [f"{name}.{field}" for field in fields]
        return _of_fields(kind, name, {kind.cls}, reads, scope, new)
    if isinstance(kind, NamedTupleTypeInfo):
        reads = [f"{name}[{index}]" for index in range(len(fields))]
        return _of_fields(kind, name, {kind.cls}, reads, scope, new)
    # Rows with these names or none, and what is taken for a row by its positions.
    rows: set[type] = set()
    if isinstance(kind, RowTypeInfo):
        rows = {Row, row_class(tuple(fields)), list}
    assert isinstance(kind, RowTypeInfo | TupleTypeInfo)  # noqa: S101 - there is no other
    reads = [f"{name}[{index}]" for index in range(len(fields))]
    text = _of_fields(kind, name, {tuple, *rows}, reads, scope, new)
    by_name = sorted(fields)
    if not rows or by_name == fields:
        return text
    # Rows that were made of names by earlier builds have them in order of the alphabet.
    reads = [f"{name}[{by_name.index(field)}]" for field in fields]
    other = _of_fields(kind, name, {row_class(tuple(by_name))}, reads, scope, new)
    return f"(({text}) or ({other}))"


def _of_fields(
    kind: CompositeTypeInfo,
    name: str,
    classes: set[type],
    reads: list[str],
    scope: dict[str, Any],
    new: Iterator[str],
) -> str:
    """Python that is true if ``name`` is of one of the classes and has such fields."""
    known = f"known{next(new)}"
    scope[known] = classes
    parts = [f"{name}.__class__ in {known}"]
    if not isinstance(kind, DataclassTypeInfo):
        parts.append(f"len({name}) == {len(reads)}")
    for read, field_type in zip(reads, kind.get_field_types(), strict=True):
        field = f"f{next(new)}"
        inner = _expression(field_type, field, scope, new)
        parts.append(f"(({field} := {read}) is None or ({inner}))")
    return " and ".join(parts)
