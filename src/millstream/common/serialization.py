"""Schemas of messages under PyFlink's import path."""

from millstream.connectors.formats.file_format import BulkWriter as BulkWriter
from millstream.connectors.formats.file_format import BulkWriterFactory as BulkWriterFactory
from millstream.contracts.serialization import ByteArraySchema as ByteArraySchema
from millstream.contracts.serialization import DeserializationSchema as DeserializationSchema
from millstream.contracts.serialization import Encoder as Encoder
from millstream.contracts.serialization import RowFieldExtractorSchema as RowFieldExtractorSchema
from millstream.contracts.serialization import SerializationSchema as SerializationSchema
from millstream.contracts.serialization import SimpleStringEncoder as SimpleStringEncoder
from millstream.contracts.serialization import SimpleStringSchema as SimpleStringSchema
