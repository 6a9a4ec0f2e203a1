"""How long a provider takes: the measure of whether a call can still be answered in time. Pure."""

from collections import deque
from statistics import median

REMEMBERED_CALLS = 32
MARGIN_MS = 5  # what settlement and the way back take


class Latency:
    """The recent calls of one provider that brought a reply."""

    def __init__(self) -> None:
        self._recent_ms: deque[int] = deque(maxlen=REMEMBERED_CALLS)
        self._typical_ms = 0

    def record(self, took_ms: int) -> None:
        """Remember how long one answered call took, in milliseconds."""
        self._recent_ms.append(took_ms)
        self._typical_ms = int(median(self._recent_ms))

    @property
    def least_ms(self) -> int:
        """With less time left a call is more likely to be paid for in vain than not."""
        return self._typical_ms + MARGIN_MS
