"""What the simulator does wrong, and when: settings, dice and quotas. Pure: time is passed in."""

import random
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Share = Annotated[float, Meta(ge=0, le=1)]
Malformation = Literal["truncated", "not_json", "wrong_shape", "alien_option", "no_distribution"]
MALFORMATIONS: tuple[Malformation, ...] = (
    "truncated",
    "not_json",
    "wrong_shape",
    "alien_option",
    "no_distribution",
)


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set, at start or later through `/control`. 0 means off."""

    latency_ms: Annotated[float, Meta(ge=0)] = 0
    jitter_ms: Annotated[float, Meta(ge=0)] = 0  # added to the latency, evenly spread from 0
    concurrency: Annotated[int, Meta(ge=0)] = 0  # requests at once; more are 529
    requests_per_s: Annotated[float, Meta(ge=0)] = 0  # more are 429
    tokens_per_s: Annotated[float, Meta(ge=0)] = 0
    error_rates: dict[Annotated[int, Meta(ge=400, le=599)], Share] = {}  # status → share of the requests
    missing_rate: Share = 0  # of the answers
    malformed_rate: Share = 0  # of the replies
    drop_rate: Share = 0  # of the requests: the connection is closed without a reply


class Dice:
    """Reproducible chance: the same seed and the same requests meet the same faults."""

    def __init__(self, seed: int) -> None:
        self._source = random.Random(seed)

    def falls(self, share: float) -> bool:
        """True in `share` of the calls."""
        return share > 0 and self._source.random() < share

    def status(self, error_rates: dict[int, float]) -> int | None:
        """An error status to answer with, or None."""
        if not error_rates:
            return None
        point = self._source.random()
        for status, share in error_rates.items():
            point -= share
            if point < 0:
                return status
        return None

    def delay_ms(self, faults: Faults) -> float:
        """How long this request takes."""
        jitter = self._source.random() * faults.jitter_ms if faults.jitter_ms else 0.0
        return faults.latency_ms + jitter

    def missing(self, share: float, count: int) -> frozenset[int]:
        """Places of the answers that stay out."""
        if share <= 0:
            return frozenset()
        return frozenset(place for place in range(count) if self._source.random() < share)

    def malformation(self) -> Malformation:
        """Which way a reply is spoilt."""
        return self._source.choice(MALFORMATIONS)


def spoilt(reply: bytes, how: Malformation) -> bytes:
    """The reply, broken in one way: as a whole, or (the last two) in each of its answers."""
    match how:
        case "truncated":
            return reply[: len(reply) // 2]
        case "not_json":
            return b"<html><body>502 Bad Gateway</body></html>"
        case "wrong_shape":
            return b'{"result":"ok"}'
        case "alien_option":
            return reply.replace(b'"choice":"', b'"choice":"simulated fault: ')
        case "no_distribution":
            return reply.replace(b":0.", b":9.")


class Quota:
    """A token bucket: `rate` units a second, one second's worth at once. One unit more than there is may be
    taken when the bucket is full, so that a single large request is not refused for ever."""

    def __init__(self) -> None:
        self._level = 0.0
        self._at_s = 0.0
        self._rate = 0.0

    def take(self, units: float, rate: float, now_s: float) -> float:
        """0 when granted, else the seconds until it would be. A rate of 0 grants everything."""
        if rate <= 0:
            return 0.0
        if rate != self._rate:
            self._rate, self._level = rate, rate
        else:
            self._level = min(rate, self._level + (now_s - self._at_s) * rate)
        self._at_s = now_s
        needed = min(units, rate)
        if self._level >= needed:
            self._level -= units
            return 0.0
        return (needed - self._level) / rate
