"""A real Postgres for tests: one server a session, a fresh database a test.

Fixtures: `empty_database` and `database` (migrated) give the URL of a database of the test's own;
`own_postgres` makes a server that the test may stop, kill or freeze.
"""

import asyncio
import contextlib
import ctypes
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from deploy.embedded.binaries import postgres_programs
from deploy.embedded.children import unprivileged_account
from shared.store.migrations import migrate

_PR_SET_PDEATHSIG = 1
_NUMBERS = itertools.count(1)


_LIBC = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


class PostgresServer:
    """A server on a socket in a folder of its own; its data outlives a stop."""

    def __init__(self, pristine: Path | None = None) -> None:
        """With data of its own, or a copy of those in `pristine`, the folder of a server never started."""
        self._account = unprivileged_account()
        self._programs = postgres_programs(self._account)
        self.folder = Path(tempfile.mkdtemp(prefix="muster-pg-", dir="/tmp"))
        if self._account is not None:
            os.chown(self.folder, self._account.uid, self._account.gid)
        self._data = self.folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        if pristine is None:
            how = ["-A", "trust", "-U", "muster", "-E", "UTF8", "--locale=C"]
            self._run(["initdb", "-D", str(self._data), *how])
        else:
            self._run_any(["cp", "-a", str(pristine / "data"), str(self._data)])

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://muster@/{database}?host={self.folder}"

    def start(self) -> None:
        """Run it; returns when it answers."""
        settings = {"listen_addresses": "", "fsync": "off", "max_connections": "60", "timezone": "Asia/Tokyo"}
        argv = [str(self._programs / "postgres"), "-D", str(self._data), "-k", str(self.folder)]
        for name, value in settings.items():
            argv += ["-c", f"{name}={value}"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                argv,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                preexec_fn=_die_with_parent,
                **self._identity(),
            )
        deadline = time.monotonic() + 20
        ask = [self._programs / "pg_isready", "-q", "-d", self.url()]
        while subprocess.run(ask, check=False).returncode:
            assert time.monotonic() < deadline, (self.folder / "log").read_text()

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT in order, SIGKILL (with all its backends) as a crash."""
        if self._process is None:
            return
        self._signal_all(number) if number == signal.SIGKILL else self._process.send_signal(number)
        self._process.wait(timeout=20)
        self._process = None

    def freeze(self) -> None:
        """Stop it and its backends in their tracks: connections stay open and nothing answers."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        assert self._process is not None
        server = psutil.Process(self._process.pid)
        for process in (server, *server.children(recursive=True)):  # each backend leads a group of its own
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def execute(self, sql: str, database: str = "postgres") -> str:
        """Run SQL with psql; returns what it printed, bare."""
        argv = ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.url(database), "-c", sql]
        return self._run(argv).strip()

    def dump_schema(self, database: str) -> str:
        return self._run(["pg_dump", "--schema-only", "--no-owner", "-d", self.url(database)])

    def remove(self) -> None:
        if self._process is not None:
            self.thaw()
            self.stop(signal.SIGKILL)
        shutil.rmtree(self.folder)

    def _run(self, argv: list[str]) -> str:
        return self._run_any([str(self._programs / argv[0]), *argv[1:]])

    def _run_any(self, argv: list[str]) -> str:
        done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd="/", **self._identity())
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _identity(self) -> dict[str, object]:
        if self._account is None:
            return {}
        return {"user": self._account.uid, "group": self._account.gid, "extra_groups": ()}


@pytest.fixture(scope="session")
def pristine_postgres() -> Iterator[Path]:
    """A folder with the data of a server never started: copying it is faster than making it."""
    server = PostgresServer()
    yield server.folder
    server.remove()


@pytest.fixture(scope="session")
def postgres_server(pristine_postgres: Path) -> Iterator[PostgresServer]:
    """The session's server, with a migrated database `template` to copy."""
    server = PostgresServer(pristine_postgres)
    try:
        server.start()
        server.execute("CREATE DATABASE template")
        asyncio.run(migrate(server.url("template")))
        yield server
    finally:
        server.remove()


@pytest.fixture
def make_database(postgres_server: PostgresServer) -> Iterator[Callable[..., str]]:
    """Makes databases of this test's own, copies of `template`; returns their URLs."""
    made: list[str] = []

    def make(template: str = "template") -> str:
        made.append(f"test_{next(_NUMBERS)}")
        postgres_server.execute(f"CREATE DATABASE {made[-1]} TEMPLATE {template}")
        return postgres_server.url(made[-1])

    yield make
    for name in made:
        postgres_server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database(make_database: Callable[..., str]) -> str:
    """The URL of a fresh database with the schema."""
    return make_database()


@pytest.fixture
def empty_database(make_database: Callable[..., str]) -> str:
    """The URL of a fresh database without anything."""
    return make_database("template1")


@pytest.fixture
def own_postgres(pristine_postgres: Path) -> Iterator[PostgresServer]:
    """A running server of this test's own, whose database `postgres` is migrated."""
    server = PostgresServer(pristine_postgres)
    try:
        server.start()
        asyncio.run(migrate(server.url()))
        yield server
    finally:
        server.remove()
