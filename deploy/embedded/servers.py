"""What both embedded servers need: a log file, its last words, a socket path that is short enough."""

import asyncio
import contextlib
import hashlib
import os
import signal
import stat
import tempfile
from pathlib import Path
from typing import IO, Final

from deploy.embedded.children import processes_in
from shared.errors import MusterError

_SOCKET_PATH_BYTES: Final = 100  # sun_path holds 108 on Linux, 104 on macOS (unix(7))
_LOG_BYTES: Final = 4 * 1024 * 1024  # a log above this is begun anew at the next start
_REASON_CHARACTERS: Final = 300
_LEFTOVERS_S: Final = 10.0  # a killed server's own children notice within milliseconds
_LOOK_S: Final = 0.01


class ServerStartError(MusterError):
    """An embedded server did not come up; the text holds the reason it gave."""


class ServerLog:
    """The file that takes a server's own output, appended to over its starts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._start = 0

    def open(self) -> IO[bytes]:
        """For the next start: 0600, begun anew when it has grown large."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.path.exists() and self.path.stat().st_size > _LOG_BYTES:
            self.path.unlink()
        self.path.touch(mode=0o600)
        self._start = self.path.stat().st_size
        return self.path.open("ab")

    def reason(self) -> str:
        """Why the last start failed: its last fatal line, else its last one, printable and short."""
        lines = self.path.read_bytes()[self._start :].decode(errors="replace").splitlines()
        said = [line for line in lines if line.strip()]
        fatal = [line for line in said if "FATAL" in line or "rror" in line]
        text = (fatal or said or ["it said nothing"])[-1]
        return "".join(c for c in text if c.isprintable())[-_REASON_CHARACTERS:]


async def until_unused(data: Path) -> None:
    """Wait for what a crash left running in `data`: both servers make it their working directory.

    Raises ServerStartError when it stays. Sees nothing where there is no /proc.
    """
    deadline = asyncio.get_running_loop().time() + _LEFTOVERS_S
    while left := processes_in(data):
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)  # a frozen one cannot notice that its parent is gone
        if asyncio.get_running_loop().time() > deadline:
            raise ServerStartError(f"{data} is in use by process {left[0]}")
        await asyncio.sleep(_LOOK_S)


def short_path(folder: Path, file_name: str) -> Path:
    """`folder`, or a link to it below the temporary directory where a socket's path in it would be too long.

    The same folder gives the same link, so that a start after a crash makes no second one.
    Raises ServerStartError where another user holds the link's place.
    """
    if len(os.fsencode(folder / file_name)) <= _SOCKET_PATH_BYTES:
        return folder
    digest = hashlib.blake2b(os.fsencode(folder), digest_size=8).hexdigest()
    place = Path(tempfile.gettempdir()) / f"muster-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    status = place.lstat()
    if (
        not stat.S_ISDIR(status.st_mode)
        or status.st_uid != os.getuid()
        or stat.S_IMODE(status.st_mode) & 0o077
    ):
        raise ServerStartError(f"{place} belongs to somebody else")
    link = place / digest
    link.unlink(missing_ok=True)
    link.symlink_to(folder)
    return link
