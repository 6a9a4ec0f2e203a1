"""The folder that one `muster up` owns: its lock, its keys, the places of its servers' data."""

import base64
import fcntl
import os
import secrets
from pathlib import Path
from typing import Final

from shared.errors import ConfigError

DEFAULT_DATA_DIR: Final = Path("~/.local/share/muster")
_KEY_BYTES: Final = 32  # 256 bits
_FIRST_KEY_ID: Final = 1


class DataDirectory:
    """Held by one process at a time; everything in it is for its owner only."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @staticmethod
    def open(path: Path) -> "DataDirectory":
        """Make `path` (0700) if need be and lock it. Raises ConfigError where another process holds it."""
        folder = path.expanduser().absolute()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigError(f"--data-dir {folder}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 20).decode(errors="replace").strip()
            os.close(lock)
            raise ConfigError(f"--data-dir {folder}: process {holder} runs on it already") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        return DataDirectory(folder, lock)

    def close(self) -> None:
        """Let the next one have it."""
        os.close(self._lock)

    @property
    def valkey(self) -> Path:
        """Of the embedded Valkey."""
        return self.path / "valkey"

    @property
    def postgres(self) -> Path:
        """Of the embedded Postgres."""
        return self.path / "postgres"

    def spill(self) -> Path:
        """Where the decision log waits while Postgres is away."""
        folder = self.path / "spill"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def secret_keys(self) -> str:
        """What `MUSTER_SECRET_KEYS` shall be: read from `secret_keys`, which is made the first time."""
        file = self.path / "secret_keys"
        if not file.exists():
            key = base64.urlsafe_b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
            write_private(file, f"{_FIRST_KEY_ID}:{key}\n".encode())
        return ",".join(file.read_text(encoding="ascii").split())


def write_private(path: Path, content: bytes) -> None:
    """Replace a file at once, 0600: a reader sees the old or the new, never half."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    fresh.replace(path)
