"""The claim loop: takes a batch whenever a provider slot is free, else sleeps until it is woken."""

import asyncio
from collections.abc import Callable, Mapping
from itertools import count

import structlog

from shared.clock import Clock
from shared.config import Config
from shared.errors import StoreError
from shared.store.connection import RedisConnection
from shared.store.queue import Claim, DeadlineQueue, Sleep
from workers.engine import Engine
from workers.slots import Slots

LEASE_MS = 1_000  # a dead worker's batch is claimed again well within the default 3.5 s
HEARTBEAT_S = 0.3
RETRY_S = 0.05

_log = structlog.get_logger(__name__)


class ClaimLoop:
    """One per worker process."""

    def __init__(
        self,
        *,
        connection: RedisConnection,
        queue: DeadlineQueue,
        engine: Engine,
        slots: Mapping[str, Slots],
        least_ms: Callable[[str], int],
        freed: asyncio.Event,
        config: Config,
        clock: Clock,
        worker: str,
    ) -> None:
        """`slots` is by provider; `freed` is set when one of them comes free, and wakes this loop.

        `least_ms` tells the time without which a provider is not asked: what has less left is dropped.
        """
        self._least_ms = least_ms
        self._connection = connection
        self._queue = queue
        self._engine = engine
        self._slots = slots
        self._freed = freed
        self._config = config
        self._clock = clock
        self._worker = worker
        self._batch_numbers = count()
        self._wake_after_ms: int | None = None  # of the message that woke us, None without one
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Claim until `stop`, then finish the batches in hand."""
        await self._listen()
        while not self._stopping:
            # Before looking at slots and queue: a sign that comes meanwhile must not be lost.
            self._freed.clear()
            self._wake_after_ms = None
            caps = self._caps()
            if not any(caps.values()):
                await self._freed.wait()
                continue
            try:
                claim = await self._claim(caps)
            except StoreError:
                await asyncio.sleep(RETRY_S)
                continue
            if isinstance(claim, Sleep):
                await self._sleep(claim.wait_ms)
            else:
                self._start(claim)
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._engine.drain()

    def stop(self) -> None:
        """Claim nothing more; `run` returns when the batches in hand are done."""
        self._stopping = True
        self._freed.set()

    async def _listen(self) -> None:
        while not self._stopping:
            try:
                await self._connection.listen(self._queue.keys.wake(self._worker), self._woken)
            except StoreError:
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def heartbeat(self) -> None:
        """Keep the leases of the batches in hand, until cancelled."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            try:
                await self._engine.keep(LEASE_MS)
            except StoreError:
                _log.warning("leases not renewed: Redis is away")

    def _caps(self) -> dict[str, int]:
        """By route, the most questions to take now: none where the provider has no free slot."""
        config = self._config
        return {
            route: config.providers[chain[0]].max_questions if self._slots[chain[0]].available else 0
            for route, chain in config.routing.items()
        }

    async def _claim(self, caps: Mapping[str, int]) -> Claim | Sleep:
        batch = f"{self._worker}-{next(self._batch_numbers)}"
        least_ms = min(self._least_ms(chain[0]) for chain in self._config.routing.values())
        return await self._queue.claim(
            self._clock.now_ms(), self._worker, batch, caps, LEASE_MS, min_remaining_ms=least_ms
        )

    async def _sleep(self, wait_ms: int) -> None:
        """Sleep until the time is up, a slot comes free, or a message says how many ms are left to sleep."""
        left_ms: int | None = wait_ms
        while left_ms:
            try:
                async with asyncio.timeout(left_ms / 1000):
                    await self._freed.wait()
            except TimeoutError:
                return
            self._freed.clear()
            left_ms, self._wake_after_ms = self._wake_after_ms, None
            if self._stopping:
                return

    def _woken(self, message: bytes) -> None:
        self._wake_after_ms = int(message)
        self._freed.set()

    def _start(self, claim: Claim) -> None:
        provider = self._config.routing[claim.route][0]
        holds_slot = self._slots[provider].take()
        task = asyncio.create_task(self._engine.run(claim, holds_slot=holds_slot))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("batch failed", exc_info=error)
