"""Random bytes from the operating system, fetched in larger pieces: one call serves hundreds of ids."""

import os

POOL_BYTES = 4096


class Entropy:
    """A source of unpredictable bytes for one process; it must not be shared across a fork."""

    def __init__(self) -> None:
        self._pool = b""
        self._at = 0

    def __call__(self, count: int) -> bytes:
        """`count` fresh bytes, at most POOL_BYTES."""
        start = self._at
        end = start + count
        if end > len(self._pool):
            self._pool = os.urandom(POOL_BYTES)
            start, end = 0, count
        self._at = end
        return self._pool[start:end]
