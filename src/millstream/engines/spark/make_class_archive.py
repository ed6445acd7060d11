"""Make an archive of classes for the JVMs of later sessions, in a separate process.

The program reads a task as JSON from its standard input, has Java write the archive
(``-Xshare:dump``), tries it, renames it into place, and removes archives that are old or too many.
It has low priority; of several such processes one works and the others end at once.  A failure
leaves a note with Java's last output, so that not every session tries again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


#: Of a JVM that uses an archive: it continues without one that does not fit, or is not as it was
#: written, and says nothing of it.
QUIET: Final = (
    *("-Xshare:auto", "-XX:+UnlockDiagnosticVMOptions", "-XX:+VerifySharedSpaces"),
    *("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off"),
)
#: In the list of a session that has run a job; what another one has loaded is not worth keeping.
_OF_A_JOB: Final = b"/MicroBatchExecution"
#: Options that an archive and its users must have in common.
_IN_COMMON: Final = re.compile(
    r"-Xmx.*|-XX:(.UseCompressed\w+|ObjectAlignmentInBytes=.*|CompressedClassSpaceSize=.*)"
)
_OF_SHARING: Final = re.compile(r"-Xshare.*|-Xlog:cds.*|-XX:SharedArchiveFile.*|-Xlog:class.*")
#: Java's heap of an archive can only be made by this collector; others can use it.
_MAKER: Final = ("-XX:+UseG1GC", "-XX:ParallelGCThreads=1", "-XX:TieredStopAtLevel=1")
_LOWEST_PRIORITY: Final = 19
_DUMP_SECONDS: Final = 600
_TRIAL_SECONDS: Final = 60
#: What is kept: each is 100 to 200 MB.
_MOST_ARCHIVES: Final = 3
_MOST_BYTES: Final = 768 * 2**20
_OLDEST_SECONDS: Final = 30 * 86_400
#: Bytes of Java's last words in a note.
_OUTPUT_TAIL: Final = 4_000


def make(java: str, class_path: str, options: Sequence[str], loaded: Path, archive: Path) -> bool:
    """Make an archive, unless there is one, or another process makes one.

    Returns:
        Whether it was made.
    """
    with _lock(archive.parent) as alone:
        if not alone or archive.exists() or _OF_A_JOB not in loaded.read_bytes():
            return False
        new = archive.with_suffix(".new")
        common = [option for option in options if _IN_COMMON.fullmatch(option)]
        rest = [option for option in options if not _OF_SHARING.fullmatch(option)]
        try:
            _run(
                [java, "-Xshare:dump", f"-XX:SharedClassListFile={loaded}", *common, *_MAKER],
                [f"-XX:SharedArchiveFile={new}", "-cp", _without_duplicates(class_path)],
                seconds=_DUMP_SECONDS,
            )
            # As a session does it, but that it would fail.
            _run(
                [java, *rest, "-Xshare:on", f"-XX:SharedArchiveFile={new}"],
                ["-cp", class_path, "-version"],
                seconds=_TRIAL_SECONDS,
            )
            _flush(new)
            new.replace(archive)
        except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
            archive.with_suffix(".failed").write_text(f"{error}\n")
            return False
        finally:
            new.unlink(missing_ok=True)
            prune(archive.parent, keep=archive)
        return True


def _without_duplicates(class_path: str) -> str:
    """A class path whose entries have different names, but are the same files.

    Spark names one file twice.  Java 21 leaves the second out when it makes an archive, not when it
    uses one, and then compares files that are not the same.
    """
    entries: list[str] = []
    for entry in class_path.split(os.pathsep):
        directory, _, name = entry.rpartition("/")
        entries.append(f"{directory}/./{name}" if entry in entries else entry)
    return os.pathsep.join(entries)


def _run(command: Sequence[str], more: Sequence[str], *, seconds: int) -> None:
    done = subprocess.run(  # noqa: S603 - the user's own Java
        [*command, *more],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        check=False,
    )
    if done.returncode != 0:
        said = done.stdout.decode(errors="replace")[-_OUTPUT_TAIL:]
        message = f"{' '.join(command)} ended with {done.returncode}:\n{said}"
        raise RuntimeError(message)


def _flush(path: Path) -> None:
    """To the disk before it has its name: after a crash of the machine it is whole or not there."""
    with path.open("rb") as stream:  # Java lets nobody write to it
        os.fsync(stream.fileno())


@contextlib.contextmanager
def _lock(directory: Path) -> Iterator[bool]:
    """Whether this process is the only one that makes archives here, for as long as it does."""
    descriptor = os.open(directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)


def prune(directory: Path, keep: Path) -> None:
    """Remove archives that are old, too many or too large, and what dead processes have left.

    The caller has the lock.  A JVM that uses a removed one has it mapped.

    Args:
        directory: of the archives.
        keep: one that stays whatever its size.
    """
    now = time.time()
    archives = sorted(
        ((path.stat().st_mtime, path) for path in directory.glob("classes-*.jsa") if path != keep),
        reverse=True,
    )
    size = keep.stat().st_size if keep.exists() else 0
    for number, (used, path) in enumerate(archives, start=1):
        size += path.stat().st_size
        if number >= _MOST_ARCHIVES or size > _MOST_BYTES or now - used > _OLDEST_SECONDS:
            path.unlink(missing_ok=True)
    for left in (*directory.glob("classes-*.list"), *directory.glob("classes-*.failed")):
        if now - left.stat().st_mtime > _OLDEST_SECONDS:
            left.unlink(missing_ok=True)
    for left in directory.glob("classes-*.new"):
        left.unlink(missing_ok=True)  # of a process that was killed: the lock is ours


def main() -> int:
    """Do the task on the standard input; returns the exit code."""
    task = json.load(sys.stdin)
    os.nice(_LOWEST_PRIORITY)
    loaded = Path(task["loaded"])
    try:
        made = make(
            task["java"], task["class_path"], task["options"], loaded, Path(task["archive"])
        )
    finally:
        loaded.unlink(missing_ok=True)
    return 0 if made else 1


if __name__ == "__main__":
    sys.exit(main())
