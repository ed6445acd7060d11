"""Every exception Millstream raises on purpose, in one tree.

::

    MillstreamError
    ├── ConfigurationError              an option is unknown or its value makes no sense
    ├── ProgramError                    the program cannot be run as written
    │   ├── MissingMethodError          a stream has no such method; names where it is
    │   ├── ArgumentValueError          an argument has a value that is not taken; a ValueError
    │   ├── ArgumentTypeError           an argument is of a type that is not taken; a TypeError
    │   ├── UnpicklableFunctionError    a user function cannot be shipped to the workers
    │   ├── TypeMismatchError           a value does not fit the declared type
    │   │   ├── ElementTypeError        it is of another type: a TypeError, too
    │   │   └── ElementValueError       it is of the type, and not in its range: a ValueError, too
    │   ├── ValidationError             a statement makes no sense: a name, a type, an option
    │   ├── CatalogError                a table or the like is not there, or is there already;
    │   │                               a subclass for each kind: TableNotExistError and others
    │   ├── SqlParserError              a text is no statement; names line and column
    │   └── UnsupportedSqlError         Flink has it and Millstream has not; names what
    ├── UserFunctionError               user code raised; names operator, file and line, record
    │   └── ExpressionError             an expression of SQL fails for a row; names its values
    ├── SourceError                     a source cannot be read
    │   └── MalformedRecordError        a record does not parse; names file and line
    ├── SinkError                       a sink cannot be written or committed
    │   └── PermanentSinkError          the target refuses for good: it would again
    ├── SchemaRegistryError             a schema registry does not answer
    ├── RequirementsError               what python.requirements names cannot be installed
    ├── StateError                      state does not fit the program, or is used wrongly
    │   └── StateStoreError             the store on the local disk fails: run again
    │       └── LocalCopyError          its local copy is damaged and was dropped: run again
    ├── DirectoryError                  a directory of Millstream's is full, read-only, not private
    │   └── ObjectStoreError            an object store does not answer, or refuses a request
    ├── WorkerLostError                 a worker process died while it ran a task
    │   └── SlotLostError               another slot of a pipelined run cannot be reached
    ├── AuthenticationError             the other end of a connection is not of the run
    ├── JobError                        a job ended in failure, after its restarts
    ├── EngineError                     Spark's JVM does not start, or has ended
    └── CheckpointError                 the checkpoint directory cannot be used
        ├── CheckpointExpiredError      an epoch took longer than its timeout and was given up
        ├── ForeignCheckpointError      it belongs to another job
        ├── IncompatibleProgramError    the program would not find what it holds
        ├── UnknownFormatError          it was written by an unknown format version
        ├── CorruptCheckpointError      a checksum does not match or a file is missing
        │   └── SignatureError          a file is not signed with the job's key, or it must not be
        ├── FencedError                 a newer run has taken the job over
        └── InconsistentEpochError      tasks of one epoch saw different attempts of a producer

A message says what happened, where (operator name, the user's file and line, key, epoch) and
what to do about it.  Nothing here prints or logs.
"""

from __future__ import annotations

from typing import TypeVar

_E = TypeVar("_E", bound="MillstreamError")


def located(error: _E) -> _E:
    """Mark an error whose message says where in the program it comes from; returns it."""
    error.is_located = True
    return error


def with_article(noun: str) -> str:
    """Put "a" or "an" before the name of a type, by its first letter."""
    return f"{'an' if noun[:1].lower() in set('aeiou') else 'a'} {noun}"


class MillstreamError(Exception):
    """The root: catching it catches every error Millstream raises on purpose."""

    #: Whether the message says where in the program it comes from.
    is_located: bool = False


class ConfigurationError(MillstreamError):
    """An option is unknown or its value makes no sense."""


class ProgramError(MillstreamError):
    """The program cannot be run as it is written."""


class MissingMethodError(ProgramError, AttributeError):
    """A stream of this kind has no such method."""


class ArgumentValueError(ProgramError, ValueError):
    """An argument has a value that is not taken, where PyFlink raises a ValueError."""


class ArgumentTypeError(ProgramError, TypeError):
    """An argument is of a type that is not taken, where PyFlink raises a TypeError."""


class UnpicklableFunctionError(ProgramError):
    """A user function, or something it closes over, cannot be shipped to the workers."""


class TypeMismatchError(ProgramError):
    """A value does not fit the type declared for its stream."""


class ElementTypeError(TypeMismatchError, TypeError):
    """A value of ``from_elements`` is of another type than its column."""


class ElementValueError(TypeMismatchError, ValueError):
    """A value of ``from_elements`` is of the type of its column, and not in its range."""


class ValidationError(ProgramError):
    """A statement or a table makes no sense: an unknown name, types that do not fit."""


class CatalogError(ProgramError):
    """A catalog, database, table, view or function is not there, or is there already."""


class DatabaseAlreadyExistError(CatalogError):
    """A database that is to be created exists."""


class DatabaseNotEmptyError(CatalogError):
    """A database that is to be dropped holds something."""


class DatabaseNotExistError(CatalogError):
    """There is no such database."""


class FunctionAlreadyExistError(CatalogError):
    """A function that is to be created exists."""


class FunctionNotExistError(CatalogError):
    """There is no such function."""


class PartitionAlreadyExistsError(CatalogError):
    """A partition that is to be created exists."""


class PartitionNotExistError(CatalogError):
    """There is no such partition, or the table has none at all."""


class PartitionSpecInvalidError(CatalogError):
    """The columns of a partition are not those that the table is partitioned by."""


class TableAlreadyExistError(CatalogError):
    """A table or view that is to be created exists."""


class TableNotExistError(CatalogError):
    """There is no such table or view."""


class TableNotPartitionedError(CatalogError):
    """A table has no partitions."""


class SqlParserError(ProgramError):
    """A text is no statement, expression or type of the SQL dialect.

    Args:
        message: What was found and what was expected, with the line and a caret below it.
        line: The line in the text, from 1.
        column: The column in that line, from 1.
    """

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class UnsupportedSqlError(ProgramError):
    """A statement or clause that Flink has and Millstream has not; the message names it."""


class UserFunctionError(MillstreamError):
    """User code raised while processing a record, a timer or a window."""


class ExpressionError(UserFunctionError):
    """An expression of SQL or the Table API fails for the values of a row."""


class SourceError(MillstreamError):
    """A source cannot be listed or read."""


class MalformedRecordError(SourceError):
    """A record of a source does not parse."""


class SinkError(MillstreamError):
    """A sink cannot be opened, written or committed."""


class PermanentSinkError(SinkError):
    """The target of a sink refuses a request, and would refuse it again.

    A record that breaks a constraint, a message that is too large, a directory that is read-only.
    A job is run again after this as after an error of user code: three times without progress,
    then it ends.  Anything that may pass by itself (a server that is down, a disk that is full) is
    a plain ``SinkError``.
    """


class SchemaRegistryError(MillstreamError):
    """A schema registry does not answer, or not as one."""


class RequirementsError(MillstreamError):
    """A package of ``python.requirements`` cannot be installed on a worker."""


class StateError(MillstreamError):
    """State does not fit the program, cannot be read by it, or is used where it cannot be.

    Another run finds the same state and the same program, so the job ends.
    """


class StateStoreError(StateError):
    """The store of a task fails on its local disk; another run makes a new one."""


class LocalCopyError(StateStoreError):
    """The local copy of some state is damaged; it was dropped, the checkpoint has another."""


class CheckpointError(MillstreamError):
    """The checkpoint directory cannot be used."""


class CheckpointExpiredError(CheckpointError):
    """An epoch took longer than ``execution.checkpointing.timeout`` and was given up."""


class ForeignCheckpointError(CheckpointError):
    """The checkpoint directory belongs to another job."""


class IncompatibleProgramError(CheckpointError):
    """The program was changed so that it would not find, or not understand, what is stored."""


class UnknownFormatError(CheckpointError):
    """The checkpoint was written in a format version this release does not know."""


class CorruptCheckpointError(CheckpointError):
    """A file of the checkpoint is missing or its checksum does not match."""


class SignatureError(CorruptCheckpointError):
    """A file of the checkpoint is not signed with the job's key, or is signed and there is none."""


class DirectoryError(MillstreamError):
    """A directory for checkpoints, local state or temporary files cannot be used."""


class ObjectStoreError(DirectoryError):
    """An object store does not answer, refuses a request, or lacks what checkpoints need."""


class FencedError(CheckpointError):
    """A newer run has taken the job over; this one must not publish anything any more."""


class InconsistentEpochError(CheckpointError):
    """Consumers of one epoch read different attempts of the same producer."""


class WorkerLostError(MillstreamError):
    """A worker process died while it ran a task; what it did is done again after a restart."""


class SlotLostError(WorkerLostError):
    """A connection with another slot of a pipelined run ended, or could not be made."""


class AuthenticationError(MillstreamError):
    """The other end of a connection did not show that it belongs to the run."""


class JobError(MillstreamError):
    """The job ended in failure, after the restarts its strategy allows."""


class EngineError(MillstreamError):
    """The engine (Spark's JVM) does not start, or has ended: no restart can help."""

    #: It has worked and ended, so another driver process may run the job.
    has_ended: bool = False
