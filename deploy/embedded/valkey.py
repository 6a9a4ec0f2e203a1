"""The embedded Valkey: the product's Redis-protocol server, as a child process on a Unix socket."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Final

from deploy.embedded.binaries import valkey_server
from deploy.embedded.children import Child
from deploy.embedded.servers import ServerLog, ServerStartError, short_path, until_unused

_START_S: Final = 30.0  # loading a large append-only file takes its time
_STOP_S: Final = 20.0  # a last fsync of the append-only file
_LOOK_S: Final = 0.01
_SOCKET: Final = "valkey.sock"
_OPTIONS: Final = {
    "port": "0",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "aof-load-truncated": "yes",  # a crash may tear the last write: what is whole is kept
    "save": "",
    "maxmemory": "0",
    "loglevel": "warning",
    "unixsocketperm": "700",
    "daemonize": "no",
}


class EmbeddedValkey:
    """One server whose data live in `directory`; start, stop, kill and start again keep them."""

    def __init__(self, directory: Path) -> None:
        """`directory` is made when it is missing."""
        self.directory = directory.absolute()
        self.socket = self.directory / "run" / _SOCKET
        self._log = ServerLog(self.directory / "valkey.log")
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """For `MUSTER_REDIS_URL`; known once started."""
        return f"unix://{self.socket}"

    async def start(self) -> Child:
        """Start and wait until it has loaded its data. Raises ServerStartError with the reason it gave."""
        self._prepare()
        await until_unused(self.directory / "data")
        options = {**_OPTIONS, "dir": str(self.directory / "data"), "unixsocket": str(self.socket)}
        argv = [str(valkey_server())]
        for name, value in options.items():
            argv += [f"--{name}", value]
        with self._log.open() as output:
            child = Child.spawn("valkey", argv, env={"PATH": os.defpath}, output=output)
        self._child = child
        with child.ended_on_failure():
            try:
                await asyncio.wait_for(self._until_ready(child), _START_S)
            except TimeoutError:
                raise ServerStartError(f"valkey was not ready within {_START_S:.0f} s") from None
        return child

    def _prepare(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in ("data", "run"):
            (self.directory / folder).mkdir(mode=0o700, exist_ok=True)
        self.socket = short_path(self.directory / "run", _SOCKET) / _SOCKET
        self.socket.unlink(missing_ok=True)  # left by a crash

    async def _until_ready(self, child: Child) -> None:
        while not await _answers(self.socket):
            if child.returncode is not None:
                raise ServerStartError(f"valkey did not start: {self._log.reason()}")
            await asyncio.sleep(_LOOK_S)

    async def stop(self) -> None:
        """Write everything to disk and end."""
        if self._child is not None:
            await self._child.stop(signal.SIGTERM, _STOP_S)

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


async def _answers(path: Path) -> bool:
    """Whether a PING is answered with PONG, which it is not while data are loaded."""
    try:
        reader, writer = await asyncio.open_unix_connection(str(path))
    except OSError:
        return False
    try:
        writer.write(b"PING\r\n")
        return await reader.readline() == b"+PONG\r\n"
    except OSError:
        return False
    finally:
        writer.close()
