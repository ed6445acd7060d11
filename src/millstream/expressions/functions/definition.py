"""Function definitions: signatures, null behaviour, reference, kernel, documentation.

A module lists its functions in a ``FunctionGroup``::

    functions = FunctionGroup("arithmetic")

    @functions.scalar(
        "SIGN",
        signatures=(signature(numeric(), result=same_as(0)),),
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

from millstream.types.logical_types import (
    ArrayType,
    BigIntType,
    BooleanType,
    DecimalType,
    DoubleType,
    IntType,
    LogicalType,
    MapType,
    TimestampType,
    VarBinaryType,
    VarCharType,
)
from millstream.types.type_derivation import common_type, supports_implicit_cast
from millstream.types.type_roots import TypeFamily, TypeRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.expressions.context import EvaluationContext


STRING: Final = VarCharType()
BYTES: Final = VarBinaryType()
BOOLEAN: Final = BooleanType()
INT: Final = IntType()
BIGINT: Final = BigIntType()
DOUBLE: Final = DoubleType()

#: Gives the type from those of the arguments (after casts) and their constant values
#: (``NOT_CONSTANT`` where they are none); its nullability only counts with ``Nullability.RULE``.
ResultRule: TypeAlias = "Callable[[Sequence[LogicalType], Sequence[object]], LogicalType]"

#: From the types of the arguments to those that they are cast to.
Unifier: TypeAlias = "Callable[[Sequence[LogicalType]], tuple[LogicalType, ...] | None]"


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
    accepts: Callable[[LogicalType], LogicalType | None]
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

    def match(self, types: Sequence[LogicalType]) -> tuple[LogicalType, ...] | None:
        """The types that arguments of these types are cast to; None if they do not fit."""
        declared = self._declared(len(types))
        if declared is None:
            return None
        wanted: list[LogicalType] = []
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

    def _unified(self, types: list[LogicalType]) -> tuple[LogicalType, ...] | None:
        chosen = range(len(types)) if not self.common else self.common
        positions = [i for i in chosen if i < len(types)]
        common = common_type([types[i] for i in positions])
        if common is None:
            return None
        for i in positions:
            types[i] = common.with_nullability(types[i].is_nullable)
        return tuple(types)

    def result_type(self, types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
        """The type of the result for arguments of these types."""
        derived = self.result(types, constants)
        if self.nullability is Nullability.RULE:
            return derived
        if self.nullability is Nullability.ARGUMENTS:
            return derived.with_nullability(any(type_.is_nullable for type_ in types))
        return derived.with_nullability(self.nullability is Nullability.ALWAYS)

    def lacks_common_type(self, types: Sequence[LogicalType]) -> bool:
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
    *arguments: Argument,
    result: LogicalType | ResultRule,
    repeats: bool = False,
    optional: int = 0,
    common: bool | tuple[int, ...] = False,
    unify: Unifier | None = None,
    nullability: Nullability = Nullability.ARGUMENTS,
) -> Signature:
    """Describe one way to call a function.

    Args:
        arguments: in order.
        result: the type, or a rule that gives it.
        repeats: whether the last argument may be given any number of times (at least once, unless
            it is optional).
        optional: how many of the last arguments may be left out.
        common: whether arguments are cast to their common type: all, or those at these positions.
        unify: a rule of its own instead: the types that arguments are cast to, None if they do not
            go together.
        nullability: when the result is nullable.

    Returns:
        The signature.
    """
    rule = _constantly(result) if isinstance(result, LogicalType) else result
    positions = common if isinstance(common, tuple) else (() if common else None)
    return Signature(arguments, rule, repeats, optional, positions, unify, nullability)


def _constantly(type_: LogicalType) -> ResultRule:
    def rule(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
        del types, constants
        return type_

    return rule


def same_as(position: int) -> ResultRule:
    """The result has the type of the argument at that position."""

    def rule(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
        del constants
        return types[position]

    return rule


def common_of(first: int = 0) -> ResultRule:
    """The result has the common type of the arguments from ``first`` on."""

    def rule(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
        del constants
        common = common_type(list(types[first:]))
        assert common is not None, "the signature has found a common type"  # noqa: S101
        return common

    return rule


# -- arguments --------------------------------------------------------------------------------


def any_type(name: str = "value") -> Argument:
    """Anything; an untyped NULL stays one."""
    return Argument(name, lambda type_: type_, "ANY")


ANY: Final = any_type()


def family(name: str, wanted: TypeFamily, default: LogicalType) -> Argument:
    """A type of that family; others are cast to ``default`` where Flink casts implicitly."""

    def accepts(type_: LogicalType) -> LogicalType | None:
        if type_.is_a(wanted):
            return type_
        fallback = default.with_nullability(type_.is_nullable)
        return fallback if supports_implicit_cast(type_, fallback) else None

    return Argument(name, accepts, wanted.name)


def exactly(name: str, wanted: LogicalType) -> Argument:
    """That type, or one that is implicitly cast to it."""

    def accepts(type_: LogicalType) -> LogicalType | None:
        target = wanted.with_nullability(type_.is_nullable)
        return target if supports_implicit_cast(type_, target) else None

    return Argument(name, accepts, wanted.as_summary_string())


def root(name: str, *roots: TypeRoot, default: LogicalType | None = None) -> Argument:
    """A type of one of these roots, whatever its length or precision.

    Args:
        name: the name of the argument.
        roots: what it may be.
        default: what an untyped NULL becomes; None: NULL does not fit.
    """

    def accepts(type_: LogicalType) -> LogicalType | None:
        if type_.root in roots:
            return type_
        if default is not None:
            fallback = default.with_nullability(type_.is_nullable)
            if supports_implicit_cast(type_, fallback):
                return fallback
        return None

    return Argument(name, accepts, " | ".join(item.name for item in roots))


def numeric(name: str = "numeric") -> Argument:
    """A number."""
    return family(name, TypeFamily.NUMERIC, DoubleType())


def exact_numeric(name: str = "numeric") -> Argument:
    """An integer or a decimal."""
    return family(name, TypeFamily.EXACT_NUMERIC, DecimalType(38, 18))


def integer(name: str = "integer") -> Argument:
    """An integer of any width."""
    return family(name, TypeFamily.INTEGER_NUMERIC, IntType())


def character(name: str = "string") -> Argument:
    """Text."""
    return family(name, TypeFamily.CHARACTER_STRING, STRING)


def binary(name: str = "bytes") -> Argument:
    """Bytes."""
    return family(name, TypeFamily.BINARY_STRING, BYTES)


def boolean(name: str = "boolean") -> Argument:
    """A truth value."""
    return exactly(name, BOOLEAN)


def timestamp(name: str = "timestamp") -> Argument:
    """A TIMESTAMP or TIMESTAMP_LTZ."""
    return family(name, TypeFamily.TIMESTAMP, TimestampType(3))


def datetime(name: str = "time") -> Argument:
    """A date, a time or a timestamp."""
    return family(name, TypeFamily.DATETIME, TimestampType(3))


def interval(name: str = "interval") -> Argument:
    """An interval of either kind."""
    return root(name, TypeRoot.INTERVAL_YEAR_MONTH, TypeRoot.INTERVAL_DAY_TIME)


def symbol(name: str = "unit") -> Argument:
    """A word of the language, such as DAY."""
    return root(name, TypeRoot.SYMBOL)


def array(name: str = "array") -> Argument:
    """An array of anything."""
    return root(name, TypeRoot.ARRAY, default=ArrayType(STRING))


def map_of_any(name: str = "map") -> Argument:
    """A map of anything."""
    return root(name, TypeRoot.MAP, default=MapType(STRING, STRING))


def row(name: str = "row") -> Argument:
    """A row."""
    return root(name, TypeRoot.ROW)


_INCOMPARABLE: Final = frozenset(
    {TypeRoot.BITMAP, TypeRoot.MAP, TypeRoot.MULTISET, TypeRoot.SYMBOL, TypeRoot.VARIANT}
)


def comparable(name: str = "value") -> Argument:
    """What can be put in an order."""

    def accepts(type_: LogicalType) -> LogicalType | None:
        return None if type_.root in _INCOMPARABLE else type_

    return Argument(name, accepts, "COMPARABLE")


class _NotConstant:
    """Stands for the value of an argument that is a column."""

    def __repr__(self) -> str:
        return "NOT_CONSTANT"


NOT_CONSTANT: Final = _NotConstant()


class FunctionKind(Enum):
    """What a function is applied to."""

    SCALAR = "scalar"
    AGGREGATE = "aggregate"
    TABLE = "table"
    #: ROW_NUMBER, RANK ...: only with OVER.
    OVER = "over"


class NullBehaviour(Enum):
    """What a function does where an argument is NULL."""

    #: The result is NULL; the reference is not called for that row.
    STRICT = "strict"
    #: The function is called and sees None.
    CALLED = "called"


@dataclass(slots=True)
class CallInfo:
    """What a function's code may know about the call.

    Args:
        argument_types: the types of the arguments, after implicit casts.
        result_type: the type of the result.
        constants: the value of each argument that is a constant, else NOT_CONSTANT.
        context: time zone, clock, parameters; set for each batch.
        rows: how many rows the batch has; set for each batch.
        state: what the function likes to keep from batch to batch, such as a compiled pattern or
            a random generator; lost with the process.
    """

    argument_types: tuple[LogicalType, ...]
    result_type: LogicalType
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
        """Take the name of the group.

        Args:
            name: as in Flink's reference: ``comparison``, ``logical``, ``arithmetic``, ...
        """
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
        *,
        signatures: Sequence[Signature],
        aliases: Sequence[str] = (),
        examples: Sequence[tuple[str, str]] = (),
        documentation: str | None = None,
        **options: Any,
    ) -> Callable[[_R], _R]:
        """List the decorated function as the reference of a scalar function.

        Args:
            name: the name in SQL, in upper case.
            signatures: what it takes.
            aliases: other names.
            examples: expressions with the text of their results.
            documentation: a paragraph; None: the docstring of the decorated function.
            options: further fields of ``FunctionDefinition``.

        Returns:
            A decorator that gives the function back as it is.
        """

        def decorate(reference: _R) -> _R:
            text = documentation if documentation is not None else cleandoc(reference.__doc__ or "")
            self.add(
                FunctionDefinition(
                    name,
                    self.name,
                    aliases=tuple(aliases),
                    signatures=tuple(signatures),
                    reference=reference,
                    documentation=text,
                    examples=tuple(examples),
                    **options,
                )
            )
            return reference

        return decorate

    def special_form(
        self, name: str, *, signatures: Sequence[Signature], documentation: str, **options: Any
    ) -> None:
        """List a special form: the evaluator knows what it does and on which rows.

        Args:
            name: the name in SQL, in upper case.
            signatures: what it takes.
            documentation: a paragraph.
            options: further fields of ``FunctionDefinition``.
        """
        self.add(
            FunctionDefinition(
                name,
                self.name,
                signatures=tuple(signatures),
                nulls=NullBehaviour.CALLED,
                documentation=documentation,
                **options,
            )
        )
