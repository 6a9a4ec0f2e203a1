"""Starting real provider servers as processes on free loopback ports, for the contract tests."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

BIN = Path(sys.executable).parent
READY_S = 30.0
_RETRY_S = 0.05  # third-party servers do not announce that they listen


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def running(*command: str, port: int) -> AsyncIterator[str]:
    """Run a server's command until the block ends; yields its address once it accepts connections."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(READY_S):
            while not await _listens(port):
                assert process.returncode is None, f"{command[0]} ended with {process.returncode}"
                await asyncio.sleep(_RETRY_S)
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def run(*command: str) -> tuple[int, str]:
    """Run a command to its end; its exit status and everything it printed."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()
