"""What a function is: signatures, null behaviour, reference, kernel, documentation.

What it is: ``FunctionDefinition``, and ``FunctionGroup``, with which a module of functions lists
its own::

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
runs.  ``tests/expressions/`` holds both against each other.

What it is not: how functions are found (``registry.py``), or how types are matched
(``signatures.py``).

Read next: ``expressions/functions/signatures.py``, ``expressions/functions/registry.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.expressions.context import EvaluationContext
    from millstream.expressions.functions.signatures import Signature
    from millstream.types.logical_types import LogicalType

__all__ = [
    "NOT_CONSTANT",
    "CallInfo",
    "FunctionDefinition",
    "FunctionGroup",
    "FunctionKind",
    "Kernel",
    "NullBehaviour",
    "Reference",
]


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
            (``expressions/special_forms.py``), and for aggregates.
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
        self,
        name: str,
        *,
        signatures: Sequence[Signature],
        documentation: str,
        **options: Any,
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
