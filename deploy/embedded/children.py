"""Child processes that cannot outlive this one. Linux; elsewhere the death signal is left out."""

import asyncio
import ctypes
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

_PR_SET_PDEATHSIG: Final = 1  # <linux/prctl.h>
_POLL_S: Final = 0.05  # how often an exit is looked for where the kernel has no pidfd
_NOBODY: Final = 65_534  # the overflow id, where the account has no name


@dataclass(frozen=True, slots=True)
class Account:
    """Whom a child runs as."""

    uid: int
    gid: int


def unprivileged_account() -> Account | None:
    """The account that root lends to servers which refuse to run as root; None for anybody else."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return Account(_NOBODY, _NOBODY)
    return Account(entry.pw_uid, entry.pw_gid)


class Child:
    """A running process of ours: in a session of its own, killed by the kernel should we die."""

    def __init__(self, process: "subprocess.Popen[bytes]", name: str) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._watch()

    @staticmethod
    def spawn(
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        output: int | IO[bytes],
        stdout: int | IO[bytes] | None = None,
        stdin: IO[bytes] | None = None,
        account: Account | None = None,
        pass_fds: Sequence[int] = (),
    ) -> "Child":
        """Start `argv` with both its outputs going to `output`, or standard output to `stdout`.

        Call from the main thread: the death signal fires when the *thread* that forked ends (prctl(2)).
        The child leads a session, so that a Ctrl-C meant for us does not reach it out of order.
        Raises OSError where the program cannot be started.
        """
        process = subprocess.Popen(
            argv,
            env=dict(env),
            cwd="/",
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=output if stdout is None else stdout,
            stderr=output,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else (),
            preexec_fn=_die_with_parent(),
        )
        return Child(process, name)

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self._process.poll()

    async def wait(self) -> int:
        """Until it has ended; its exit code, negative for a signal."""
        return await asyncio.shield(self._ended)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if it has ended."""
        self._process.send_signal(number)

    async def stop(self, number: signal.Signals, patience_s: float) -> int:
        """Ask it to end, and end it by force when it has not within `patience_s`. Returns its exit code."""
        self.resume()  # a frozen process hears no request
        self.send(number)
        try:
            return await asyncio.wait_for(self.wait(), patience_s)
        except TimeoutError:
            return await self.kill()

    async def kill(self) -> int:
        """End it and its process group at once."""
        if self.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
        return await self.wait()

    @contextmanager
    def ended_on_failure(self) -> Iterator[None]:
        """Around what has to succeed for the process to be of use: if it does not, nothing stays behind."""
        try:
            yield
        except BaseException:  # also when the start is cancelled
            if self.returncode is None:
                os.killpg(self.pid, signal.SIGKILL)
            raise

    def suspend(self) -> None:
        """Freeze it and all its descendants."""
        self._signal_tree(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen tree run on."""
        self._signal_tree(signal.SIGCONT)

    def _signal_tree(self, number: signal.Signals) -> None:
        if self.returncode is not None:
            return
        for pid in (self.pid, *descendants(self.pid)):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, or a kernel without it
            loop.call_soon(self._look)
            return
        loop.add_reader(pidfd, self._reap, pidfd)

    def _reap(self, pidfd: int) -> None:
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)
        self._settle(self._process.wait())

    def _look(self) -> None:
        code = self._process.poll()
        if code is None:
            asyncio.get_running_loop().call_later(_POLL_S, self._look)
        else:
            self._settle(code)

    def _settle(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)


def descendants(pid: int) -> list[int]:
    """The process ids below `pid`, parents first; empty where there is no /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [pid]
    for parent in found:
        found.extend(children.get(parent, ()))
    return found[1:]


def processes_in(folder: Path) -> list[int]:
    """The process ids whose working directory is `folder`; empty where there is no /proc."""
    found = []
    real = folder.resolve()
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if link.readlink() == real:
                found.append(int(link.parent.name))
        except OSError:
            continue  # it ended meanwhile, or is another user's
    return found


def _die_with_parent() -> Callable[[], None] | None:
    """What a fresh child runs before its program: after the change of account, which clears the signal."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def ask_for_the_death_signal() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:  # it died between fork and prctl: nothing would ever be sent
            os._exit(1)

    return ask_for_the_death_signal
