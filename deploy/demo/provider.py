"""What the provider side shows: calls, questions, tokens, cost; and the switch of the simulator's outage.

Read from the workers' metrics; without those from the simulator's own count, which knows no price. Runs
beside the game and may be slow or absent without anybody noticing but the view.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from shared import metric_defs

POLL_S = 1.0
_TIMEOUT = aiohttp.ClientTimeout(total=2.0)


@dataclass(frozen=True, slots=True)
class Spend:
    """Totals since a start. `cost_nanousd` None: nobody who answered knows prices."""

    calls: int = 0
    questions: int = 0
    tokens: int = 0
    cost_nanousd: int | None = None

    def since(self, start: "Spend") -> "Spend":
        """The difference; a counter that began anew counts from its own zero."""
        cost = None
        if self.cost_nanousd is not None:
            cost = _grown(self.cost_nanousd, start.cost_nanousd or 0)
        return Spend(
            _grown(self.calls, start.calls),
            _grown(self.questions, start.questions),
            _grown(self.tokens, start.tokens),
            cost,
        )

    @property
    def questions_per_call(self) -> float | None:
        return self.questions / self.calls if self.calls else None


class _SimulatorStats(msgspec.Struct):
    """The part of the simulator's `/stats` that is shown."""

    requests: int
    questions: int
    tokens: int


class ProviderMeter:
    """Polls once a second. `spend` is None while nobody has answered yet, `rates` the last second's."""

    def __init__(self, http: aiohttp.ClientSession, simulator_url: str | None, metrics_urls: Sequence[str]):
        self._http = http
        self._simulator_url = simulator_url
        self._metrics_urls = metrics_urls
        self._start: Spend | None = None
        self.spend: Spend | None = None
        self.rates: Spend | None = None

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self.poll()
            await asyncio.sleep(POLL_S)

    async def poll(self) -> None:
        """Read once; without an answer the last figures stay and the rates are unknown."""
        now = await self._read()
        if now is None:
            self.rates = None
            return
        if self._start is None:
            self._start = now
        before, self.spend = self.spend, now.since(self._start)
        self.rates = self.spend.since(before) if before is not None else None

    async def begin_outage(self, seconds: float) -> bool:
        """Make the simulated provider drop every request for a while; False when it cannot be reached."""
        if self._simulator_url is None:
            return False
        try:
            async with self._http.post(
                f"{self._simulator_url}/control", json={"outage_s": seconds}, timeout=_TIMEOUT
            ) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def _read(self) -> Spend | None:
        pages = await asyncio.gather(*(self._get(url) for url in self._metrics_urls))
        found = [page for page in pages if page is not None]
        if found:
            return spend_of_metrics(found)
        page = await self._get(f"{self._simulator_url}/stats") if self._simulator_url else None
        if page is None:
            return None
        try:
            stats = msgspec.json.decode(page, type=_SimulatorStats)
        except msgspec.DecodeError:
            return None
        return Spend(stats.requests, stats.questions, stats.tokens)

    async def _get(self, url: str) -> str | None:
        try:
            async with self._http.get(url, timeout=_TIMEOUT) as response:
                return await response.text() if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, UnicodeDecodeError):
            return None


def spend_of_metrics(pages: Iterable[str]) -> Spend:
    """Sum the provider metrics of several workers' Prometheus pages."""
    sums: dict[str, float] = {}
    for page in pages:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if sample.name == f"{family.name}_total":
                    sums[family.name] = sums.get(family.name, 0.0) + sample.value
    return Spend(
        calls=int(sums.get(metric_defs.PROVIDER_CALLS.name, 0)),
        questions=int(sums.get(metric_defs.PROVIDER_QUESTIONS.name, 0)),
        tokens=int(sums.get(metric_defs.PROVIDER_TOKENS.name, 0)),
        cost_nanousd=int(sums.get(metric_defs.PROVIDER_COST.name, 0)),
    )


def _grown(now: int, before: int) -> int:
    return now - before if now >= before else now
