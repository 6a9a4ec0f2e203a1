"""The log writer's spill: entries on its own disk while Postgres is away, fsynced before acknowledged.

A segment is a file of frames: length and CRC-32 (4 bytes each, big endian; the checksum covers the length,
too), then the entry. Each life of the writer begins segments of its own, so a crash can tear only the end of
one, and what was torn there is still on the stream. Everything here blocks: call it from a thread.
"""

import fcntl
import os
import re
import shutil
import struct
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO
from zlib import crc32

import structlog

from shared.errors import ConfigError, MusterError

SEGMENT_BYTES = 64 << 20
MIN_FREE_BYTES = 256 << 20  # what is left to the rest of the machine
MAX_ENTRY_BYTES = 64 << 20  # a greater length is a torn frame, not an entry
_LENGTH = struct.Struct(">I")
_SEGMENT = re.compile(r"spill-(\d{12})\.seg")

_log = structlog.get_logger(__name__)


class SpillFullError(MusterError):
    """The disk takes no more: the stream has to hold the entries."""


def frame(entry: bytes) -> bytes:
    """An entry as a segment holds it."""
    length = _LENGTH.pack(len(entry))
    return length + _LENGTH.pack(crc32(entry, crc32(length))) + entry


def read_frame(file: BinaryIO) -> bytes | None:
    """The next entry; None at the end, and where a frame is incomplete or its checksum wrong."""
    length, checksum = file.read(_LENGTH.size), file.read(_LENGTH.size)
    if len(checksum) < _LENGTH.size or _LENGTH.unpack(length)[0] > MAX_ENTRY_BYTES:
        return None
    entry = file.read(_LENGTH.unpack(length)[0])
    whole = len(entry) == _LENGTH.unpack(length)[0]
    return entry if whole and crc32(entry, crc32(length)) == _LENGTH.unpack(checksum)[0] else None


class Spill:
    """A queue of entries on disk, oldest first. One process owns its folder."""

    def __init__(
        self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES, min_free_bytes: int = MIN_FREE_BYTES
    ) -> None:
        """Take the folder over, with what an earlier life left there. Raises ConfigError."""
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._min_free_bytes = min_free_bytes
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("ab")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.owner = _owner(folder / "owner")
        except BlockingIOError as exc:
            self._lock.close()
            raise ConfigError(f"MUSTER_SPILL_DIR: another log writer uses {folder}") from exc
        except OSError as exc:
            raise ConfigError(f"MUSTER_SPILL_DIR: cannot use {folder}: {exc.strerror}") from exc
        self._segments = deque(sorted(path for path in folder.iterdir() if _SEGMENT.fullmatch(path.name)))
        self._next_number = _number(self._segments[-1]) + 1 if self._segments else 1
        self._writing: BinaryIO | None = None  # always the last of the segments
        self._offset = 0  # what is committed of the first segment
        self._read_to = 0  # what `read` gave out of it
        self.size_bytes = sum(path.stat().st_size for path in self._segments)

    @property
    def is_empty(self) -> bool:
        return not self._segments

    def append(self, entries: Sequence[bytes]) -> None:
        """Keep entries, on disk when this returns. Raises SpillFullError; some may be kept even then."""
        data = b"".join(map(frame, entries))
        try:
            if shutil.disk_usage(self._folder).free < self._min_free_bytes + len(data):
                raise SpillFullError(f"less than {self._min_free_bytes >> 20} MiB free in {self._folder}")
            file = self._writing or self._begin()
            _write_all(file, data)
            os.fsync(file.fileno())
        except OSError as exc:
            self._seal()  # its end may be torn now: nothing may follow
            raise SpillFullError(f"{self._folder}: {exc.strerror}") from exc
        self.size_bytes += len(data)
        if file.tell() >= self._segment_bytes:
            self._seal()

    def read(self, max_bytes: int) -> list[bytes]:
        """The oldest entries not yet committed, about `max_bytes` of them (at least one).

        Empty when nothing is left. A torn end is cut off here and set aside.
        """
        while self._segments:
            path = self._segments[0]
            if self._writing is not None and len(self._segments) == 1:
                self._seal()
            with path.open("rb") as file:
                entries = self._read_entries(file, max_bytes)
            if entries:
                return entries
            self._remove_first()
        return []

    def commit(self) -> None:
        """What `read` returned last is stored elsewhere: forget it."""
        self.size_bytes -= self._read_to - self._offset
        self._offset = self._read_to
        if self._segments and self._offset >= self._segments[0].stat().st_size:
            self._remove_first()

    def close(self) -> None:
        """Give the folder up; what is in it stays."""
        self._seal()
        self._lock.close()

    def _read_entries(self, file: BinaryIO, max_bytes: int) -> list[bytes]:
        file.seek(self._offset)
        entries: list[bytes] = []
        self._read_to = self._offset
        while self._read_to - self._offset < max_bytes:
            entry = read_frame(file)
            if entry is None:
                break
            entries.append(entry)
            self._read_to = file.tell()
        return entries

    def _begin(self) -> BinaryIO:
        path = self._folder / f"spill-{self._next_number:012}.seg"
        self._next_number += 1
        self._writing = path.open("xb", buffering=0)
        self._segments.append(path)
        _sync_folder(self._folder)
        return self._writing

    def _seal(self) -> None:
        if self._writing is not None:
            self._writing.close()
            self._writing = None

    def _remove_first(self) -> None:
        path = self._segments.popleft()
        left = path.stat().st_size - self._offset
        if left:
            _log.error("spill segment has a torn end", segment=path.name, offset=self._offset, bytes_cut=left)
            path.rename(path.with_suffix(".torn"))
        else:
            path.unlink()
        self.size_bytes = max(0, self.size_bytes - left)
        self._offset = self._read_to = 0


def _write_all(file: BinaryIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:  # a disk that fills up takes a part and refuses the next
        rest = rest[file.write(rest) :]


def _number(path: Path) -> int:
    match = _SEGMENT.fullmatch(path.name)
    return int(match[1]) if match else 0


def _owner(path: Path) -> str:
    """A name that stays with the folder from life to life."""
    if not path.exists():
        path.write_text(token_hex(8), encoding="ascii")
    return path.read_text(encoding="ascii")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
