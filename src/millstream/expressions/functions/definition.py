"""Function definitions: signatures, null behaviour, reference, kernel, documentation.

A module lists its functions in a ``FunctionGroup``::

    functions = FunctionGroup("arithmetic")

    @functions.scalar(
        "SIGN",
        signature("numeric", result=same_as(0)),
        kernel=_sign,
        examples=(("SIGN(-2.5)", "-1.0"),),
    )
    def sign(value: Any) -> object:
        \"\"\"The sign of a number: -1, 0 or 1.\"\"\"

The decorated function is the **reference**: exact, one row at a time, over values as the table in
``expressions/nodes.py`` says; its docstring is the documentation of the SQL function.  The
**kernel** is the same on Arrow columns, for speed; where it gives NotImplemented, the reference
runs.  ``tests/expressions/`` compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import pyarrow as pa

from millstream.types import logical_types as lt
from millstream.types.bitmaps import BitmapType
from millstream.types.type_derivation import common_type, supports_implicit_cast
from millstream.types.type_roots import TypeFamily, TypeRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import UnionType

    from millstream.expressions.context import EvaluationContext


STRING: Final = lt.VarCharType()
BYTES: Final = lt.VarBinaryType()
BOOLEAN: Final = lt.BooleanType()
INT: Final = lt.IntType()
BIGINT: Final = lt.BigIntType()
DOUBLE: Final = lt.DoubleType()

#: Gives the type from those of the arguments (after casts) and their constant values
#: (``NOT_CONSTANT`` where they are none); its nullability only counts with ``Nullability.RULE``.
ResultRule: TypeAlias = "Callable[[Sequence[lt.LogicalType], Sequence[object]], lt.LogicalType]"

#: From the types of the arguments to those that they are cast to.
Unifier: TypeAlias = "Callable[[Sequence[lt.LogicalType]], tuple[lt.LogicalType, ...] | None]"


class Nullability(Enum):
    """When the result of a function is nullable."""

    ARGUMENTS = "if an argument is"
    ALWAYS = "always"
    NEVER = "never"
    RULE = "as the rule says"


@dataclass(frozen=True)
class Argument:
    """One argument: its name in the documentation, and what it accepts.

    Args:
        name: its name.
        accepts: gives the type that an argument is cast to, the same if it fits as it is, None if
            it does not fit.
        text: what it accepts, for errors: ``NUMERIC``.
    """

    name: str
    accepts: Callable[[lt.LogicalType], lt.LogicalType | None]
    text: str


@dataclass(frozen=True)
class Signature:
    """What a function takes and gives.  Made by ``signature``."""

    arguments: tuple[Argument, ...]
    result: ResultRule
    repeats: bool = False
    optional: int = 0
    common: tuple[int, ...] | None = None
    unify: Unifier | None = None
    nullability: Nullability = Nullability.ARGUMENTS

    def match(self, types: Sequence[lt.LogicalType]) -> tuple[lt.LogicalType, ...] | None:
        """The types that arguments of these types are cast to; None if they do not fit."""
        declared = self._declared(len(types))
        if declared is None:
            return None
        wanted: list[lt.LogicalType] = []
        for argument, type_ in zip(declared, types, strict=True):
            accepted = argument.accepts(type_)
            if accepted is None:
                return None
            wanted.append(accepted)
        if self.unify is not None:
            return self.unify(wanted)
        if self.common is not None:
            return self._unified(wanted)
        return tuple(wanted)

    def _declared(self, count: int) -> Sequence[Argument] | None:
        most = len(self.arguments)
        if count < most - self.optional:
            return None
        if count <= most:
            return self.arguments[:count]
        if not self.repeats:
            return None
        return (*self.arguments, *[self.arguments[-1]] * (count - most))

    def _unified(self, types: list[lt.LogicalType]) -> tuple[lt.LogicalType, ...] | None:
        chosen = range(len(types)) if not self.common else self.common
        positions = [i for i in chosen if i < len(types)]
        common = common_type([types[i] for i in positions])
        if common is None:
            return None
        for i in positions:
            types[i] = common.with_nullability(types[i].is_nullable)
        return tuple(types)

    def result_type(
        self, types: Sequence[lt.LogicalType], constants: Sequence[object]
    ) -> lt.LogicalType:
        """The type of the result for arguments of these types."""
        derived = self.result(types, constants)
        if self.nullability is Nullability.RULE:
            return derived
        if self.nullability is Nullability.ARGUMENTS:
            return derived.with_nullability(any(type_.is_nullable for type_ in types))
        return derived.with_nullability(self.nullability is Nullability.ALWAYS)

    def lacks_common_type(self, types: Sequence[lt.LogicalType]) -> bool:
        """Return whether it takes each of these types, and not all of them together."""
        declared = self._declared(len(types))
        if declared is None or (self.unify is None and self.common is None):
            return False
        accepted = [
            argument.accepts(type_) for argument, type_ in zip(declared, types, strict=True)
        ]
        return None not in accepted and self.match(types) is None

    def text(self, name: str) -> str:
        """``NAME(<NUMERIC>, <INT>)``, for errors."""
        parts = [f"{argument.name} <{argument.text}>" for argument in self.arguments]
        first_optional = len(parts) - self.optional
        parts = [part if i < first_optional else f"[{part}]" for i, part in enumerate(parts)]
        if self.repeats:
            parts.append("...")
        return f"{name}({', '.join(parts)})"


def signature(
    *arguments: Argument | str,
    result: lt.LogicalType | ResultRule,
    repeats: bool = False,
    optional: int = 0,
    common: bool | tuple[int, ...] = False,
    unify: Unifier | None = None,
    nullability: Nullability = Nullability.ARGUMENTS,
    kind: type[Signature] = Signature,
) -> Signature:
    """Describe one way to call a function.

    Args:
        arguments: in order; a text describes several: ``"string, integer start[, integer end]"``
            has a word of ``_WORDS`` and maybe a name for each, optional ones in brackets, and
            ``...`` behind the last if that may be given any number of times.
        result: the type, or a rule that gives it.
        repeats: whether the last argument may be given any number of times (at least once, unless
            it is optional).
        optional: how many of the last arguments may be left out.
        common: whether arguments are cast to their common type: all, or those at these positions.
        unify: a rule of its own instead: the types that arguments are cast to, None if they do not
            go together.
        nullability: when the result is nullable.
        kind: the class, if it matches types in a way of its own.

    Returns:
        The signature.
    """
    found: list[Argument] = []
    for argument in arguments:
        if isinstance(argument, Argument):
            found.append(argument)
            continue
        needed, _, may_follow = argument.removesuffix("]").partition("[")
        listed = [text for text in (needed + may_follow).split(", ") if text]
        repeats = repeats or listed[-1].endswith("...")
        optional += len([text for text in may_follow.split(", ") if text])
        found += [_argument(text.removesuffix("...")) for text in listed]
    rule = _constantly(result) if isinstance(result, lt.LogicalType) else result
    positions = common if isinstance(common, tuple) else (() if common else None)
    return kind(tuple(found), rule, repeats, optional, positions, unify, nullability)


def _constantly(type_: lt.LogicalType) -> ResultRule:
    return lambda _types, _constants: type_


def on_columns(function: Callable[..., Any]) -> Kernel:
    """The kernel that is a function of columns alone."""
    return lambda _info, *columns: function(*columns)


def on_column(function: Callable[..., Any], *constants: type | UnionType) -> Kernel:
    """The kernel that is a function of a column and of constants of these types."""

    def kernel(info: CallInfo, column: Any, *_: Any) -> Any:
        given = info.constants[1:]
        if not isinstance(column, pa.Array) or not all(map(isinstance, given, constants)):
            return NotImplemented
        return function(column, *given)

    return kernel


def of_first(make: Callable[[lt.LogicalType], lt.LogicalType]) -> ResultRule:
    """The result has a type that is made of that of the first argument."""
    return lambda types, _: make(types[0])


def same_as(position: int) -> ResultRule:
    """The result has the type of the argument at that position."""
    return lambda types, _: types[position]


def common_of(first: int = 0) -> ResultRule:
    """The result has the common type of the arguments from ``first`` on."""

    def rule(types: Sequence[lt.LogicalType], _: Sequence[object]) -> lt.LogicalType:
        common = common_type(list(types[first:]))
        assert common is not None, "the signature has found a common type"  # noqa: S101
        return common

    return rule


# -- arguments --------------------------------------------------------------------------------


def any_type(name: str = "value") -> Argument:
    """Anything; an untyped NULL stays one."""
    return Argument(name, lambda type_: type_, "ANY")


def _family(wanted: TypeFamily, default: lt.LogicalType) -> Callable[[str], Argument]:
    """A type of that family; others are cast to ``default`` where Flink casts implicitly."""

    def accepts(type_: lt.LogicalType) -> lt.LogicalType | None:
        return type_ if type_.is_a(wanted) else _cast_to(default, type_)

    return lambda name: Argument(name, accepts, wanted.name)


def _cast_to(target: lt.LogicalType, type_: lt.LogicalType) -> lt.LogicalType | None:
    """The target with the nullability of a type that is implicitly cast to it, else None."""
    wanted = target.with_nullability(type_.is_nullable)
    return wanted if supports_implicit_cast(type_, wanted) else None


def exactly(name: str, wanted: lt.LogicalType) -> Argument:
    """That type, or one that is implicitly cast to it."""
    return Argument(name, lambda type_: _cast_to(wanted, type_), wanted.as_summary_string())


def root(name: str, *roots: TypeRoot, default: lt.LogicalType | None = None) -> Argument:
    """A type of one of these roots, whatever its length or precision.

    Args:
        name: the name of the argument.
        roots: what it may be.
        default: what an untyped NULL becomes; None: NULL does not fit.
    """

    def accepts(type_: lt.LogicalType) -> lt.LogicalType | None:
        if type_.root in roots or default is None:
            return type_ if type_.root in roots else None
        return _cast_to(default, type_)

    return Argument(name, accepts, " | ".join(item.name for item in roots))


def _root(*roots: TypeRoot, default: lt.LogicalType | None = None) -> Callable[[str], Argument]:
    return lambda name: root(name, *roots, default=default)


def _exactly(wanted: lt.LogicalType) -> Callable[[str], Argument]:
    return lambda name: exactly(name, wanted)


_INCOMPARABLE: Final = frozenset(
    {TypeRoot.BITMAP, TypeRoot.MAP, TypeRoot.MULTISET, TypeRoot.SYMBOL, TypeRoot.VARIANT}
)


def _comparable(name: str) -> Argument:
    """Return what can be put in an order."""
    return Argument(name, lambda t: None if t.root in _INCOMPARABLE else t, "COMPARABLE")


#: The words for arguments in the text of a signature: the name unless given, and what accepts it.
_WORDS: Final[dict[str, tuple[str, Callable[[str], Argument]]]] = {
    "any": ("value", any_type),
    "comparable": ("value", _comparable),
    "numeric": ("numeric", _family(TypeFamily.NUMERIC, DOUBLE)),
    "exact": ("numeric", _family(TypeFamily.EXACT_NUMERIC, lt.DecimalType(38, 18))),
    "integer": ("integer", _family(TypeFamily.INTEGER_NUMERIC, INT)),
    "string": ("string", _family(TypeFamily.CHARACTER_STRING, STRING)),
    "bytes": ("bytes", _family(TypeFamily.BINARY_STRING, BYTES)),
    "boolean": ("boolean", _exactly(BOOLEAN)),
    "timestamp": ("timestamp", _family(TypeFamily.TIMESTAMP, lt.TimestampType(3))),
    "time": (
        "time",
        _root(
            TypeRoot.DATE,
            TypeRoot.TIME_WITHOUT_TIME_ZONE,
            TypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE,
            TypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE,
        ),
    ),
    "interval": ("interval", _root(TypeRoot.INTERVAL_YEAR_MONTH, TypeRoot.INTERVAL_DAY_TIME)),
    "symbol": ("unit", _root(TypeRoot.SYMBOL)),
    "array": ("array", _root(TypeRoot.ARRAY, default=lt.ArrayType(STRING))),
    "map": ("map", _root(TypeRoot.MAP, default=lt.MapType(STRING, STRING))),
    "row": ("row", _root(TypeRoot.ROW)),
    "variant": ("variant", _root(TypeRoot.VARIANT)),
    "INT": ("integer", _exactly(INT)),
    "BIGINT": ("integer", _exactly(BIGINT)),
    "DOUBLE": ("numeric", _exactly(DOUBLE)),
    "BITMAP": ("bitmap", _exactly(BitmapType())),
}


def _argument(text: str) -> Argument:
    """One argument of the text of a signature: ``integer length``, or ``integer``."""
    word, _, name = text.partition(" ")
    default, make = _WORDS[word]
    return make(name or default)


class _NotConstant:
    """Stands for the value of an argument that is a column."""

    def __repr__(self) -> str:
        return "NOT_CONSTANT"


NOT_CONSTANT: Final = _NotConstant()


class FunctionKind(Enum):
    """The kind of input of a function: rows, groups, or whole tables."""

    SCALAR = "scalar"
    AGGREGATE = "aggregate"
    TABLE = "table"
    #: ROW_NUMBER, RANK ...: only with OVER.
    OVER = "over"


class NullBehaviour(Enum):
    """The treatment of NULL arguments by a function."""

    #: The result is NULL; the reference is not called for that row.
    STRICT = "strict"
    #: The function is called and sees None.
    CALLED = "called"


@dataclass(slots=True)
class CallInfo:
    """The facts about a call that a function's code may use.

    Args:
        argument_types: the types of the arguments, after implicit casts.
        result_type: the type of the result.
        constants: the value of each argument that is a constant, else NOT_CONSTANT.
        context: time zone, clock, parameters; set for each batch.
        rows: how many rows the batch has; set for each batch.
        state: what the function likes to keep from batch to batch, such as a compiled pattern or
            a random generator; lost with the process.
    """

    argument_types: tuple[lt.LogicalType, ...]
    result_type: lt.LogicalType
    constants: tuple[object, ...]
    context: EvaluationContext
    rows: int = 0
    state: dict[str, Any] = field(default_factory=dict)


#: Called with the values of one row, with the CallInfo before them if ``contextual`` is set.
Reference: TypeAlias = "Callable[..., object]"
#: Called with the CallInfo and one ``pa.Array`` per argument, or ``pa.Scalar`` if it is constant
#: (at least one is an array, unless there are no arguments); gives an array, a scalar that stands
#: for all rows, or NotImplemented for types that it does not do.
Kernel: TypeAlias = "Callable[..., Any]"
_R = TypeVar("_R", bound="Callable[..., object]")


@dataclass(frozen=True)
class FunctionDefinition:
    """A function of SQL.

    Args:
        name: its name in upper case, ``+`` and the like for operators.
        group: the group of Flink's reference that it stands in.
        kind: scalar, aggregate, table, over.
        aliases: other names.
        signatures: what arguments it takes; the first that fits is taken.
        nulls: what it does where an argument is NULL.
        reference: the exact scalar; None for special forms, whose evaluation selects rows
            (``expressions/evaluator.py``), and for aggregates.
        kernel: the same on columns, if there is one.
        contextual: whether the reference wants the CallInfo as its first argument.
        deterministic: whether equal arguments give equal results.  What is not is never folded,
            moved or evaluated fewer times than written.
        dynamic: whether it is constant within one batch but not for ever (CURRENT_DATE).
        reads_leniently: whether text that is implicitly cast to a date or time and is none becomes
            NULL, instead of failing.
        can_fail: whether it raises for some arguments: then it is only evaluated on the rows
            that a CASE or AND selects.
        costly: whether it is worth finding the distinct values of a column first.
        documentation: a paragraph.
        syntax: how it is written, ``POSITION(string1 IN string2)``; None: as a call.
        examples: expressions with the text of their results (as CAST to STRING; ``NULL``).
    """

    name: str
    group: str
    kind: FunctionKind = FunctionKind.SCALAR
    aliases: tuple[str, ...] = ()
    signatures: tuple[Signature, ...] = ()
    nulls: NullBehaviour = NullBehaviour.STRICT
    reference: Reference | None = None
    kernel: Kernel | None = None
    contextual: bool = False
    deterministic: bool = True
    dynamic: bool = False
    reads_leniently: bool = False
    can_fail: bool = True
    costly: bool = False
    documentation: str = ""
    syntax: str | None = None
    examples: tuple[tuple[str, str], ...] = ()

    @property
    def is_foldable(self) -> bool:
        """Whether a call with constant arguments is a constant."""
        return self.deterministic and not self.dynamic


class FunctionGroup:
    """The functions of one module, in the order in which they are documented."""

    def __init__(self, name: str) -> None:
        """Take the name of the group in Flink's reference: ``comparison``, ``logical``, ..."""
        self.name = name
        self.definitions: list[FunctionDefinition] = []

    def add(self, definition: FunctionDefinition) -> FunctionDefinition:
        """List a function.

        Raises:
            ValueError: there is one of that name in the group already.
        """
        if any(other.name == definition.name for other in self.definitions):
            message = f"the group {self.name} has a function {definition.name} already"
            raise ValueError(message)
        self.definitions.append(definition)
        return definition

    def scalar(
        self,
        name: str,
        *signatures: Signature,
        aliases: Sequence[str] = (),
        examples: Sequence[tuple[str, str]] = (),
        documentation: str | None = None,
        **options: Any,
    ) -> Callable[[_R], _R]:
        """List the decorated function, which stays as it is, as the reference of a scalar function.

        The documentation is its docstring unless given; options are further fields of
        ``FunctionDefinition``.
        """

        def decorate(reference: _R) -> _R:
            text = documentation if documentation is not None else cleandoc(reference.__doc__ or "")
            self.add(
                FunctionDefinition(
                    name,
                    self.name,
                    aliases=tuple(aliases),
                    signatures=signatures,
                    reference=reference,
                    documentation=text,
                    examples=tuple(examples),
                    **options,
                )
            )
            return reference

        return decorate

    def total(
        self,
        name: str,
        documentation: str,
        reference: Reference,
        *signatures: Signature,
        **options: Any,
    ) -> None:
        """List a short scalar function that never fails."""
        options = {"can_fail": False, **options}
        self.scalar(name, *signatures, documentation=documentation, **options)(reference)

    def special_form(
        self, name: str, *signatures: Signature, documentation: str, **options: Any
    ) -> None:
        """List a special form: the evaluator knows what it does and on which rows."""
        self.add(
            FunctionDefinition(
                name,
                self.name,
                signatures=signatures,
                nulls=NullBehaviour.CALLED,
                documentation=documentation,
                **options,
            )
        )
