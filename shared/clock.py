"""Time as a value: the only module that reads the system's clock. Milliseconds since the epoch, UTC."""

import time
from typing import Protocol


class Clock(Protocol):
    """What asks for the time takes one of these."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970, comparable between processes of one deployment."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when told: for tests and simulations."""

    def __init__(self, now_ms: int = 1_750_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance_ms(self, delta_ms: int) -> None:
        """Move forward by `delta_ms` milliseconds (never back)."""
        self._now_ms += max(0, delta_ms)
