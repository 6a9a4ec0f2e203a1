"""Kept processes, with real ones: restart, replacement, drain, force; and how a role is known to be ready."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from deploy.embedded.children import Child
from deploy.keeping import Kept
from deploy.roles import Role, RoleStartError, launch
from shared.errors import MusterError

_IDLE = "import signal; signal.pause()"
_STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)\nwhile 1: signal.pause()"
)
_READY = """
import os, socket
listener = socket.socket(fileno=int(os.environ["MUSTER_INTERNAL_BIND"].removeprefix("fd:")))
for status in ("503 No", "200 OK"):
    connection, _ = listener.accept()
    connection.recv(1000)
    connection.sendall(f"HTTP/1.1 {status}\\r\\n\\r\\n".encode())
    connection.close()
import signal; signal.pause()
"""


class Starts:
    """Starts a Python program again and again, after as many failures as told."""

    def __init__(self, program: str, failures: int = 0) -> None:
        self.program = program
        self.failures = failures
        self.children: list[Child] = []

    async def __call__(self) -> Child:
        if self.failures > 0:
            self.failures -= 1
            raise MusterError("not yet")
        child = Child.spawn(
            "test", [sys.executable, "-S", "-c", self.program], env={}, output=subprocess.DEVNULL
        )
        self.children.append(child)
        return child


class Changes:
    """Counts new processes and lets a test wait for them."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[None] = asyncio.Queue()

    def __call__(self) -> None:
        self._queue.put_nowait(None)

    async def next(self) -> None:
        await asyncio.wait_for(self._queue.get(), 10)


async def kept(starts: Starts, patience_s: float = 10) -> tuple[Kept, Changes, "asyncio.Task[None]"]:
    changes = Changes()
    place = Kept("test", starts, changes, patience_s=patience_s)
    await place.begin()
    await changes.next()
    return place, changes, asyncio.ensure_future(place.keep())


async def finish(place: Kept, keeping: "asyncio.Task[None]") -> None:
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await place.end(asyncio.Event())


async def test_what_ends_is_started_again_also_after_failed_attempts() -> None:
    starts = Starts(_IDLE)
    place, changes, keeping = await kept(starts)
    starts.failures = 2
    starts.children[0].send(signal.SIGKILL)
    await changes.next()
    assert starts.failures == 0
    assert place.child is starts.children[1]
    assert starts.children[1].returncode is None
    await finish(place, keeping)


async def test_a_replacement_runs_before_the_old_one_is_told_and_is_kept_too() -> None:
    starts = Starts(_IDLE)
    place, changes, keeping = await kept(starts)
    await place.replace()
    await changes.next()
    first, second = starts.children
    assert first.returncode == -signal.SIGTERM
    assert second.returncode is None
    second.send(signal.SIGKILL)
    await changes.next()
    assert len(starts.children) == 3
    await finish(place, keeping)


async def test_a_replacement_that_cannot_start_leaves_the_old_one_alone() -> None:
    starts = Starts(_IDLE)
    place, _, keeping = await kept(starts)
    starts.failures = 1
    with pytest.raises(MusterError, match="not yet"):
        await place.replace()
    assert place.child is starts.children[0]
    assert starts.children[0].returncode is None
    await finish(place, keeping)


async def test_what_does_not_drain_in_time_is_killed() -> None:
    starts = Starts(_STUBBORN)
    place, _, keeping = await kept(starts, patience_s=0.5)
    await deaf(starts.children[0])
    await finish(place, keeping)
    assert starts.children[0].returncode == -signal.SIGKILL


async def test_hurry_kills_what_still_drains() -> None:
    starts = Starts(_STUBBORN)
    place, _, keeping = await kept(starts, patience_s=600)
    await deaf(starts.children[0])
    keeping.cancel()
    hurry = asyncio.Event()
    ending = asyncio.ensure_future(place.end(hurry))
    await asyncio.sleep(0)
    assert not ending.done()
    hurry.set()
    await asyncio.wait_for(ending, 10)
    assert starts.children[0].returncode == -signal.SIGKILL


async def test_both_end_when_a_replacement_is_interrupted() -> None:
    starts = Starts(_STUBBORN)
    place, changes, keeping = await kept(starts, patience_s=600)
    await deaf(starts.children[0])
    replacing = asyncio.ensure_future(place.replace())
    await changes.next()
    await deaf(starts.children[1])
    replacing.cancel()
    await asyncio.gather(replacing, return_exceptions=True)
    keeping.cancel()
    hurry = asyncio.Event()
    hurry.set()
    await asyncio.wait_for(place.end(hurry), 10)
    assert [child.returncode for child in starts.children] == [-signal.SIGKILL] * 2


async def test_a_suspended_process_still_ends() -> None:
    starts = Starts(_IDLE)
    place, _, keeping = await kept(starts, patience_s=10)
    starts.children[0].suspend()
    await finish(place, keeping)
    assert starts.children[0].returncode == -signal.SIGTERM


async def test_a_role_is_ready_when_it_says_so_and_not_before() -> None:
    launched = await launch(Role("test", (sys.executable, "-c", _READY)), {})
    assert launched.internal.startswith("http://127.0.0.1:")
    assert launched.child.returncode is None
    await launched.child.kill()


@pytest.mark.parametrize("program", [["-c", "raise SystemExit(3)"], ["-S", "-c", "import os; os._exit(3)"]])
async def test_a_role_that_ends_before_it_is_ready_is_an_error(program: Sequence[str]) -> None:
    with pytest.raises(RoleStartError, match="test ended with code 3 before it was ready"):
        await launch(Role("test", (sys.executable, *program)), {})


async def test_a_start_that_is_cancelled_leaves_no_process() -> None:
    child = await Starts(_IDLE)()
    with pytest.raises(asyncio.CancelledError), child.ended_on_failure():
        raise asyncio.CancelledError
    assert await child.wait() == -signal.SIGKILL


async def deaf(child: Child) -> None:
    """Until it ignores SIGTERM (SigIgn of proc(5))."""
    status = Path(f"/proc/{child.pid}/status")
    async with asyncio.timeout(10):
        while True:
            if ignored(status) >> (signal.SIGTERM - 1) & 1:
                return
            await asyncio.sleep(0.01)


def ignored(status: Path) -> int:
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines["SigIgn"], 16)
