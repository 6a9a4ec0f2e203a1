"""How long a provider takes: the measure of whether a call can still be answered in time. Pure."""

from collections import deque
from statistics import median

REMEMBERED_CALLS = 32
REMEMBERED_S = 5.0  # a slow spell must not keep a provider unasked, and so unmeasured, for longer
MARGIN_MS = 5  # what settlement and the way back take


class Latency:
    """The calls of one provider in the last seconds that brought a reply. Times are of a monotonic clock."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, int]] = deque(maxlen=REMEMBERED_CALLS)

    def record(self, now_s: float, took_ms: int) -> None:
        """Remember how long one answered call took, in milliseconds."""
        self._recent.append((now_s, took_ms))

    def least_ms(self, now_s: float) -> int:
        """With less time left a call is more likely to be paid for in vain than not."""
        recent = self._recent
        while recent and now_s - recent[0][0] > REMEMBERED_S:
            recent.popleft()
        return MARGIN_MS + (int(median(took_ms for _, took_ms in recent)) if recent else 0)
