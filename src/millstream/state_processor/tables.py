"""Tables of any kind as rows of a state: columns are matched by name and converted, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.contracts.operator import OperatorStateKind
from millstream.errors import StateError
from millstream.state.canonical.layout import (
    KEY,
    LAST_ACCESS,
    NUMBER,
    OTHER,
    POSITION,
    VALUE,
    SectionLayout,
)
from millstream.state.canonical.value_form import OBJECT, ColumnCodec, ValueForm
from millstream.types.pickling import dumps
from millstream.types.row import row_class

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.state.registry import Section


#: Arrow type -> the form of Python values.
_FORMS: Final = (
    (pa.types.is_boolean, "bool"),
    (pa.types.is_integer, "int"),
    (pa.types.is_floating, "float"),
    (pa.types.is_string, "str"),
    (pa.types.is_large_string, "str"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_large_binary, "bytes"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time"),
    (pa.types.is_duration, "timedelta"),
)


def to_table(data: Any) -> pa.Table:
    """Return an Arrow table of rows that came as Arrow, pandas or Spark.

    Args:
        data: an Arrow table or record batch, a pandas or a Spark DataFrame, or a list of
            dictionaries.

    Raises:
        StateError: it is none of these.
    """
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, list):
        return pa.Table.from_pylist(data)
    if hasattr(data, "toPandas"):  # of Spark, which is not imported here
        names = data.columns
        rows = [dict(zip(names, map(_plain, row), strict=True)) for row in data.collect()]
        return pa.Table.from_pylist(rows)
    if hasattr(data, "dtypes") and hasattr(data, "columns"):
        return pa.Table.from_pandas(data, preserve_index=False)
    message = (
        f"rows of state are an Arrow table, a pandas or Spark DataFrame, or a list of dictionaries,"
        f" not {type(data).__name__}"
    )
    raise StateError(message)


def _plain(value: Any) -> Any:
    """A value of Spark with dictionaries in the place of its rows."""
    if hasattr(value, "asDict"):
        return {name: _plain(each) for name, each in value.asDict().items()}
    if isinstance(value, list):
        return list(map(_plain, value))
    if isinstance(value, dict):
        return [(_plain(key), _plain(each)) for key, each in value.items()]
    return bytes(value) if isinstance(value, bytearray) else value


def form_of_type(kind: pa.DataType) -> ValueForm:
    """Return the form of Python values of an Arrow type.

    A struct whose fields are ``f0``, ``f1``, ... is a tuple, any other a ``Row``.
    """
    found = next((ValueForm(name) for matches, name in _FORMS if matches(kind)), OBJECT)
    if pa.types.is_timestamp(kind):
        found = ValueForm("datetime utc" if kind.tz else "datetime")
    elif pa.types.is_decimal(kind):
        found = ValueForm("decimal", scale=kind.scale)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        found = ValueForm("list", (form_of_type(kind.value_type),))
    elif pa.types.is_map(kind):
        found = ValueForm("map", (form_of_type(kind.key_type), form_of_type(kind.item_type)))
    elif pa.types.is_struct(kind) and kind.num_fields:
        parts = tuple(form_of_type(field.type) for field in kind)
        names = tuple(field.name for field in kind)
        is_tuple = names == tuple(f"f{number}" for number in range(len(names)))
        found = ValueForm("tuple", parts) if is_tuple else ValueForm("row", parts, names)
    return found


def column_for(table: pa.Table, name: str, form: ValueForm, what: str) -> pa.ChunkedArray:
    """Return a column of a table in the type of a form.

    Raises:
        StateError: there is no such column, or a value cannot be converted without loss.
    """
    if name not in table.column_names:
        message = f"{what}: the rows have no column {name!r}; they have {table.column_names}"
        raise StateError(message)
    column = table.column(name)
    wanted = ColumnCodec(form).type
    if column.type == wanted:
        return column
    try:
        if pa.types.is_nested(wanted):
            return pa.chunked_array([pa.array(column.to_pylist(), wanted)])
        return column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, TypeError) as error:
        message = (
            f"{what}: column {name!r} has type {column.type} and cannot be converted to {wanted}"
            f" ({error})"
        )
        raise StateError(message) from error


def forms_for(
    table: pa.Table, known: Mapping[str, ValueForm], names: list[str], what: str
) -> dict[str, ValueForm]:
    """Return the forms of columns: as they are known, or of the types of the table.

    Raises:
        StateError: a column is missing, or no form has its type.
    """
    found = {}
    for name in names:
        if name not in table.column_names:
            message = f"{what}: the rows have no column {name!r}; they have {table.column_names}"
            raise StateError(message)
        kind = table.schema.field(name).type
        form = known.get(name)
        if form is None or not (form.is_known or pa.types.is_binary(kind)):
            form = form_of_type(kind)
            if not form.is_known:
                message = f"{what}: column {name!r} has type {kind}, which no state can hold"
                raise StateError(message)
        found[name] = form  # what is stored in a column of pickled values stays as it is
    return found


def rows_for(
    section: Section, max_parallelism: int, known: Mapping[str, ValueForm], data: Any, what: str
) -> tuple[SectionLayout, list[pa.RecordBatch]]:
    """Return the rows of a section of keyed state, and their layout.

    Args:
        section: of the store.
        max_parallelism: of the operator.
        known: forms of columns that the section has; empty: those of the types of the data.
        data: the rows, as ``to_table`` takes them.
        what: they are, for messages.

    Raises:
        StateError: the rows do not fit.
    """
    table = to_table(data)
    forms = forms_for(table, known, SectionLayout(section).typed_columns, what)
    layout = SectionLayout(section, max_parallelism, forms)
    columns = {}
    for field in layout.schema:
        if field.name in forms and forms[field.name].is_known:
            columns[field.name] = column_for(table, field.name, forms[field.name], what)
        elif field.name in table.column_names:
            columns[field.name] = table.column(field.name).cast(field.type)
        elif field.name == LAST_ACCESS:
            message = f"{what} expires: the rows need a column {LAST_ACCESS!r} of timestamps"
            raise StateError(message)
        else:
            columns[field.name] = pa.nulls(table.num_rows, field.type)
    made = pa.table(columns, schema=layout.schema).combine_chunks()
    if POSITION in layout.schema.names:
        made = _numbered(made, is_ordered=POSITION in table.column_names)
    return layout, made.to_batches()  # several: an array of texts has 2 GiB at most


def _numbered(table: pa.Table, *, is_ordered: bool) -> pa.Table:
    """Order the elements of lists by key, number and position, and number them again."""
    keys = [repr(key) for key in table.column(KEY).to_pylist()]
    if KEY + OTHER in table.column_names:
        keys = [
            key if other is None else repr(other)
            for key, other in zip(keys, table.column(KEY + OTHER).to_pylist(), strict=True)
        ]
    numbers = [each or 0 for each in table.column(NUMBER).to_pylist()]
    positions = table.column(POSITION).to_pylist() if is_ordered else [0] * table.num_rows
    order = sorted(
        range(table.num_rows), key=lambda at: (keys[at], numbers[at], positions[at] or 0, at)
    )
    counts: dict[tuple[str, int], int] = {}
    places: list[int | None] = []
    for at in order:
        place = (keys[at], numbers[at])
        if positions[at] is None:
            places.append(None)
        else:
            places.append(counts.setdefault(place, 0))
            counts[place] += 1
    table = table.take(order)
    for name, values in ((NUMBER, [numbers[at] for at in order]), (POSITION, places)):
        field = table.schema.field(name)
        at = table.schema.get_field_index(name)
        table = table.set_column(at, field, pa.array(values, field.type))
    return table.combine_chunks()


def elements_of(data: Any, kind: OperatorStateKind, what: str) -> list[bytes]:
    """Return the elements of operator state of the rows of a table, each pickled.

    Raises:
        StateError: the rows do not fit.
    """
    table = to_table(data)
    names = [KEY, VALUE] if kind is OperatorStateKind.BROADCAST else [VALUE]
    forms = forms_for(table, {}, names, what)
    columns = [
        ColumnCodec(forms[name]).values(column_for(table, name, forms[name], what))
        for name in names
    ]
    if len(columns) == 1:
        return list(map(dumps, columns[0]))
    return list(map(dumps, zip(*columns, strict=True)))


def records_of(data: Any) -> list[Any]:
    """Return rows as ``Row`` objects, or the objects of any other iterable."""
    if isinstance(data, pa.Table | pa.RecordBatch) or hasattr(data, "columns"):
        table = to_table(data)
        make = row_class(tuple(table.column_names))
        forms = forms_for(table, {}, table.column_names, "a row")
        columns = [
            ColumnCodec(form).values(column_for(table, name, form, "a row"))
            for name, form in forms.items()
        ]
        return [make(values) for values in zip(*columns, strict=True)]
    return list(data)
