"""Exceptions of catalogs and tables under PyFlink's names."""

from __future__ import annotations

from millstream.errors import (
    CatalogError,
    DatabaseAlreadyExistError,
    DatabaseNotEmptyError,
    DatabaseNotExistError,
    FunctionAlreadyExistError,
    FunctionNotExistError,
    PartitionAlreadyExistsError,
    PartitionNotExistError,
    PartitionSpecInvalidError,
    ProgramError,
    TableAlreadyExistError,
    TableNotExistError,
    TableNotPartitionedError,
)

__all__ = [
    "CatalogException",
    "DatabaseAlreadyExistException",
    "DatabaseNotEmptyException",
    "DatabaseNotExistException",
    "FunctionAlreadyExistException",
    "FunctionNotExistException",
    "PartitionAlreadyExistsException",
    "PartitionNotExistException",
    "PartitionSpecInvalidException",
    "TableAlreadyExistException",
    "TableException",
    "TableNotExistException",
    "TableNotPartitionedException",
]

TableException = ProgramError
CatalogException = CatalogError
DatabaseAlreadyExistException = DatabaseAlreadyExistError
DatabaseNotEmptyException = DatabaseNotEmptyError
DatabaseNotExistException = DatabaseNotExistError
FunctionAlreadyExistException = FunctionAlreadyExistError
FunctionNotExistException = FunctionNotExistError
PartitionAlreadyExistsException = PartitionAlreadyExistsError
PartitionNotExistException = PartitionNotExistError
PartitionSpecInvalidException = PartitionSpecInvalidError
TableAlreadyExistException = TableAlreadyExistError
TableNotExistException = TableNotExistError
TableNotPartitionedException = TableNotPartitionedError
