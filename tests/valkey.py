"""Valkey servers that a test may configure, stop, kill, freeze and start again; by Unix socket and TCP."""

import asyncio
import shutil
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from deploy.embedded.binaries import valkey_server
from deploy.embedded.children import Child

READY_S = 20.0


class ValkeyServer:
    """One server whose data outlive a stop; its port, if it has one, stays the same."""

    def __init__(
        self, *, tcp: bool = False, password: str = "", options: dict[str, str] | None = None
    ) -> None:
        """`options` are the server's own, by name, besides those set here."""
        self.folder = Path(tempfile.mkdtemp(prefix="muster-valkey-"))  # short: a socket's path has 107 bytes
        self.socket = self.folder / "valkey.sock"
        self.port = _free_port() if tcp else 0
        self.password = password
        self._options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "unixsocket": str(self.socket),
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            **({"requirepass": password} if password else {}),
            **(options or {}),
        }
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """Of the Unix socket."""
        return f"unix://{f':{self.password}@' if self.password else ''}{self.socket}"

    @property
    def tcp_url(self) -> str:
        return f"redis://{f':{self.password}@' if self.password else ''}127.0.0.1:{self.port}/0"

    async def start(self) -> None:
        """Returns when it serves its data."""
        argv = [str(valkey_server())]
        for name, value in self._options.items():
            argv += [f"--{name}", value]
        with (self.folder / "log").open("ab") as log:
            self._child = Child.spawn("valkey", argv, env={}, output=log)
        async with asyncio.timeout(READY_S):
            while not await self._serves():
                assert self._child.returncode is None, (self.folder / "log").read_text()
                await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """End it in order."""
        if self._child is not None:
            await self._child.stop(signal.SIGTERM, READY_S)

    async def kill(self) -> None:
        """End it as a crash would."""
        if self._child is not None:
            await self._child.kill()

    async def restart(self) -> None:
        """Crash, and start again."""
        await self.kill()
        await self.start()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        if self._child is not None:
            self._child.suspend()

    def thaw(self) -> None:
        """SIGCONT."""
        if self._child is not None:
            self._child.resume()

    async def remove(self) -> None:
        await self.kill()
        shutil.rmtree(self.folder)

    async def _serves(self) -> bool:
        try:
            reader, writer = await asyncio.open_unix_connection(self.socket)
        except OSError:
            return False
        try:
            writer.write(b"PING\r\n")
            # Without its password it says so, but only when it has its data.
            return (await reader.readline()).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False
        finally:
            writer.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
async def make_valkey() -> AsyncIterator[Callable[..., ValkeyServer]]:
    """Makes servers of this test's own, arguments as of `ValkeyServer`; they are to be started."""
    made: list[ValkeyServer] = []

    def make(**arguments: object) -> ValkeyServer:
        made.append(ValkeyServer(**arguments))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for server in made:
        await server.remove()


@pytest.fixture
async def valkey(make_valkey: Callable[..., ValkeyServer]) -> ValkeyServer:
    """A running server of this test's own, with a port."""
    server = make_valkey(tcp=True)
    await server.start()
    return server
