"""Objects of a catalog: descriptions of tables, views, functions and databases."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from millstream.errors import CatalogError
from millstream.sql.catalog.schema import ResolvedSchema, Schema, TableSchema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def _resolved(schema: Schema | ResolvedSchema) -> ResolvedSchema:
    if isinstance(schema, Schema):
        return schema.resolved()
    # Of the plain class, so that it equals the schema of a table that a statement has made.
    return ResolvedSchema(schema.columns, schema.get_watermark_specs(), schema.primary_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogBaseTable:
    """Base of tables and views."""

    schema: ResolvedSchema
    comment: str | None = None

    @staticmethod
    def create_table(
        schema: Schema | ResolvedSchema,
        partition_keys: Sequence[str] = (),
        properties: Mapping[str, str] = MappingProxyType({}),
        comment: str | None = None,
    ) -> CatalogBaseTable:
        """A table, for ``Catalog.create_table``.

        Args:
            schema: its columns, as a ``TableSchema`` or as ``Schema``, whose expressions know no
                functions of users.
            partition_keys: the columns of PARTITIONED BY.
            properties: the options of its connector.
            comment: what it is for.

        Raises:
            ValidationError: an expression makes no sense.
            CatalogError: it has no such column to be partitioned by.
        """
        made = _resolved(schema)
        for each in partition_keys:
            if each not in made.names:
                message = f"A table cannot be partitioned by '{each}', which is no column of it."
                raise CatalogError(message)
        return CatalogTable(
            schema=made,
            comment=comment,
            options=dict(properties),
            partition_keys=tuple(partition_keys),
        )

    @staticmethod
    def create_view(
        original_query: str,
        expanded_query: str,
        schema: Schema | ResolvedSchema,
        properties: Mapping[str, str],
        comment: str | None = None,
    ) -> CatalogBaseTable:
        """A view, for ``Catalog.create_table``.

        Args:
            original_query: as a person wrote it.
            expanded_query: with all names in full, so that it means the same from any database.
            schema: the columns that the query gives.
            properties: none.
            comment: what it is for.

        Raises:
            CatalogError: there are properties.
        """
        if properties:
            message = f"A view has no options; there are: {', '.join(sorted(properties))}."
            raise CatalogError(message)
        return CatalogView(
            schema=_resolved(schema),
            comment=comment,
            original_query=original_query,
            expanded_query=expanded_query,
        )

    def get_schema(self) -> TableSchema:
        """The columns with their types."""
        return TableSchema.from_resolved_schema(self.schema)

    def get_unresolved_schema(self) -> Schema:
        """The columns, as programs describe them."""
        return Schema.new_builder().from_resolved_schema(self.schema).build()

    @property
    def is_view(self) -> bool:
        """Whether it is a query."""
        return False

    def get_options(self) -> dict[str, str]:
        """The options of the connector; of a view there are none."""
        return {}

    def get_comment(self) -> str:
        """Return what CREATE has behind COMMENT; empty if nothing."""
        return self.comment or ""

    def copy(self) -> CatalogBaseTable:
        """The same again."""
        return replace(self)

    def get_description(self) -> str | None:
        """The comment."""
        return self.get_comment()

    def get_detailed_description(self) -> str | None:
        """None: there is nothing but the comment."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogTable(CatalogBaseTable):
    """A table that a connector reads or writes."""

    options: Mapping[str, str] = field(default_factory=dict)
    partition_keys: tuple[str, ...] = ()

    def get_options(self) -> dict[str, str]:
        return dict(self.options)

    def copy(self, options: Mapping[str, str] | None = None) -> CatalogTable:
        """The same table, with other options if they are given."""
        return replace(self, options=dict(self.options if options is None else options))


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogView(CatalogBaseTable):
    """A query under a name."""

    #: As the statement had it.
    original_query: str
    #: With all names in full, so that it means the same from any database.
    expanded_query: str

    @property
    def is_view(self) -> bool:
        """It is."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogFunction:
    """A function of a user."""

    #: ``module.name`` of a Python object, or the object itself.
    implementation: object
    language: str = "PYTHON"

    @staticmethod
    def create_instance(class_name: str, function_language: str = "Python") -> CatalogFunction:
        """A function in a catalog.

        Args:
            class_name: ``module.name`` of a Python object that ``udf`` or a sister has made.
            function_language: Python; a function in another language is kept, and cannot be called.
        """
        return CatalogFunction(implementation=class_name, language=function_language.upper())

    def get_class_name(self) -> str:
        """``module.name`` of the Python object; the object's own name if it is none of a module."""
        if isinstance(self.implementation, str):
            return self.implementation
        return str(getattr(self.implementation, "name", type(self.implementation).__name__))

    def copy(self) -> CatalogFunction:
        """The same again."""
        return replace(self)

    def get_description(self) -> str | None:
        """Return what it is, for people."""
        return "This is a user-defined function"

    def get_detailed_description(self) -> str | None:
        """Return what it is, for people."""
        return self.get_description()

    def get_function_language(self) -> str:
        """The language, in capital letters: ``PYTHON``."""
        return self.language

    def get_options(self) -> dict[str, str]:
        """There are none."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    """Properties and a comment."""

    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None

    @classmethod
    def create_instance(cls, properties: Mapping[str, str], comment: str | None = None) -> Self:
        """Return an object of these properties."""
        return cls(properties=dict(properties), comment=comment)

    def get_properties(self) -> dict[str, str]:
        """Return the properties."""
        return dict(self.properties)

    def get_comment(self) -> str:
        """Return what CREATE has after COMMENT; empty if nothing."""
        return self.comment or ""

    def copy(self) -> Self:
        """Return the same again."""
        return replace(self, properties=dict(self.properties))

    def get_description(self) -> str | None:
        """Return None: there is nothing but the comment."""
        return None

    def get_detailed_description(self) -> str | None:
        """Return None: there is nothing but the comment."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPartition(_Described):
    """The properties and the comment of a partition of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogDatabase(_Described):
    """The properties and the comment of a database."""

    def get_description(self) -> str | None:
        """Return the comment."""
        return self.comment

    def get_detailed_description(self) -> str | None:
        """Return the comment."""
        return self.comment
