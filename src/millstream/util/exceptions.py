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
