"""Windows of the Table API: ``Tumble``, ``Slide``, ``Session`` for groups, and ``Over``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ProgramError, UnsupportedSqlError, ValidationError
from millstream.sql.binder import calls
from millstream.sql.binder.expressions import is_time_attribute
from millstream.sql.parser import nodes
from millstream.sql.planner.logical import unique_names
from millstream.table.building import (
    OverBound,
    RowInterval,
    WindowProperty,
    aggregates_of,
    expression_of,
    rewritten,
    shown_name,
)
from millstream.table.expression_nodes import as_node
from millstream.types.logical_types import TimestampKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.binder.scope import BindingContext
    from millstream.table.expression import Expression
    from millstream.types.logical_types import RowType

__all__ = [
    "GroupWindow",
    "Over",
    "OverWindow",
    "OverWindowPartitioned",
    "OverWindowPartitionedOrdered",
    "OverWindowPartitionedOrderedPreceding",
    "RowCountGroups",
    "Session",
    "SessionWithGap",
    "SessionWithGapOnTime",
    "Slide",
    "SlideWithSize",
    "SlideWithSizeAndSlide",
    "SlideWithSizeAndSlideOnTime",
    "Tumble",
    "TumbleWithSize",
    "TumbleWithSizeOnTime",
    "WindowGroups",
    "shown_property",
]


@dataclass(frozen=True)
class GroupWindow:
    """A window that groups rows: of which kind, how long, on which time, and its name."""

    #: The window table function of SQL.
    function: str
    #: Its lengths, in their order: of time, or of numbers of rows.
    lengths: tuple[Any, ...]
    #: The time attribute.
    time: str
    name: str

    @property
    def counts_rows(self) -> bool:
        """Return whether its lengths are numbers of rows."""
        return isinstance(self.lengths[0], RowInterval)


def _length(given: Any, what: str) -> Any:
    """A length of time, or a number of rows.

    Raises:
        ProgramError: it is neither.
    """
    node = as_node(given)
    if not isinstance(node, RowInterval):
        return _duration(given, what)
    if node.rows < 1:
        message = f"{what} is at least one row, not {node.rows}"
        raise ProgramError(message)
    return node


def _duration(given: Any, what: str) -> Any:
    node = as_node(given)
    if not isinstance(node, nodes.IntervalLiteral) or node.qualifier.is_year_month:
        message = f"{what} is a length of time: lit(10).minutes"
        raise ProgramError(message)
    return node


def _column(given: Any, what: str) -> str:
    node = nodes.identifier(given) if isinstance(given, str) else as_node(given)
    if not isinstance(node, nodes.Identifier):
        message = f"{what} takes a column: col('rowtime')"
        raise ProgramError(message)
    return node.last


@dataclass(frozen=True)
class _OnTime:
    function: str
    lengths: tuple[Any, ...]
    time: str

    def alias(self, alias: str) -> GroupWindow:
        """Give the window the name by which ``group_by`` and ``select`` know it.

        Args:
            alias: the name.
        """
        return GroupWindow(self.function, self.lengths, self.time, alias)


class TumbleWithSizeOnTime(_OnTime):
    """A tumbling window without a name."""


class SlideWithSizeAndSlideOnTime(_OnTime):
    """A sliding window without a name."""


class SessionWithGapOnTime(_OnTime):
    """A session window without a name."""


class _WithoutTime:
    """A window whose time is not known yet."""

    def __init__(self, *lengths: Any) -> None:
        """Made by the step before."""
        self._lengths = lengths


class TumbleWithSize(_WithoutTime):
    """A tumbling window without time."""

    def on(self, time_field: Expression | str) -> TumbleWithSizeOnTime:
        """Take the time of rows from a time attribute, a column."""
        return TumbleWithSizeOnTime("TUMBLE", self._lengths, _column(time_field, "on()"))


class Tumble:
    """Windows that follow each other."""

    @classmethod
    def over(cls, size: Expression) -> TumbleWithSize:
        """Begin with the size.

        Args:
            size: a length of time: ``lit(10).minutes``; or a number of rows on processing time:
                ``row_interval(10)``.

        Raises:
            ProgramError: it is none.
        """
        return TumbleWithSize(_length(size, "the size of a window"))


class SlideWithSizeAndSlide(_WithoutTime):
    """A sliding window without time."""

    def on(self, time_field: Expression | str) -> SlideWithSizeAndSlideOnTime:
        """Take the time of rows from a time attribute, a column."""
        return SlideWithSizeAndSlideOnTime("HOP", self._lengths, _column(time_field, "on()"))


class SlideWithSize:
    """A sliding window without its slide."""

    def __init__(self, size: Any) -> None:
        """Made by ``Slide.over``."""
        self._size = size

    def every(self, slide: Expression) -> SlideWithSizeAndSlide:
        """Set how often a window begins.

        Args:
            slide: a length of time, of which the size is a multiple; or a number of rows, if the
                size is one.

        Raises:
            ProgramError: it is of the other kind than the size.
        """
        every = _length(slide, "the slide of a window")
        if isinstance(every, RowInterval) != isinstance(self._size, RowInterval):
            message = "A sliding window expects the same type of size and slide: rows, or time."
            raise ProgramError(message)
        return SlideWithSizeAndSlide(every, self._size)


class Slide:
    """Windows that overlap."""

    @classmethod
    def over(cls, size: Expression) -> SlideWithSize:
        """Begin with the size, as ``Tumble.over`` does."""
        return SlideWithSize(_length(size, "the size of a window"))


class SessionWithGap(_WithoutTime):
    """A session window without time."""

    def on(self, time_field: Expression | str) -> SessionWithGapOnTime:
        """Take the time of rows from a time attribute, a column."""
        return SessionWithGapOnTime("SESSION", self._lengths, _column(time_field, "on()"))


class Session:
    """Windows that end when a key is silent."""

    @classmethod
    def with_gap(cls, gap: Expression) -> SessionWithGap:
        """Begin with the gap.

        Args:
            gap: how long a key is silent between two windows.

        Raises:
            ProgramError: it is no length of time.
        """
        if isinstance(as_node(gap), RowInterval):
            message = (
                "A session window expects a gap of time, such as lit(10).minutes, not of rows."
            )
            raise ProgramError(message)
        return SessionWithGap(_duration(gap, "the gap of a window"))


# -- OVER ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OverWindow:
    """A window over the rows around each row, with its name."""

    name: str
    specification: nodes.WindowSpecification

    def check_order(self, row: RowType) -> None:
        """Refuse an order that streams do not have.

        Args:
            row: of the table.

        Raises:
            ValidationError: rows are ordered by a column that is no time attribute.
        """
        for item in self.specification.order_by:
            node = item.expression
            position = row.index_of(node.last) if isinstance(node, nodes.Identifier) else -1
            kind = row.fields[position].type if position >= 0 else None
            if kind is not None and not is_time_attribute(kind):
                message = (
                    "Second argument in OVER window must be a TIME ATTRIBUTE, but is: "
                    f"{kind.as_summary_string()}. order_by() takes a column with a watermark, or "
                    "one of PROCTIME()."
                )
                raise ValidationError(message)


@dataclass(frozen=True)
class _Ordered:
    partition: tuple[Any, ...]
    order: Any

    def window(self, name: str, preceding: Any, following: Any) -> OverWindow:
        """Return the window between two bounds."""
        frame = _frame(preceding, following)
        return OverWindow(
            name,
            nodes.WindowSpecification(
                partition_by=self.partition, order_by=(self.order,), frame=frame
            ),
        )


_UNBOUNDED: Final = OverBound("UNBOUNDED", "RANGE")


def _frame(preceding: Any, following: Any) -> nodes.WindowFrame:
    unit, offset = "RANGE", None
    if isinstance(preceding, RowInterval):
        unit, offset = "ROWS", as_node(preceding.rows)
    elif isinstance(preceding, nodes.IntervalLiteral):
        offset = preceding
    elif isinstance(preceding, OverBound):
        unit = preceding.unit
    else:
        message = (
            "preceding() takes UNBOUNDED_ROW, UNBOUNDED_RANGE, CURRENT_ROW, CURRENT_RANGE, "
            "row_interval(n) or a length of time"
        )
        raise ProgramError(message)
    is_current = isinstance(preceding, OverBound) and preceding.kind == "CURRENT"
    current = nodes.FrameBound("CURRENT ROW")
    start = current if is_current else nodes.FrameBound("PRECEDING", offset)
    end = current if following is None else _following(following, unit)
    return nodes.WindowFrame(unit, start, end)


def _following(following: Any, unit: str) -> nodes.FrameBound:
    """Where a frame ends; only in batch mode behind the row."""
    if isinstance(following, RowInterval) and unit == "ROWS":
        return nodes.FrameBound("FOLLOWING", as_node(following.rows))
    if isinstance(following, nodes.IntervalLiteral) and unit == "RANGE":
        return nodes.FrameBound("FOLLOWING", following)
    if isinstance(following, OverBound) and following.unit == unit:
        is_current = following.kind == "CURRENT"
        return nodes.FrameBound("CURRENT ROW" if is_current else "FOLLOWING")
    wanted = "UNBOUNDED_ROW, row_interval(n)" if unit == "ROWS" else "UNBOUNDED_RANGE, an interval"
    current = "CURRENT_ROW" if unit == "ROWS" else "CURRENT_RANGE"
    message = f"following() after this preceding() takes {current}, {wanted}"
    raise ProgramError(message)


class OverWindowPartitionedOrderedPreceding:
    """A window that begins somewhere before the row, without a name."""

    def __init__(self, ordered: _Ordered, preceding: Any, following: Any = None) -> None:
        """Made by ``preceding``."""
        self._ordered = ordered
        self._preceding = preceding
        self._following = following

    def alias(self, alias: str) -> OverWindow:
        """Give the window the name by which ``over`` knows it.

        Args:
            alias: the name.
        """
        return self._ordered.window(alias, self._preceding, self._following)

    def following(self, following: Expression) -> OverWindowPartitionedOrderedPreceding:
        """Set where the window ends; in streaming mode at the row.

        Args:
            following: ``CURRENT_ROW``, ``row_interval(2)``, ``UNBOUNDED_RANGE`` and others.
        """
        return OverWindowPartitionedOrderedPreceding(
            self._ordered, self._preceding, as_node(following)
        )


class OverWindowPartitionedOrdered(_Ordered):
    """A window in an order, without a name."""

    def alias(self, alias: str) -> OverWindow:
        """Give the window the name by which ``over`` knows it; it begins with the first row.

        Args:
            alias: the name.
        """
        return self.window(alias, _UNBOUNDED, None)

    def preceding(self, preceding: Expression) -> OverWindowPartitionedOrderedPreceding:
        """Set where the window begins.

        Args:
            preceding: ``row_interval(2)``, ``lit(10).minutes``, ``UNBOUNDED_ROW`` and others.
        """
        return OverWindowPartitionedOrderedPreceding(self, as_node(preceding))


class OverWindowPartitioned:
    """A window of rows of one key, without order."""

    def __init__(self, partition: tuple[Any, ...]) -> None:
        """Made by ``Over.partition_by``."""
        self._partition = partition

    def order_by(self, order_by: Expression | str) -> OverWindowPartitionedOrdered:
        """Order rows by a time attribute.

        Args:
            order_by: the column.
        """
        return OverWindowPartitionedOrdered(self._partition, _sort_item(order_by))


def _sort_item(given: Any) -> nodes.SortItem:
    if isinstance(given, str):
        return nodes.SortItem(nodes.identifier(given))
    found: nodes.SortItem = given.sort_item()
    return replace(found, nulls_first=None)


class Over:
    """Windows over the rows around each row."""

    @classmethod
    def order_by(cls, order_by: Expression | str) -> OverWindowPartitionedOrdered:
        """Order all rows by a time attribute.

        Args:
            order_by: the column.
        """
        return OverWindowPartitionedOrdered((), _sort_item(order_by))

    @classmethod
    def partition_by(cls, *partition_by: Expression | str) -> OverWindowPartitioned:
        """Take rows of one key together.

        Args:
            partition_by: what the key is.
        """
        nodes_ = (nodes.identifier(e) if isinstance(e, str) else e.node for e in partition_by)
        return OverWindowPartitioned(tuple(nodes_))


class _Groups:
    """The keys of ``group_by`` beside the name of its window.

    Args:
        row: of the table.
        window: the window.
        fields: of ``group_by``: the window's name, and keys.

    Raises:
        ProgramError: the window's name is missing, or a column has it.
    """

    def __init__(self, row: RowType, window: GroupWindow, fields: Sequence[Any]) -> None:
        self._window = window
        position = row.index_of(window.time)
        #: Of the time of the window: ROWTIME or PROCTIME; None: it is no time attribute.
        self._time_kind = None
        if position >= 0:
            self._time_kind = getattr(row.fields[position].type, "kind", None)
        keys = [expression_of(each) for each in fields]
        self.keys = [each for each in keys if not self._is_window(each)]
        if len(self.keys) + 1 != len(keys):
            message = f"group_by() takes the name of its window exactly once: col('{window.name}')"
            raise ProgramError(message)
        if window.name in row.names:
            message = f"the window is called '{window.name}', and so is a column of the table"
            raise ProgramError(message)

    def _is_window(self, node: Any) -> bool:
        return isinstance(node, nodes.Identifier) and node.names == (self._window.name,)

    def shown(self) -> tuple[nodes.SelectItem, ...]:
        """The keys.

        Raises:
            ProgramError: a key is no column.
        """
        if not all(isinstance(each, nodes.Identifier) for each in self.keys):
            message = "aggregate() after a window takes columns as keys; add_columns() makes some"
            raise ProgramError(message)
        return tuple(nodes.SelectItem(each) for each in self.keys)


class RowCountGroups(_Groups):
    """A query over windows of a number of rows, in the order in which rows come.

    A window is complete with its last row.  So its aggregates are those over the rows before this
    one, of which as many as the size of the window are taken; all other rows are left out.
    """

    def __init__(self, row: RowType, window: GroupWindow, fields: Sequence[Any]) -> None:
        """Take what is grouped; arguments as for windows of time.

        Raises:
            ProgramError: the window is not on processing time.
        """
        super().__init__(row, window, fields)
        if self._time_kind is TimestampKind.ROWTIME:
            message = "Event-time grouping windows on row intervals are currently not supported."
            raise UnsupportedSqlError(message)
        if self._time_kind is not TimestampKind.PROCTIME:
            message = (
                f"A group window expects a time attribute for grouping; '{window.time}' is none. "
                "Windows of a number of rows take a column of PROCTIME()."
            )
            raise ProgramError(message)
        self._count, self._window_name = unique_names([*row.names, "row_count", "rows"])[-2:]
        rows = [each.rows for each in window.lengths]
        self._slide, self._size = rows[0], rows[-1]

    def items(self, given: Sequence[nodes.SelectItem]) -> tuple[nodes.SelectItem, ...]:
        """Refuse what such windows do not have.

        Raises:
            ProgramError: a property of the window.
        """
        for each in given:
            for found in aggregates_of([each.expression]):
                if isinstance(found, WindowProperty):
                    word = "tumble" if self._window.function == "TUMBLE" else "sliding"
                    message = (
                        "Window start and Window end cannot be selected for a row-count "
                        f"{word} window."
                    )
                    raise ProgramError(message)
        return tuple(given)

    def counted(self, source: nodes.TableReference) -> nodes.Select:
        """Return the query of all columns, and how many rows of its key each row is."""
        count = nodes.FunctionCall(
            nodes.identifier("COUNT"),
            (nodes.Star(),),
            over=self._over(nodes.FrameBound("PRECEDING")),
        )
        items = (nodes.SelectItem(nodes.Star()), nodes.SelectItem(count, nodes.Name(self._count)))
        return nodes.Select(items=items, source=source)

    def aggregated(
        self,
        source: nodes.TableReference,
        given: Sequence[nodes.SelectItem],
        context: BindingContext,
    ) -> nodes.Select:
        """Return the query of the items over the last rows of each, and of the count."""
        aggregates = aggregates_of(each.expression for each in given)
        name = nodes.Name(self._window_name)

        def change(node: Any) -> Any:
            # Those of users may be called by name.
            named = isinstance(node, nodes.FunctionCall) and calls.aggregate_of(context, node)
            return replace(node, over=name) if named or node in aggregates else node

        items = [replace(each, expression=rewritten(each.expression, change)) for each in given]
        count = nodes.SelectItem(nodes.identifier(self._count), nodes.Name(self._count))
        first = nodes.FrameBound("PRECEDING", as_node(self._size - 1))
        return nodes.Select(
            items=(*items, count),
            source=source,
            windows=(nodes.NamedWindow(name, self._over(first)),),
        )

    def complete(
        self, source: nodes.TableReference, given: Sequence[nodes.SelectItem]
    ) -> nodes.Select:
        """Return the query of the items where a window is complete."""
        count = nodes.identifier(self._count)
        size, slide = as_node(self._size), as_node(self._slide)
        behind = nodes.BinaryOperation("-", count, size)
        where = nodes.BinaryOperation(
            "AND",
            nodes.BinaryOperation(">=", count, size),
            nodes.BinaryOperation("=", nodes.BinaryOperation("%", behind, slide), as_node(0)),
        )
        items = tuple(nodes.SelectItem(nodes.identifier(shown_name(each))) for each in given)
        return nodes.Select(items=items, source=source, where=where)

    def _over(self, first: nodes.FrameBound) -> nodes.WindowSpecification:
        return nodes.WindowSpecification(
            partition_by=tuple(self.keys),
            order_by=(nodes.SortItem(nodes.identifier(self._window.time)),),
            frame=nodes.WindowFrame("ROWS", first, nodes.FrameBound("CURRENT ROW")),
        )


class WindowGroups(_Groups):
    """The clauses of a query over the groups of a window."""

    def __init__(self, row: RowType, window: GroupWindow, fields: Sequence[Any]) -> None:
        """Take what is grouped.

        Args:
            row: of the table.
            window: the window.
            fields: of ``group_by``: the window's name, and keys.

        Raises:
            ProgramError: the window's name is missing, or its time is no time attribute.
        """
        super().__init__(row, window, fields)
        self._is_proctime = self._time_kind is TimestampKind.PROCTIME
        bounds = unique_names([*row.names, "window_start", "window_end", "window_time"])[-3:]
        self._bounds = dict(zip(("window_start", "window_end", "window_time"), bounds, strict=True))
        self._uses_time = False

    def item(self, node: Any) -> Any:
        """An expression of ``select`` with columns in the place of the window's properties.

        Raises:
            ProgramError: it has the window itself, or a property of another.
        """

        def change(each: Any) -> Any:
            if not isinstance(each, WindowProperty):
                return each
            if not self._is_window(each.operand):
                message = f"start, end, rowtime and proctime are of col('{self._window.name}')"
                raise ProgramError(message)
            return nodes.identifier(self._bounds[self._property(each.kind)])

        return rewritten(node, change)

    def shown(self) -> tuple[nodes.SelectItem, ...]:
        """The keys, and the properties of the window by names of their own."""
        time = "proctime" if self._is_proctime else "rowtime"
        properties = [
            nodes.SelectItem(
                WindowProperty(nodes.identifier(self._window.name), kind), nodes.Name(f"${kind}")
            )
            for kind in ("window_start", "window_end", time)
        ]
        return (*super().shown(), *properties)

    def _property(self, kind: str) -> str:
        if kind in {"window_start", "window_end"}:
            return kind
        if (kind == "proctime") != self._is_proctime:
            there, missing = ("proctime", "rowtime") if self._is_proctime else ("rowtime", kind)
            message = f"the window is on {there}, so it has no {missing}"
            raise ProgramError(message)
        self._uses_time = True
        return "window_time"

    def source(self, table: nodes.TableReference) -> nodes.TableFunction:
        """Return what stands in FROM.

        Raises:
            ProgramError: a session is grouped by something else than columns.
        """
        partition = tuple(self.keys) if self._window.function == "SESSION" else ()
        if not all(isinstance(each, nodes.Identifier) for each in partition):
            message = "a session is grouped by columns; add_columns() makes columns of expressions"
            raise ProgramError(message)
        data = nodes.TableArgument(table.name, partition_by=partition)
        time = nodes.Descriptor((nodes.Name(self._window.time),))
        arguments = (data, time, *self._window.lengths)
        call = nodes.FunctionCall(nodes.identifier(self._window.function), arguments)
        return nodes.TableFunction(call, any_size=True)

    def group_by(self) -> tuple[Any, ...]:
        """The keys; ask when the items have been made."""
        bounds = ["window_start", "window_end", *(["window_time"] if self._uses_time else [])]
        return (*self.keys, *(nodes.identifier(self._bounds[each]) for each in bounds))


def shown_property(field: Any) -> Any:
    """A field of ``select`` over ``WindowGroups.shown``."""
    if isinstance(field, str):
        return field

    def change(each: Any) -> Any:
        return nodes.identifier(f"${each.kind}") if isinstance(each, WindowProperty) else each

    made = type(field)(rewritten(field.node, change), *field.names)
    is_property = isinstance(field.node, WindowProperty) and not field.names
    return made.alias(made.node.last[1:]) if is_property else made
