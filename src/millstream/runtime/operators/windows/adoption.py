"""Going on from windows that another kind of window operator kept.

What it is: an operator that is restored asks ``stored_section`` what is in its store.  If that is
not as it would have written it, the windows are read one by one (``stored_windows.py``), their
content is made what the operator keeps, and put where it keeps it; timers and the state of the
trigger are made anew where these are others.  All this is done before anything is processed, once:
from the next snapshot on the store says what it holds then.

What it is not: the rules of what can be converted; a program is held to these before it starts
(``conversions.py``).

Read next: ``runtime/operators/windows/conversions.py``.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.contracts.batch import Batch
from millstream.errors import StateError
from millstream.runtime.columnar.row_aggregates import RowAggregates
from millstream.runtime.operators.windows.clock import TimeSection
from millstream.runtime.operators.windows.sections import (
    ALIGNED,
    ELEMENTS,
    FRAGMENTS,
    KEYED,
    PANES,
    SECTION,
    TIMED_ELEMENTS,
)
from millstream.runtime.operators.windows.specs import BuiltInSpec
from millstream.runtime.operators.windows.stored_windows import StoredWindows
from millstream.runtime.user_code import user_error
from millstream.state.chunks import KEY
from millstream.state.key_codec import encode_key, uncache_key
from millstream.state.key_groups import key_group_range
from millstream.state.namespaced_state import ABSENT
from millstream.state.registry import META, read_sections, section_record, stored_record
from millstream.state.window_codec import WindowCodec
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.contracts.operator import OperatorContext, StateSection
    from millstream.runtime.operators.windows.specs import WindowSpec
    from millstream.runtime.operators.windows.stored_windows import StoredWindow
    from millstream.state.key_codec import CacheKey
    from millstream.state.registry import Section

__all__ = [
    "Adoption",
    "fragment_tables",
    "pane_tables",
    "partial_types",
    "stored_section",
]

#: Rows that become one table.
_ROWS: Final = 4096
#: States that only windows kept by key have.
_OF_KEYED: Final = ("\0windows.accumulators", "\0windows.chunks", "\0windows.trigger:")
#: Sections of one layout only, by kind.
_LAYOUTS: Final = {
    "accumulators of windows": ALIGNED,
    "elements of windows": ALIGNED,
    "panes": PANES,
    "session fragments": FRAGMENTS,
    "window elements": KEYED,
    "merging windows": KEYED,
}


def stored_section(store: KeyValueStore, own: StateSection) -> StateSection | None:
    """Return what is in the store if an operator has to convert it; None if it need not.

    Args:
        store: as it was restored.
        own: what the operator would write.
    """
    found = stored_record(store, SECTION)
    return None if found == own else found


class _Convert:
    """Makes of stored content what a function keeps."""

    def __init__(
        self,
        stored: StateSection,
        own: StateSection,
        spec: WindowSpec,
        context: OperatorContext,
        fold: Callable[[Any, Any], Any] | None,
    ) -> None:
        self._old = stored.details["content"]
        self._new = own.details["content"]
        self._context = context
        self._fold = fold or self._fold_row
        self._rows: RowAggregates | None = None
        self._input_type = Types.PICKLED_BYTE_ARRAY()
        if isinstance(spec, BuiltInSpec):
            self._rows = RowAggregates(spec.aggregates)
            self._input_type = spec.input_type or self._input_type

    @property
    def is_needed(self) -> bool:
        """Whether content is not as it is wanted."""
        return self._old != self._new

    def __call__(self, key: CacheKey, window: Any, content: Any) -> Any:
        """Return the content as it is wanted.

        Raises:
            UserFunctionError: the function raised; names key and window.
        """
        if content is ABSENT or not self.is_needed:
            return content
        if self._new == TIMED_ELEMENTS:
            return [(value, window.max_timestamp()) for value in content]
        timed = self._old == TIMED_ELEMENTS
        values = [value for value, _ in content] if timed else content
        if self._new == ELEMENTS:
            return values
        accumulator: Any = ABSENT
        try:
            if self._rows is not None:
                last = window.max_timestamp()
                times = [time for _, time in content] if timed else [last] * len(values)
                batch = Batch(self._input_type, values=values, timestamps=times)
                values = self._rows.elements(batch, self._context)
            for value in values:
                accumulator = self._fold(accumulator, value)
        except Exception as error:
            doing = f"making what is kept of {window} of its stored elements"
            raise user_error(self._context, error, doing=doing, key=uncache_key(key)) from error
        return accumulator

    def _fold_row(self, so_far: Any, value: Any) -> Any:
        rows = self._rows
        assert rows is not None  # noqa: S101 - only operators of built-in aggregates give no fold
        return rows.add(value, rows.create_accumulator() if so_far is ABSENT else so_far)


def partial_types(
    rows: RowAggregates, spec: BuiltInSpec, context: OperatorContext
) -> dict[str, pa.DataType]:
    """The types that the partial columns of a program have, as far as they are known."""
    if spec.input_type is None:
        return {}
    return {each.name: each.type for each in rows.partial_types(spec.input_type, context)}


class Adoption:
    """The windows of a store, as an operator wants them."""

    def __init__(
        self,
        stored: StateSection,
        own: StateSection,
        store: KeyValueStore,
        watermark: int,
        declared: tuple[Any, WindowSpec],
        context: OperatorContext,
        fold: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        """Take what is stored and what is wanted.

        Args:
            stored: what the store holds.
            own: what the operator keeps.
            store: as it was restored.
            watermark: of the operator, in milliseconds.
            declared: assigner and function of the program.
            context: of the operator.
            fold: puts an element into an accumulator; None: that of built-in aggregates.
        """
        assigner, spec = declared
        groups = key_group_range(context.subtask, context.max_parallelism, context.parallelism)
        self.stored = stored
        self.store = store
        self.convert = _Convert(stored, own, spec, context, fold)
        self.sections = read_sections(store)
        self.source = StoredWindows(
            stored,
            store,
            (context.max_parallelism, groups),
            watermark,
            assigner,
            spec,
            WindowCodec(assigner.get_window_serializer()),
            {section.name: section.index for section in self.sections},
        )

    def windows(self) -> Iterator[StoredWindow]:
        """Every window, its content as it is wanted."""
        for key, window, content in self.source:
            yield key, window, self.convert(key, window, content)

    def drop_timers(self) -> None:
        """Remove all timers: window operators have none but those of windows."""
        for section in self.sections:
            if section.kind == "timers":
                self.store.delete_range(*TimeSection(b"T", section.index).everything())

    def drop_states(self, prefix: str) -> None:
        """Remove all of the states whose names begin so."""
        for section in self.sections:
            if section.letter == "K" and section.name.startswith(prefix):
                self.source.drop_state(section.name)

    def finish(self, own: StateSection) -> None:
        """Let the store say what it holds now: also one that holds nothing, for stores are merged.

        What only the other operator has looked at is taken off the list.
        """
        gone = [
            META + section.name.encode()
            for section in self.sections
            if own.layout != self.stored.layout and not _is_of(own.layout, section)
        ]
        self.store.write([section_record(own)], gone)


def _is_of(layout: str, section: Section) -> bool:
    """Whether windows of a layout may have such a section."""
    if _LAYOUTS.get(section.kind, layout) != layout:
        return False
    return layout == KEYED or not section.name.startswith(_OF_KEYED)


def pane_tables(
    windows: Iterable[StoredWindow], rows: RowAggregates, types: Mapping[str, pa.DataType]
) -> Iterator[tuple[int, pa.Table]]:
    """Windows that do not overlap as (last timestamp, table of keys and partial columns)."""
    filled = (each for each in windows if each[2] is not ABSENT)
    for part in _in_parts(filled):
        by_window: dict[tuple[int, type], list[StoredWindow]] = {}
        for each in part:
            by_window.setdefault((each[1].max_timestamp(), _form(each[0])), []).append(each)
        for (last, _), some in by_window.items():
            columns = rows.to_partials([content for _, _, content in some], types)
            yield last, pa.table({KEY: _keys(some), **columns})


def fragment_tables(
    windows: Iterable[StoredWindow],
    rows: RowAggregates,
    types: Mapping[str, pa.DataType],
    watermark: int,
    bounds: tuple[str, str],
    context: OperatorContext,
) -> Iterator[pa.Table]:
    """Sessions as tables of keys, bounds and partial columns.

    Raises:
        StateError: a session has no content and has not fired: it could not be kept.
    """
    for part in _in_parts(windows):
        by_form: dict[type, list[StoredWindow]] = {}
        for key, window, content in part:
            kept = content
            if content is ABSENT:
                if window.max_timestamp() > watermark:
                    message = (
                        f"operator {context.name!r} ({context.location}): in its section"
                        f" {SECTION!r} the session {window} of key {uncache_key(key)!r} is open and"
                        " its content was purged, which fragments cannot say. Keep the trigger"
                        " until it is over"
                    )
                    raise StateError(message)
                kept = rows.create_accumulator()
            by_form.setdefault(_form(key), []).append((key, window, kept))
        for some in by_form.values():
            columns = rows.to_partials([content for _, _, content in some], types)
            starts = pa.array([window.start for _, window, _ in some], pa.int64())
            ends = pa.array([window.end for _, window, _ in some], pa.int64())
            yield pa.table({KEY: _keys(some), bounds[0]: starts, bounds[1]: ends, **columns})


def _in_parts(windows: Iterable[StoredWindow]) -> Iterator[list[StoredWindow]]:
    rest = iter(windows)
    while part := list(islice(rest, _ROWS)):
        yield part


def _form(key: object) -> type:
    """The type of the column that a key is in: those beyond 64 bits are in that of bytes."""
    return bytes if isinstance(key, int) and not -(2**63) <= key < 2**63 else type(key)


def _keys(windows: list[StoredWindow]) -> pa.Array:
    keys = [key for key, _, _ in windows]
    kind = _form(keys[0])
    if kind is int:
        return pa.array(keys, pa.int64())
    if kind is str:
        return pa.array(keys, pa.string())
    encoded = [key if isinstance(key, bytes) else encode_key(key) for key in keys]
    return pa.array(encoded, pa.binary())
