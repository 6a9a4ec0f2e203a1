"""How answers leave a worker: one settle script, then what depends on it having been ours to answer."""

import asyncio
from collections.abc import Mapping, Sequence

from shared import metric_defs
from shared.clock import Clock
from shared.decision_log import encode_entry
from shared.errors import StoreUnavailableError
from shared.metrics import Metrics
from shared.protocol.decision_ids import DecisionIds
from shared.protocol.situation import LastDecision
from shared.scheduling.items import CachedDecision, encode
from shared.store.connection import Command, RedisConnection
from shared.store.queue import Answer, DeadlineQueue
from shared.store.situations import SituationStore
from workers.flights import Flights
from workers.rows import reply_and_entry
from workers.work import Batch, Flight, Pending, Work

RETRY_S = 0.05


class Settlement:
    """Settles the finished items of batches."""

    def __init__(
        self,
        *,
        connection: RedisConnection,
        queue: DeadlineQueue,
        situations: SituationStore,
        flights: Flights,
        ids: DecisionIds,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._connection = connection
        self._queue = queue
        self._situations = situations
        self._flights = flights
        self._ids = ids
        self._clock = clock
        self._late = metrics.counter(metric_defs.LATE_ANSWERS)

    async def settle(self, batch: Batch, endings: Mapping[Flight, tuple[CachedDecision, int] | None]) -> None:
        """Answer the items whose asks all have an outcome; cache answers and end questions in flight.

        Nothing happens once the batch is another worker's. A Redis that is away is waited for until the
        last deadline: the answers are paid for.
        """
        works = [work for work in batch.works if work.open_asks == 0 and not work.settled]
        if batch.lost or not (works or endings):
            return
        for work in works:
            work.settled = True
        now_ms = self._clock.now_ms()
        answers, done = self._answers(batch, works, now_ms)
        final = all(work.settled for work in batch.works)
        flags = await self._settled(batch, answers, final=final)
        if flags is None:
            batch.lost = True
            return
        batch.closed = batch.closed or final
        answered = [work for work, ours in zip(done, flags, strict=True) if ours]
        self._late.inc(sum(len(w.answered) for w, ours in zip(done, flags, strict=True) if not ours))
        commands = [*self._remember(answered, now_ms), *self._flights.end_commands(batch.id, endings)]
        if commands:
            await self._connection.trip(commands)

    async def close(self, batch: Batch) -> None:
        """End the claim: what has no answer goes back to the queue."""
        if not batch.closed and not batch.lost:
            await self._settled(batch, [], final=True)
            if batch.flights:
                await self._connection.trip(
                    self._flights.end_commands(batch.id, dict.fromkeys(batch.flights))
                )

    def _answers(self, batch: Batch, works: Sequence[Work], now_ms: int) -> tuple[list[Answer], list[Work]]:
        """The settlements of these items, and the items they are of: none past its deadline."""

        def decision_id(pending: Pending, action: str) -> str:
            item = pending.work.item
            return self._ids.issue(
                item.session, pending.ask.id, action, pending.entity_type.decision_ttl_ms, now_ms
            )

        answers: list[Answer] = []
        done: list[Work] = []
        for work in works:
            if work.item.deadline_ms < now_ms:
                self._late.inc(len(work.answered))
                continue
            reply, entry = reply_and_entry(batch, work, now_ms, decision_id)
            answers.append(Answer(work.item.id, work.item.gateway, encode(reply), encode_entry(entry)))
            done.append(work)
        return answers, done

    async def _settled(self, batch: Batch, answers: Sequence[Answer], *, final: bool) -> list[bool] | None:
        while True:
            try:
                return await self._queue.settle(batch.id, batch.fence, answers, final=final)
            except StoreUnavailableError:
                if self._clock.now_ms() >= batch.deadline_ms:
                    raise
                await asyncio.sleep(RETRY_S)

    def _remember(self, works: Sequence[Work], now_ms: int) -> list[Command]:
        chosen: dict[str, dict[str, bytes]] = {}
        for work in works:
            for pending, outcome in work.answered:
                if outcome.action is not None:
                    last = LastDecision(pending.ask.type, outcome.action, now_ms)
                    chosen.setdefault(work.item.session, {})[pending.ask.id] = encode(last)
        return [self._situations.remember_command(session, last) for session, last in chosen.items()]
