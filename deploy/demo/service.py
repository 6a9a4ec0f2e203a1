"""The platform under the demo: a `muster up` of its own, or one that is already running."""

import asyncio
import os
import signal
import socket
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, cast

from deploy.embedded.children import Child
from deploy.roles import muster
from deploy.stack import read_stack
from shared.errors import ConfigError, MusterError

READY_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
USUAL_PORT = 8787
_SAID_LINES = 1000
_MAX_LINE_BYTES = 1 << 20


class ServiceError(MusterError):
    """The platform did not start; the text says why, as far as it said so itself."""


@dataclass(frozen=True, slots=True)
class Service:
    """A running `muster up` that belongs to this process."""

    url: str
    child: Child
    drain: asyncio.Task[None]

    async def stop(self) -> int:
        """Drain and end it; its exit code."""
        code = await self.child.stop(signal.SIGTERM, STOP_TIMEOUT_S)
        await self.drain
        return code


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the inside of a running platform is, as far as it is known."""

    simulator_url: str | None = None
    metrics_urls: tuple[str, ...] = ()


def read_addresses(data_dir: Path, url: str) -> Addresses:
    """What `data_dir` tells about the platform at `url`; empty when it tells nothing, or of another one."""
    try:
        stack = read_stack(data_dir)
    except ConfigError:
        return Addresses()
    if stack.url.rstrip("/") != url.rstrip("/"):
        return Addresses()
    workers = (p.internal for name, p in stack.processes.items() if name.startswith("worker-") and p.internal)
    return Addresses(stack.simulator, tuple(f"{internal}/metrics" for internal in workers))


async def start_service(data_dir: Path, port: int, env: Mapping[str, str]) -> Service:
    """Start `muster up` in `data_dir`, an absolute path, and wait until it answers decide requests.

    What it prints goes to `data_dir/up.log`. Raises ServiceError when it ends or stays silent. Cancelling
    stops what was started.
    """
    read_fd, write_fd = os.pipe()
    try:
        argv = muster("up", "--port", str(port), "--data-dir", str(data_dir))
        child = Child.spawn("muster up", argv, env=env, output=write_fd)
    except (OSError, ConfigError) as error:
        os.close(read_fd)
        raise ServiceError(f"the platform cannot be started: {error}") from error
    finally:
        os.close(write_fd)
    lines = asyncio.StreamReader(limit=_MAX_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(read_fd, "rb")
    )
    said: deque[str] = deque(maxlen=_SAID_LINES)
    try:
        url = await asyncio.wait_for(_ready(lines, said, data_dir), READY_TIMEOUT_S)
    except TimeoutError:
        await child.stop(signal.SIGTERM, STOP_TIMEOUT_S)
        raise ServiceError(f"the platform was not ready within {READY_TIMEOUT_S:.0f} s") from None
    except ServiceError:
        await child.wait()
        with suppress(OSError):  # there may be no directory: that is perhaps why
            _keep(said, data_dir, "ab").close()  # another demo may be writing there
        raise
    except asyncio.CancelledError:
        await child.stop(signal.SIGTERM, STOP_TIMEOUT_S)
        raise
    return Service(url, child, asyncio.create_task(_drain(lines, _keep(said, data_dir, "wb"))))


def usual_port() -> int:
    """The usual port when nobody has it, so that the demo answers where games look; else 0, for any."""
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", USUAL_PORT))
        except OSError:
            return 0
    return USUAL_PORT


async def _ready(lines: asyncio.StreamReader, said: deque[str], data_dir: Path) -> str:
    """The address in the line `ready URL`; raises ServiceError with the reason when there is none.

    All other lines are added to `said`.
    """
    async for line in lines:
        text = line.decode(errors="replace").rstrip()
        url = text.removeprefix("ready ")
        # The simulator of the platform says that it is ready, too; `stack.json` tells them apart.
        if url != text and _is_platform(url, data_dir):
            return url
        said.append(text)
    reasons = [text.removeprefix("muster: ") for text in said if text.startswith("muster: ")]
    raise ServiceError(f"the platform did not start: {reasons[-1] if reasons else 'it gave no reason'}")


def _is_platform(url: str, data_dir: Path) -> bool:
    try:
        return read_stack(data_dir).url == url
    except ConfigError:
        return False


def _keep(said: Iterable[str], data_dir: Path, mode: Literal["ab", "wb"]) -> BinaryIO:
    """Begin `up.log`, or add to it, with what was said so far; unbuffered, for whoever follows it."""
    log = cast("BinaryIO", (data_dir / "up.log").open(mode, buffering=0))
    log.write("".join(f"{text}\n" for text in said).encode())
    return log


async def _drain(lines: asyncio.StreamReader, log: BinaryIO) -> None:
    """Read on, so that the child never waits for its own log."""
    with log:
        while chunk := await lines.read(65_536):
            log.write(chunk)
