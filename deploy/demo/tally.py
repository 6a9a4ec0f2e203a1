"""Counts what the game saw of the platform: verdicts per second, latencies, reports, faults. Pure."""

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

# Rows of the view and the summary, in this order. The first two are decisions, the rest native AI with why.
VERDICTS = (
    "ai",
    "cached",
    "unavailable",
    "busy",
    "refused",
    "invalid_choice",
    "budget",
    "no_reply",
    "stale",
    "gone",
    "illegal",
)
DECIDED = frozenset({"ai", "cached"})
HISTORY_S = 120
_RECENT_LATENCIES = 400


@dataclass(slots=True)
class Tally:
    """One for all worlds. `now_s` is the time since the demo began."""

    totals: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    latencies_ms: list[float] = field(default_factory=list)
    requests: int = 0
    frames: int = 0
    late_frames: int = 0
    steered: int = 0
    native: int = 0
    sessions_opened: int = 0
    contexts_sent: int = 0
    last_fault: str = ""
    _seconds: deque[tuple[int, Counter[str]]] = field(default_factory=lambda: deque(maxlen=HISTORY_S))
    _recent_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT_LATENCIES))

    def answered(self, verdicts: Iterable[str], latency_ms: float | None, now_s: float) -> None:
        """One decide request came to its end; `latency_ms` None when no reply came."""
        self.requests += 1
        second = self._second(int(now_s))
        for verdict in verdicts:
            self.totals[verdict] += 1
            second[verdict] += 1
        if latency_ms is not None:
            self.latencies_ms.append(latency_ms)
            self._recent_ms.append(latency_ms)

    def fault(self, kind: str, text: str) -> None:
        """A request that did not work, counted by kind; the latest is shown."""
        self.faults[kind] += 1
        self.last_fault = text

    def per_second(self, now_s: float, seconds: int) -> list[Counter[str]]:
        """Counts of the last whole `seconds`, oldest first; quiet seconds are empty."""
        counts = dict(self._seconds)
        last = int(now_s) - 1
        return [counts.get(second, Counter()) for second in range(last - seconds + 1, last + 1)]

    def recent_percentiles_ms(self) -> tuple[float, float] | None:
        """(p50, p99) of the latest replies, None before the first."""
        return percentiles(self._recent_ms)

    @property
    def decided(self) -> int:
        return sum(self.totals[verdict] for verdict in DECIDED)

    @property
    def cache_share(self) -> float:
        """Cached decisions among all decisions, 0..1."""
        return self.totals["cached"] / self.decided if self.decided else 0.0

    def _second(self, second: int) -> Counter[str]:
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append((second, Counter()))
        return self._seconds[-1][1]


def percentiles(values: Sequence[float]) -> tuple[float, float] | None:
    """(p50, p99) by nearest rank; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    rank = [ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in (0.5, 0.99)]
    return rank[0], rank[1]
