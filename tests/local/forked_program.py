"""A job of a process that was forked from one with a database of RocksDB's.

``forked_program.py DIRECTORY FIRST``: FIRST is the package that is imported first, ``rocksdict`` or
``millstream``.  Prints what the job gives, then whether the process has threads of RocksDB's and
whether it is taken for one that has.
"""

from __future__ import annotations

import importlib
import os
import sys

importlib.import_module(sys.argv[2])


def child() -> None:
    from millstream.common import Configuration
    from millstream.datastream import StreamExecutionEnvironment
    from millstream.fork_safety import _has_threads, has_threads_of_libraries

    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    configuration.set_string("state.backend.type", "rocksdb")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    records = env.from_collection([("a", 1), ("b", 2), ("a", 3)])
    sums = records.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    with sums.execute_and_collect() as results:  # type: ignore[union-attr]
        print(sorted(results))
    print(_has_threads(), has_threads_of_libraries(), flush=True)


def main() -> None:
    from rocksdict import Rdict

    database = Rdict(sys.argv[1])
    database["a"] = 1
    database.flush()
    pid = os.fork()
    if not pid:
        try:
            child()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
