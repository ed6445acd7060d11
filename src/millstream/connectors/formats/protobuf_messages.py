"""Protobuf messages: of a generated class, or with the id of their schema in a schema registry.

Columns are fields of the same names.  A field that is absent, and a list or map without entries, is
NULL, as in Flink; a field of proto3 without ``optional`` has its default value then.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.formats.row_format import INSERT, RowDecoder, RowEncoder
from millstream.connectors.formats.schema_registry import (
    HEADER_SIZE,
    RegisteredSchema,
    SchemaReference,
    SchemaRegistryClient,
    header_of,
    schema_id,
)
from millstream.errors import ConfigurationError, ValidationError
from millstream.types import logical_types as lt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


#: Files that Protobuf's own package has, and the registry need not have.
_OWN_FILES: Final = "google/protobuf/"
_GENERATED: Final = "millstream.proto"
_SERIALIZED: Final = "serialized"
_CONTINUES: Final = 0x80
_MOST_INDEXES: Final = 100


@dataclass(frozen=True)
class ProtobufOptions:
    """How messages are read and written.

    Args:
        message_class: a generated class by its path in Python, such as ``shop_pb2.User``; None:
            the registry's schema.
        ignore_parse_errors: whether messages that do not parse are skipped.
        read_default_values: whether absent fields have their default values instead of NULL.
        null_string: what stands for NULL in lists and maps of texts.
    """

    message_class: str | None = None
    ignore_parse_errors: bool = False
    read_default_values: bool = False
    null_string: str = ""


def _descriptor_of_class(path: str) -> Any:
    """Return the descriptor of a generated class.

    Raises:
        ConfigurationError: it cannot be imported, or is none.
    """
    _require_protobuf()
    try:
        found = pkgutil.resolve_name(path)
    except (ImportError, AttributeError, ValueError) as error:
        message = (
            f"the option 'message-class-name' is '{path}', which cannot be imported: {error}. It is"
            " the path of a class that protoc generated for Python, such as 'shop_pb2.User'"
        )
        raise ConfigurationError(message) from error
    descriptor = getattr(found, "DESCRIPTOR", None)
    if descriptor is None or not hasattr(descriptor, "fields_by_name"):
        message = f"the option 'message-class-name' is '{path}', which is no class of messages"
        raise ConfigurationError(message)
    return descriptor


def _require_protobuf() -> None:
    try:
        importlib.import_module("google.protobuf.message_factory")
    except ImportError as error:
        message = "Protobuf needs the package protobuf: pip install 'millstream[protobuf]'"
        raise ConfigurationError(message) from error


def _class_of(descriptor: Any) -> Any:
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(descriptor)


# -- types -----------------------------------------------------------------------------------------


_TEXTS: Final = (lt.CharType, lt.VarCharType)
_ENUMS: Final = (*_TEXTS, lt.TinyIntType, lt.SmallIntType, lt.IntType, lt.BigIntType)
#: Protobuf's type in Python (``FieldDescriptor.cpp_type``) -> types of columns, as in Flink.
_TAKEN: Final[dict[int, tuple[type[lt.LogicalType], ...]]] = {
    1: (lt.IntType,),
    2: (lt.BigIntType,),
    3: (lt.IntType,),
    4: (lt.BigIntType,),
    5: (lt.DoubleType,),
    6: (lt.FloatType,),
    7: (lt.BooleanType,),
    8: _ENUMS,
    9: (*_TEXTS, lt.BinaryType, lt.VarBinaryType),
}
_ENUM: Final = 8
_STRING: Final = 9
_MESSAGE: Final = 10
_BYTES_TYPE: Final = 12
#: Bits of whole numbers without a sign: Java has none, and Flink reads them as negative numbers.
_UNSIGNED: Final = {3: 32, 4: 64}


def _is_map(field: Any) -> bool:
    kind = field.message_type
    return kind is not None and kind.GetOptions().map_entry


def misfit(descriptor: Any, row: lt.RowType, where: str = "") -> str | None:
    """Return why messages are no rows of a table; None: they are."""
    for each in row.fields:
        name = f"{where}{each.name}"
        field = descriptor.fields_by_name.get(each.name)
        wrong = (
            f"the message {descriptor.full_name} has no field '{name}'"
            if field is None
            else _field_misfit(field, each.type, name)
        )
        if wrong is not None:
            return wrong
    return None


def _field_misfit(field: Any, kind: lt.LogicalType, name: str) -> str | None:
    if _is_map(field):
        if not isinstance(kind, lt.MapType):
            return f"column '{name}' must be a MAP, not {kind.as_summary_string()}"
        key, value = (field.message_type.fields_by_name[each] for each in ("key", "value"))
        return _single_misfit(key, kind.key, name) or _single_misfit(value, kind.value, name)
    if field.is_repeated:
        if not isinstance(kind, lt.ArrayType):
            return f"column '{name}' must be an ARRAY, not {kind.as_summary_string()}"
        kind = kind.element
    return _single_misfit(field, kind, name)


def _single_misfit(field: Any, kind: lt.LogicalType, name: str) -> str | None:
    if field.cpp_type == _MESSAGE:
        if not isinstance(kind, lt.RowType):
            return f"column '{name}' must be a ROW, not {kind.as_summary_string()}"
        return misfit(field.message_type, kind, f"{name}.")
    taken = _TAKEN[field.cpp_type]
    if field.cpp_type == _STRING:
        taken = taken[2:] if field.type == _BYTES_TYPE else taken[:2]
    if isinstance(kind, taken):
        return None
    wanted = " or ".join(each.type_name() for each in taken)
    return f"column '{name}' must be {wanted}, not {kind.as_summary_string()}"


def _file_of_row(row: lt.RowType) -> Any:
    """Return a file with a message for the rows of a table, named ``Record``.

    Raises:
        ValidationError: Protobuf has no such type.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    made = FileDescriptorProto(name=_GENERATED, syntax="proto3", package="millstream")
    _add_fields(made.message_type.add(name="Record"), row)
    return made


#: Types of columns -> ``FieldDescriptorProto.Type``.
_WRITTEN: Final[dict[type[lt.LogicalType], int]] = {
    lt.DoubleType: 1,
    lt.FloatType: 2,
    lt.BigIntType: 3,
    lt.IntType: 5,
    lt.BooleanType: 8,
    lt.CharType: 9,
    lt.VarCharType: 9,
    lt.BinaryType: 12,
    lt.VarBinaryType: 12,
}
_OPTIONAL, _REPEATED, _NESTED = 1, 3, 11


def _add_fields(message: Any, row: lt.RowType) -> None:
    for number, each in enumerate(row.fields, 1):
        kind, label = each.type, _OPTIONAL
        nested = "".join(part.capitalize() for part in each.name.split("_")) + f"_{number}"
        if isinstance(kind, lt.MapType):
            entry = "".join(part[:1].upper() + part[1:] for part in each.name.split("_")) + "Entry"
            fields = (lt.RowField("key", kind.key), lt.RowField("value", kind.value))
            inner = message.nested_type.add(name=entry)
            _add_fields(inner, lt.RowType(fields))
            inner.options.map_entry = True
            for part in inner.field:
                part.ClearField("proto3_optional")
                part.ClearField("oneof_index")
            del inner.oneof_decl[:]
            message.field.add(
                name=each.name, number=number, label=_REPEATED, type=_NESTED, type_name=entry
            )
            continue
        if isinstance(kind, lt.ArrayType):
            kind, label = kind.element, _REPEATED
        field = message.field.add(name=each.name, number=number, label=label)
        if isinstance(kind, lt.RowType):
            _add_fields(message.nested_type.add(name=nested), kind)
            field.type, field.type_name = _NESTED, nested
        elif type(kind) in _WRITTEN:
            field.type = _WRITTEN[type(kind)]
            if label == _OPTIONAL:
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{each.name}")
        else:
            text = f"the column '{each.name}' is {kind.as_summary_string()}, which Protobuf lacks"
            raise ValidationError(text)


# -- values ----------------------------------------------------------------------------------------


def _row_reader(row: lt.RowType, descriptor: Any, *, defaults: bool) -> Callable[[Any], list[Any]]:
    readers = []
    for each in row.fields:
        field = descriptor.fields_by_name[each.name]
        read = _field_reader(field, each.type, defaults=defaults)
        readers.append((each.name, read, field.has_presence and not defaults))
    return lambda message: [
        None if asked and not message.HasField(name) else read(getattr(message, name))
        for name, read, asked in readers
    ]


def _field_reader(field: Any, kind: lt.LogicalType, *, defaults: bool) -> Callable[[Any], Any]:
    if isinstance(kind, lt.MapType):
        parts = field.message_type.fields_by_name
        key = _single_reader(parts["key"], kind.key, defaults=defaults)
        value = _single_reader(parts["value"], kind.value, defaults=defaults)

        def read_map(entries: Any) -> Any:
            found = [(key(name), value(entries[name])) for name in entries]
            return found if found or defaults else None

        return read_map
    if isinstance(kind, lt.ArrayType):
        single = _single_reader(field, kind.element, defaults=defaults)
        return lambda listed: [single(each) for each in listed] if listed or defaults else None
    return _single_reader(field, kind, defaults=defaults)


def _single_reader(field: Any, kind: lt.LogicalType, *, defaults: bool) -> Callable[[Any], Any]:
    if isinstance(kind, lt.RowType):
        read = _row_reader(kind, field.message_type, defaults=defaults)
        names = kind.names
        return lambda message: dict(zip(names, read(message), strict=True))
    if field.cpp_type == _ENUM and isinstance(kind, _TEXTS):
        names_by_number = field.enum_type.values_by_number
        return lambda number: (
            names_by_number[number].name if number in names_by_number else str(number)
        )
    bits = _UNSIGNED.get(field.cpp_type)
    if bits is not None:
        half, whole = 1 << (bits - 1), 1 << bits
        return lambda number: number - whole if number >= half else number
    return lambda value: value


class _RowWriter:
    """Fills messages of a descriptor with the values that pyarrow gives for a row."""

    def __init__(self, row: lt.RowType, null_string: str) -> None:
        self._row, self._null = row, null_string

    def fill(self, message: Any, row: lt.RowType, values: Sequence[Any]) -> None:
        """Set the fields of a message; NULL leaves one out."""
        fields = message.DESCRIPTOR.fields_by_name
        for each, value in zip(row.fields, values, strict=True):
            if value is None:
                continue
            field, kind = fields[each.name], each.type
            target = getattr(message, each.name)
            if isinstance(kind, lt.MapType):
                self._fill_map(target, field, kind, value)
            elif isinstance(kind, lt.ArrayType):
                for item in value:
                    if isinstance(kind.element, lt.RowType):
                        self._fill_row(target.add(), kind.element, item)
                    else:
                        target.append(self._single(field, item))
            elif isinstance(kind, lt.RowType):
                target.SetInParent()
                self._fill_row(target, kind, value)
            else:
                setattr(message, each.name, self._single(field, value))

    def _fill_row(self, message: Any, kind: lt.RowType, value: Any) -> None:
        if value is not None:
            self.fill(message, kind, [value[name] for name in kind.names])

    def _fill_map(self, target: Any, field: Any, kind: lt.MapType, value: Any) -> None:
        parts = field.message_type.fields_by_name
        for key, item in value:
            name = self._single(parts["key"], key)
            if isinstance(kind.value, lt.RowType):
                self._fill_row(target[name], kind.value, item)
            else:
                target[name] = self._single(parts["value"], item)

    def _single(self, field: Any, value: Any) -> Any:
        if value is None:
            is_text = field.cpp_type == _STRING and field.type != _BYTES_TYPE
            return self._null if is_text else field.default_value
        if field.cpp_type == _ENUM:
            values = field.enum_type
            if isinstance(value, str):
                found = values.values_by_name.get(value)
                return values.values[0].number if found is None else found.number
            return value if value in values.values_by_number else values.values[0].number
        bits = _UNSIGNED.get(field.cpp_type)
        return value + (1 << bits) if bits is not None and value < 0 else value


# -- the registry ----------------------------------------------------------------------------------


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a whole number in Protobuf's zigzag form, and where it ends.

    Raises:
        ValueError: it is cut off.
    """
    number = shift = 0
    while True:
        if at >= len(message) or shift > 63:  # noqa: PLR2004 - bits
            reason = "the indexes of the message in its schema are cut off"
            raise ValueError(reason)
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < _CONTINUES:
            return (number >> 1) ^ -(number & 1), at


def message_indexes(message: bytes, at: int = HEADER_SIZE) -> tuple[tuple[int, ...], int]:
    """Return the path of a message's type in its file, and where the message begins.

    Raises:
        ValueError: there is none.
    """
    count, at = _varint(message, at)
    if not 0 <= count <= _MOST_INDEXES:
        reason = f"it has {count} indexes of the message in its schema"
        raise ValueError(reason)
    if not count:
        return (0,), at
    path = []
    for _ in range(count):
        index, at = _varint(message, at)
        path.append(index)
    return tuple(path), at


def indexes_of(descriptor: Any) -> bytes:
    """Return the path of a type in its file, as it stands before messages."""
    path: list[int] = []
    while descriptor is not None:
        parent = descriptor.containing_type
        siblings = parent.nested_types if parent else descriptor.file.message_types_by_name.values()
        path.insert(0, [each.name for each in siblings].index(descriptor.name))
        descriptor = parent
    if path == [0]:
        return b"\0"
    made = bytearray()
    for number in (len(path), *path):
        left = number << 1
        while left >= _CONTINUES:
            made.append(left & 0x7F | _CONTINUES)
            left >>= 7
        made.append(left)
    return bytes(made)


class _Files:
    """Descriptors of the schemas in a registry."""

    def __init__(self, client: SchemaRegistryClient) -> None:
        self._client = client

    def file(self, identifier: int) -> Any:
        """Return the file of a schema id.

        Raises:
            ValueError: there is none, or it cannot be read.
        """
        from google.protobuf.descriptor_pool import DescriptorPool

        found = self._client.schema(identifier, _SERIALIZED)
        if found.kind != "PROTOBUF":
            reason = f"schema id {identifier} is a schema of {found.kind}, not of PROTOBUF"
            raise ValueError(reason)
        pool = DescriptorPool()
        name = f"schema-{identifier}.proto"
        try:
            self._add(pool, found, name, set())
            return pool.FindFileByName(name)
        except (TypeError, KeyError) as error:
            reason = f"the schema registry's schema id {identifier} cannot be read: {error}"
            raise ValueError(reason) from error

    def _add(self, pool: Any, schema: RegisteredSchema, name: str, added: set[str]) -> None:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
        from google.protobuf.message import DecodeError

        try:
            made = FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
        except (binascii.Error, DecodeError) as error:
            reason = (
                f"the schema registry does not give the descriptor of {name} (?format=serialized);"
                " set 'message-class-name' to read by a generated class"
            )
            raise ValueError(reason) from error
        for each in schema.references:
            if each.name not in added:
                added.add(each.name)
                self._add(pool, self._client.referenced(each, _SERIALIZED), each.name, added)
        for each in made.dependency:
            if each.startswith(_OWN_FILES) and each not in added:
                added.add(each)
                _add_own(pool, each)
        made.name = name
        pool.Add(made)


def _add_own(pool: Any, name: str) -> None:
    """Add a file of Protobuf's own package, with those that it imports."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    made = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(made)
    for each in made.dependency:
        _add_own(pool, each)
    pool.Add(made)


class ProtobufRowDecoder(RowDecoder):
    """One message per row.

    Args:
        row: the table.
        options: of the format.
        client: of the registry; None: messages have no header.

    Raises:
        ValidationError: the columns are no fields of the class, or there is neither a class nor a
            registry.
    """

    def __init__(
        self,
        row: lt.RowType,
        options: ProtobufOptions,
        client: SchemaRegistryClient | None = None,
    ) -> None:
        super().__init__(row)
        _require_protobuf()
        self._options, self._client = options, client
        if options.message_class is not None:
            _require_fit(_descriptor_of_class(options.message_class), row)
        elif client is None:
            message = "the option 'message-class-name' or 'url' is required"
            raise ValidationError(message)
        #: (schema id, indexes) -> the class of messages and what reads them.
        self._readers: dict[Any, tuple[Any, Callable[[Any], list[Any]]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Without classes and what is made of closures."""
        return self.__dict__ | {"_readers": {}}

    def decode(self, message: bytes | None) -> list[tuple[int, Sequence[Any]]]:
        if message is None:
            return []
        try:
            values = self._values(message)
        except ValueError:
            if self._options.ignore_parse_errors:
                return []
            raise
        return [(INSERT, values)]

    def narrowed(self, row: lt.RowType) -> RowDecoder | None:
        """Those fields alone."""
        return ProtobufRowDecoder(row, self._options, self._client)

    def _values(self, message: bytes) -> list[Any]:
        from google.protobuf.message import DecodeError

        key: Any = None
        at = 0
        if self._client is not None:
            identifier = schema_id(message)
            path, at = message_indexes(message)
            if self._options.message_class is None:
                key = identifier, path
        if key not in self._readers:
            self._readers[key] = self._reader(key)
        made, read = self._readers[key]
        try:
            values = read(made.FromString(message[at:]))
        except DecodeError as error:
            reason = f"it is not a message of {made.DESCRIPTOR.full_name}: {error}"
            raise ValueError(reason) from error
        for each, value in zip(self.row.fields, values, strict=True):
            if value is None and not each.type.is_nullable:
                reason = f"NULL in column '{each.name}', which is NOT NULL"
                raise ValueError(reason)
        return values

    def _reader(self, key: Any) -> tuple[Any, Callable[[Any], list[Any]]]:
        if key is None:
            descriptor = _descriptor_of_class(str(self._options.message_class))
        else:
            assert self._client is not None  # noqa: S101 - the key has its id
            descriptor = _descriptor_at(_Files(self._client).file(key[0]), *key)
            wrong = misfit(descriptor, self.row)
            if wrong is not None:
                reason = f"schema id {key[0]} does not fit the table: {wrong}"
                raise ValueError(reason)
        read = _row_reader(self.row, descriptor, defaults=self._options.read_default_values)
        return _class_of(descriptor), read


def _require_fit(descriptor: Any, row: lt.RowType) -> None:
    wrong = misfit(descriptor, row)
    if wrong is not None:
        raise ValidationError(wrong)


def _descriptor_at(file: Any, identifier: int, path: tuple[int, ...]) -> Any:
    siblings: list[Any] = list(file.message_types_by_name.values())
    found = None
    for index in path:
        if not 0 <= index < len(siblings):
            reason = f"schema id {identifier} has no message at {list(path)}"
            raise ValueError(reason)
        found = siblings[index]
        siblings = list(found.nested_types)
    return found


class ProtobufRowEncoder(RowEncoder):
    """One message per row.

    Args:
        row: the table.
        options: of the format; without a class the message is derived from the columns.
        client: of the registry; None: messages have no header.
        subject: where the schema is registered; ``{record}`` in it is the message's name.

    Raises:
        ValidationError: the columns are no fields of the class, or there is neither a class nor a
            registry.
    """

    def __init__(
        self,
        row: lt.RowType,
        options: ProtobufOptions,
        client: SchemaRegistryClient | None = None,
        subject: str = "",
    ) -> None:
        super().__init__(row)
        _require_protobuf()
        self._options, self._client, self._subject = options, client, subject
        if options.message_class is None and client is None:
            message = "the option 'message-class-name' or 'url' is required"
            raise ValidationError(message)
        self._descriptor: Any = self._described()

    def __getstate__(self) -> dict[str, Any]:
        """Without descriptors, which are not pickled."""
        return self.__dict__ | {"_descriptor": None}

    def validate(self) -> None:
        self._header()

    def encode(
        self, columns: pa.RecordBatch, kinds: NDArray[np.int8] | None
    ) -> Sequence[bytes | None]:
        del kinds
        if self._descriptor is None:
            self._descriptor = self._described()
        header, writer = self._header(), _RowWriter(self.row, self._options.null_string)
        make = _class_of(self._descriptor)
        made: list[bytes | None] = []
        rows = zip(*(each.to_pylist() for each in columns.columns), strict=True)
        for values in rows:
            message = make()
            writer.fill(message, self.row, values)
            made.append(header + message.SerializeToString())
        return made

    def _described(self) -> Any:
        if self._options.message_class is not None:
            descriptor = _descriptor_of_class(self._options.message_class)
        else:
            from google.protobuf.descriptor_pool import DescriptorPool

            pool = DescriptorPool()
            pool.Add(_file_of_row(self.row))
            descriptor = pool.FindMessageTypeByName("millstream.Record")
        _require_fit(descriptor, self.row)
        return descriptor

    def _header(self) -> bytes:
        if self._client is None:
            return b""
        if self._descriptor is None:
            self._descriptor = self._described()
        descriptor = self._descriptor
        subject = self._subject.replace("{record}", descriptor.full_name)
        identifier = self._client.register(subject, self._schema(descriptor.file))
        return header_of(identifier) + indexes_of(descriptor)

    def _schema(self, file: Any) -> RegisteredSchema:
        """Return a file as it is registered; those that it imports are registered first."""
        assert self._client is not None  # noqa: S101 - see _header
        references = []
        for each in file.dependencies:
            if not each.name.startswith(_OWN_FILES):
                version = self._client.version(each.name, self._schema(each))
                references.append(SchemaReference(each.name, each.name, version))
        text = base64.b64encode(file.serialized_pb).decode()
        return RegisteredSchema(text, "PROTOBUF", tuple(references))
