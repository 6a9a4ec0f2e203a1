"""How answers leave a worker: one settle script, then what depends on it having been ours to answer.

While one trip is under way, what other batches and calls have finished gathers, and goes together with the
next: under load a trip serves many, and an idle worker waits for none.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shared import metric_defs
from shared.clock import Clock
from shared.decision_log import encode_entry
from shared.errors import StoreError, StoreReplyError, StoreUnavailableError
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
FLUSH_S = 5.0  # at the end of the process; what is lost then are entities' latest decisions and cached ones

Endings = Mapping[Flight, tuple[CachedDecision, int] | None]


@dataclass(slots=True, eq=False)
class _Settling:
    """One batch's finished items on their way."""

    batch: Batch
    works: list[Work]  # those that `answers` are of
    answers: list[Answer]
    endings: Endings
    final: bool
    at_ms: int
    done: "asyncio.Future[None]"

    def fail(self, error: StoreError) -> None:
        """Tell who waits, if somebody still does."""
        if not self.done.done():
            self.done.set_exception(error)


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
        self._gathered: list[_Settling] = []
        self._after: list[Command] = []  # what settled answers leave behind, for the next trip
        self._sending: asyncio.Task[None] | None = None

    async def settle(self, batch: Batch, endings: Endings) -> None:
        """Answer the items whose asks all have an outcome; cache answers and end questions in flight.

        Returns when they are answered. Nothing happens once the batch is another worker's. A Redis that is
        away is waited for until the last deadline, the answers being paid for; then StoreUnavailableError.
        """
        works = [work for work in batch.works if work.open_asks == 0 and not work.settled]
        if batch.lost or not (works or endings):
            return
        for work in works:
            work.settled = True
        final = all(work.settled for work in batch.works)
        await self._settled(batch, works, endings, final=final)

    async def close(self, batch: Batch) -> None:
        """End the claim: what has no answer goes back to the queue, what was not asked others may ask."""
        if not batch.closed and not batch.lost:
            await self._settled(batch, [], dict.fromkeys(batch.flights), final=True)

    async def flush(self) -> None:
        """Wait until nothing is left to send, or Redis has been away for too long."""
        sending = self._sending
        if sending is not None:
            await asyncio.wait((sending,), timeout=FLUSH_S)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _settled(self, batch: Batch, works: Sequence[Work], endings: Endings, *, final: bool) -> None:
        now_ms = self._clock.now_ms()
        answers, answered = self._answers(batch, works, now_ms)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gathered.append(_Settling(batch, answered, answers, endings, final, now_ms, done))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())
        await done

    async def _send_all(self) -> None:
        """Send until nothing gathers any more."""
        gathered: list[_Settling] = []
        try:
            while self._gathered or self._after:
                gathered, self._gathered = self._gathered, []
                after, self._after = self._after, []
                await self._send(gathered, after)
        finally:
            self._sending = None
            for one in gathered:
                if not one.done.done() and one not in self._gathered:
                    one.done.set_exception(StoreUnavailableError("settling ended"))  # nobody waits for ever

    async def _send(self, gathered: Sequence[_Settling], after: Sequence[Command]) -> None:
        settles = [
            self._queue.settle_command(one.batch.id, one.batch.fence, one.answers, final=one.final)
            for one in gathered
        ]
        try:
            replies = await self._connection.trip([*settles, *after])
        except StoreUnavailableError as error:
            self._after = [*after, *self._after]
            for one in gathered:
                self._put_off(one, error)
            await asyncio.sleep(RETRY_S)
            return
        away = False
        for one, reply in zip(gathered, replies, strict=False):
            try:
                self._conclude(one, self._queue.parse_settle(reply))
            except StoreUnavailableError as error:
                away = True
                self._put_off(one, error)
            except StoreReplyError as error:
                one.fail(error)
        if away:
            await asyncio.sleep(RETRY_S)

    def _put_off(self, one: _Settling, error: StoreUnavailableError) -> None:
        """Try again with what somebody may still wait for."""
        now_ms = self._clock.now_ms()
        if now_ms >= one.batch.deadline_ms:
            self._late.inc(sum(len(work.answered) for work in one.works))
            one.fail(error)
            return
        for place in reversed(range(len(one.works))):
            if one.works[place].item.deadline_ms < now_ms:
                self._late.inc(len(one.works.pop(place).answered))
                del one.answers[place]
        self._gathered.append(one)

    def _conclude(self, one: _Settling, flags: list[bool] | None) -> None:
        batch = one.batch
        if flags is None:
            batch.lost = True
        else:
            batch.closed = batch.closed or one.final
            ours = [work for work, flag in zip(one.works, flags, strict=True) if flag]
            self._late.inc(sum(len(work.answered) for work in one.works) - sum(len(w.answered) for w in ours))
            self._after += self._remember(ours, one.at_ms)
            self._after += self._flights.end_commands(batch.id, one.endings)
        if not one.done.done():
            one.done.set_result(None)

    def _answers(self, batch: Batch, works: Sequence[Work], now_ms: int) -> tuple[list[Answer], list[Work]]:
        """The settlements of these items, and the items they are of: none past its deadline."""

        def decision_id(pending: Pending, action: str) -> str:
            session = pending.work.item.session
            ttl_ms = pending.entity_type.decision_ttl_ms
            return self._ids.issue(session, pending.ask.id, action, ttl_ms, now_ms)

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

    def _remember(self, works: Sequence[Work], now_ms: int) -> list[Command]:
        chosen: dict[str, dict[str, bytes]] = {}
        for work in works:
            for pending, outcome in work.answered:
                if outcome.action is not None:
                    last = LastDecision(pending.ask.type, outcome.action, now_ms)
                    chosen.setdefault(work.item.session, {})[pending.ask.id] = encode(last)
        return [self._situations.remember_command(session, last) for session, last in chosen.items()]
