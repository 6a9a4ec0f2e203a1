"""The embedded Postgres: a child process on a Unix socket, also where we are root, which it refuses to be."""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote

from deploy.embedded.binaries import SHARED_HOME, postgres_programs
from deploy.embedded.children import Child, unprivileged_account
from deploy.embedded.servers import ServerLog, ServerStartError, short_path, until_unused

_START_S: Final = 60.0  # crash recovery replays up to max_wal_size
_STOP_S: Final = 20.0  # a checkpoint
_LOOK_S: Final = 0.01
_DATABASE: Final = "muster"
_ROLE: Final = "muster"
_SOCKET: Final = ".s.PGSQL.5432"
_PID_FILE_STATUS_LINE: Final = 7  # LOCK_FILE_LINE_PM_STATUS of miscadmin.h, counted from 0
_SETTINGS: Final = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "shared_buffers": "64MB",
    "max_wal_size": "512MB",
    "checkpoint_timeout": "15min",
    # One machine, nothing to replicate to: less to write and fewer processes to wake.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_logical_replication_workers": "0",
    "io_method": "sync",
    "autovacuum_naptime": "60s",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
}


class EmbeddedPostgres:
    """One server whose data live in `directory`; start, stop, kill and start again keep them.

    As root it runs as nobody. That account may be unable to reach `directory` (below /root, say), so the
    server gets it as an open descriptor and names it `/proc/self/fd/N`: no folder has to be opened to others.
    """

    def __init__(self, directory: Path, shared_home: Path = SHARED_HOME) -> None:
        """`directory` is made when it is missing; `shared_home` is for what `postgres_programs` may copy."""
        self.directory = directory.absolute()
        self._home = self.directory / "home"  # all that the server itself may touch
        self._sockets = self._home / "run"
        self._log = ServerLog(self.directory / "postgres.log")
        self._shared_home = shared_home
        self._account = unprivileged_account()
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """For `MUSTER_POSTGRES_URL`; known once started."""
        # The port names the socket, and would be taken from PGPORT if it were left out.
        return f"postgresql://{_ROLE}@/{_DATABASE}?host={quote(str(self._sockets))}&port=5432"

    async def start(self) -> Child:
        """Start, after making the database the first time. Raises ServerStartError with the reason given."""
        self._prepare()
        programs = postgres_programs(self._account, self._shared_home)
        if not (self._home / "data").exists():
            await self._initialise(programs)
        await self._clear_leftovers()
        settings = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
        with self._log.open() as output:
            child = self._spawn(
                lambda home: [f"{programs}/postgres", "-D", f"{home}/data", "-k", f"{home}/run", *settings],
                output,
            )
        self._child = child
        with child.ended_on_failure():
            try:
                await asyncio.wait_for(self._until_ready(child), _START_S)
            except TimeoutError:
                raise ServerStartError(f"postgres was not ready within {_START_S:.0f} s") from None
        return child

    def _prepare(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self._home, self._home / "run"):
            folder.mkdir(mode=0o700, exist_ok=True)
            if self._account is not None:
                os.chown(folder, self._account.uid, self._account.gid)
        self._sockets = short_path(self._home / "run", _SOCKET)

    async def _initialise(self, programs: Path) -> None:
        """Make the data folder beside its place and move it there when it is whole."""
        fresh = self._home / "data.new"
        if fresh.exists():  # a start was interrupted here
            shutil.rmtree(fresh)
        with tempfile.TemporaryFile() as statements:
            await self._run(
                lambda home: [
                    *(f"{programs}/initdb", "-D", f"{home}/data.new", "-U", _ROLE, "-A", "trust"),
                    *("--locale=C", "--encoding=UTF8", "--no-instructions"),
                ],
                statements,
            )
            statements.write(f"CREATE DATABASE {_DATABASE}\n".encode())
            statements.seek(0)
            await self._run(
                lambda home: [
                    *(f"{programs}/postgres", "--single", "-D", f"{home}/data.new"),
                    *("-c", "log_checkpoints=off", "postgres"),
                ],
                statements,
            )
        fresh.rename(self._home / "data")

    async def _run(self, argv: Callable[[str], list[str]], stdin: IO[bytes]) -> None:
        with self._log.open() as output:
            child = self._spawn(argv, output, stdin)
        with child.ended_on_failure():
            code = await child.wait()
        if code != 0:
            raise ServerStartError(f"the database could not be made: {self._log.reason()}")

    def _spawn(
        self, argv: Callable[[str], list[str]], output: IO[bytes], stdin: IO[bytes] | None = None
    ) -> Child:
        with self._home_as_seen_by_the_server() as (home, descriptors):
            return Child.spawn(
                "postgres",
                argv(home),
                env={"PATH": os.defpath, "LC_ALL": "C"},  # no PG* variable of the caller's
                output=output,
                stdin=stdin,
                account=self._account,
                pass_fds=descriptors,
            )

    @contextmanager
    def _home_as_seen_by_the_server(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        if self._account is None or sys.platform != "linux":
            yield str(self._home), ()
            return
        descriptor = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{descriptor}", (descriptor,)
        finally:
            os.close(descriptor)

    async def _clear_leftovers(self) -> None:
        """Wait for what a crash left running, then forget its process id, which may be another's by now."""
        data = self._home / "data"
        await until_unused(data)
        if sys.platform == "linux":  # elsewhere nobody could be seen: Postgres itself looks at its pid file
            for leftover in (
                data / "postmaster.pid",
                self._sockets / _SOCKET,
                self._sockets / f"{_SOCKET}.lock",
            ):
                leftover.unlink(missing_ok=True)

    async def _until_ready(self, child: Child) -> None:
        while not _says_ready(self._home / "data" / "postmaster.pid"):
            if child.returncode is not None:
                raise ServerStartError(f"postgres did not start: {self._log.reason()}")
            await asyncio.sleep(_LOOK_S)

    async def stop(self) -> None:
        """End its sessions, write a checkpoint and end (pg_ctl's fast shutdown)."""
        if self._child is not None:
            await self._child.stop(signal.SIGINT, _STOP_S)

    async def kill(self) -> None:
        """End it as a crash would."""
        if self._child is not None:
            await self._child.kill()

    def suspend(self) -> None:
        """Freeze it: connections stay, nothing answers."""
        if self._child is not None:
            self._child.suspend()

    def resume(self) -> None:
        """Go on after `suspend`."""
        if self._child is not None:
            self._child.resume()


def _says_ready(pid_file: Path) -> bool:
    try:
        lines = pid_file.read_text().splitlines()
    except OSError:
        return False
    return len(lines) > _PID_FILE_STATUS_LINE and lines[_PID_FILE_STATUS_LINE].strip() == "ready"
