"""A whole platform for tests: `muster up` as a process of its own on a folder of its own."""

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from deploy.embedded.children import descendants
from deploy.stack import Stack, read_stack

READY_S = 60
STOP_S = 60
MUSTER = Path(sysconfig.get_path("scripts")) / "muster"


class Up:
    """One `muster up`, from its ready line to its end."""

    def __init__(
        self, data_dir: Path, options: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> None:
        self.data_dir = data_dir
        self.log = data_dir.with_name(f"{data_dir.name}.log")
        argv = [sys.executable, str(MUSTER), "up", "--data-dir", str(data_dir), "--port", "0", *options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                argv, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, stderr=log
            )
        self.url = ""

    def ready(self) -> "Up":
        """Wait for the ready line."""
        stdout = self.process.stdout
        assert stdout is not None
        said, _, _ = select.select([stdout], [], [], READY_S)
        line = stdout.readline().decode() if said else ""
        assert line.startswith("ready http://127.0.0.1:"), self.stderr()
        self.url = line.split()[1]
        return self

    def stderr(self) -> str:
        """What it and its roles have written."""
        return self.log.read_text(errors="replace")

    def stack(self) -> Stack:
        """What `stack.json` says now."""
        return read_stack(self.data_dir)

    def pid(self, name: str) -> int:
        """Of the process of that name now."""
        return self.stack().processes[name].pid

    def pids(self) -> list[int]:
        """Of the supervisor and everything below it."""
        return [self.process.pid, *descendants(self.process.pid)]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(STOP_S)

    def stop(self) -> int:
        """Drain and end it; its exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def remaining_output(self) -> str:
        """What it wrote to standard output after the ready line, once it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.read().decode()

    def remove(self) -> None:
        """End it whatever state it is in."""
        if self.process.poll() is None:
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Ends:
    """Waits for the end of processes that are not our own children; make it while they run."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._descriptors = [os.pidfd_open(pid) for pid in pids]

    def all(self, within_s: float) -> bool:
        """Whether all have ended within that time."""
        try:
            return all(select.select([descriptor], [], [], within_s)[0] for descriptor in self._descriptors)
        finally:
            for descriptor in self._descriptors:
                os.close(descriptor)


@contextlib.contextmanager
def ups() -> Iterator[Callable[..., Up]]:
    """A function that starts a platform; all it started is gone afterwards, and so are the data.

    `data_dir` unless given is new; `options` and `env` go to `muster up`.
    """
    started: list[Up] = []
    with tempfile.TemporaryDirectory(prefix="muster-test-") as folder:

        def start(*options: str, data_dir: Path | None = None, env: Mapping[str, str] | None = None) -> Up:
            up = Up(data_dir or Path(folder) / f"data-{len(started)}", options, env)
            started.append(up)
            return up

        try:
            yield start
        finally:
            for up in started:
                ends = Ends(up.pids() if up.process.poll() is None else [])
                up.remove()
                ends.all(10)


@pytest.fixture
def muster_up() -> Iterator[Callable[..., Up]]:
    """`ups` for one test."""
    with ups() as start:
        yield start


async def eventually(condition: Callable[[], bool], within_s: float = 30) -> None:
    """Wait for what only another process can bring about."""
    async with asyncio.timeout(within_s):
        while True:
            if condition():
                return
            await asyncio.sleep(0.02)
