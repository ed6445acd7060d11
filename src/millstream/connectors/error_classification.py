"""Classification of errors of targets: permanent, or worth a retry."""

from __future__ import annotations

import errno
import pickle
from typing import TYPE_CHECKING, Final

from millstream.directories import DirectoryUse, directory_error
from millstream.errors import PermanentSinkError, SinkError

if TYPE_CHECKING:
    from pathlib import Path


#: Somebody has to do something before this can succeed; a disk that is full may be freed any time.
_ERRNOS: Final = frozenset(
    {
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EEXIST,
        errno.ENAMETOOLONG,
        errno.ELOOP,
        errno.EFBIG,
    }
)
#: Code that meets the same record raises them again.
_OF_CODE: Final = (
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    NameError,
    AssertionError,
    NotImplementedError,
    RecursionError,
    pickle.PicklingError,
)
_OUTPUT: Final = DirectoryUse("output directory", "the path of the sink")


def is_permanent(error: BaseException) -> bool:
    """Return whether trying again can only end in the same error."""
    if isinstance(error, OSError):  # before the others: some libraries' errors are both
        return error.errno in _ERRNOS
    return isinstance(error, (PermanentSinkError, *_OF_CODE))


def sink_error(message: str, cause: BaseException) -> SinkError:
    """The error of a sink with ``message``, a permanent one if its cause is."""
    return PermanentSinkError(message) if is_permanent(cause) else SinkError(message)


def directory_refusal(what: str, directory: Path, error: OSError) -> SinkError:
    """The error of a sink that writes files: which directory, why, and what to do.

    Args:
        what: was tried.
        directory: the base directory of the sink.
        error: of the operating system.
    """
    if error.errno == errno.ENAMETOOLONG:
        return PermanentSinkError(f"{what}: the name is too long: {error.filename}")
    if error.errno == errno.ENOENT:
        return SinkError(f"{what}: {error.strerror}: {error.filename or directory}")
    return sink_error(f"{what}: {directory_error(_OUTPUT, directory, error)}", error)
