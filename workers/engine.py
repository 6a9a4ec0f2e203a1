"""Works one claimed batch off: context, cache, budget, provider calls, settlement.

DESIGN, "The life of a decide request", steps 6 to 10. What a batch answers leaves through `settle` alone: its
fence decides who may answer, and only then is anything remembered or cached.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence

import msgspec
import structlog

from shared import metric_defs
from shared.clock import Clock
from shared.config import Config
from shared.errors import StoreError, StoreUnavailableError
from shared.metrics import Metrics
from shared.scheduling.batches import Question, ask_once
from shared.scheduling.items import CachedDecision, QueueItem, decode_item
from shared.scheduling.sharing import Use, may_share
from shared.store.connection import RedisConnection
from shared.store.queue import Claim, DeadlineQueue
from shared.store.statics import Statics, StaticStore
from workers.calls import Calls, PendingQuestion, PlannedCall, Result
from workers.flights import Flights
from workers.rows import cached_decision, reused
from workers.settlement import Settlement
from workers.situations import Situations, lay_out
from workers.work import Batch, Flight, Outcome, Pending

MIN_CALL_MS = 10  # with less time left nobody is asked
FOLLOW_POLL_S = 0.01  # how often an answer in flight elsewhere is looked for

_log = structlog.get_logger(__name__)

Endings = dict[Flight, tuple[CachedDecision, int] | None]


class Engine:
    """One per worker; works many batches at a time."""

    def __init__(
        self,
        *,
        connection: RedisConnection,
        queue: DeadlineQueue,
        statics: StaticStore,
        situations: Situations,
        flights: Flights,
        calls: Calls,
        settlement: Settlement,
        config: Config,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._connection = connection
        self._queue = queue
        self._statics = statics
        self._situations = situations
        self._flights = flights
        self._calls = calls
        self._settlement = settlement
        self._config = config
        self._clock = clock
        self._sizes = metrics.histogram(metric_defs.CLAIMED_QUESTIONS)
        self._live: dict[str, Batch] = {}

    async def run(self, claim: Claim, *, holds_slot: bool) -> None:
        """Work one claim off. `holds_slot`: a slot of the route's first provider was taken for it."""
        batch = Batch(claim.batch, claim.fence, claim.route, holds_slot=holds_slot)
        self._live[batch.id] = batch
        try:
            asking, waiting = await self._open(batch, claim)
            await self._settlement.settle(batch, {})
            if not asking:
                self._calls.give_back(batch)
            steps = []
            if asking:
                steps.append(self._ask(batch, self._joined(asking)))
            if waiting:
                steps.append(self._follow(batch, waiting))
            await _together(steps)
            await self._settlement.close(batch)
        except* StoreError as errors:
            # The lease ends by itself: another worker takes over what still has time.
            _log.warning("batch given up", batch=batch.id, error=str(errors.exceptions[0]))
        finally:
            self._calls.give_back(batch)
            del self._live[batch.id]

    async def drain(self) -> None:
        """Wait until everything that finished batches leave behind is in Redis."""
        await self._settlement.flush()

    async def keep(self, lease_ms: int) -> None:
        """Renew the leases and the questions in flight of all batches in hand. Raises StoreError."""
        batches = [batch for batch in self._live.values() if not batch.lost]
        if not batches:
            return
        now_ms = self._clock.now_ms()
        leases = [self._queue.extend_command(now_ms, batch.id, batch.fence, lease_ms) for batch in batches]
        flights = self._flights.keep_commands(flight for batch in batches for flight in batch.flights)
        replies = await self._connection.trip([*leases, *flights])
        for batch, reply in zip(batches, replies, strict=False):
            if not self._queue.parse_extend(reply):
                batch.lost = True

    async def _open(self, batch: Batch, claim: Claim) -> tuple[list[Pending], list[Pending]]:
        """Look at everything once; returns the asks for a provider and those to wait for.

        What the cache answers, or what is over its budget, has its outcome after this. Items that cannot be
        read are left out: the queue gives them to another worker, then back to their gateway.
        """
        items = await self._readable(claim)
        groups = self._flights.wanted(item for item, _ in items)
        commands, places = self._situations.read_commands([item for item, _ in items])
        replies = await self._connection.trip([*commands, *self._flights.look_commands(batch.id, groups)])
        batch.works = self._situations.works(items, places, replies)
        looks = self._flights.parse_looks(groups, replies[len(commands) :])
        batch.flights = {flight for flight, look in looks.items() if look is True}
        self._sizes.observe(sum(work.open_asks for work in batch.works))
        now_ms = self._clock.now_ms()
        batch.linger_us = self._lingered_us(batch, now_ms)
        asking: list[Pending] = []
        waiting: list[Pending] = []
        for work in batch.works:
            for ask in work.item.asks:
                pending = lay_out(work, ask, now_ms)
                look = looks.get(pending.flight, True) if pending.flight is not None else True
                if isinstance(look, CachedDecision):
                    work.resolve(pending, reused(pending, look))
                elif pending.over_budget:
                    work.resolve(pending, Outcome(None, "budget"))
                else:
                    (asking if look else waiting).append(pending)
        await self._release_unasked(batch, asking)
        return asking, waiting

    def _lingered_us(self, batch: Batch, now_ms: int) -> int:
        """How long the batch's newest item waited on purpose, at most the route's linger."""
        if not batch.works:
            return 0
        waited_ms = now_ms - max(work.item.received_ms for work in batch.works)
        return 1000 * min(max(0, waited_ms), self._config.linger_for(batch.route))

    async def _readable(self, claim: Claim) -> list[tuple[QueueItem, Statics]]:
        items: list[tuple[QueueItem, Statics]] = []
        for claimed in claim.items:
            try:
                item = decode_item(claimed.payload)
            except msgspec.MsgspecError:
                _log.exception("unreadable queue item", item=claimed.item)
                continue
            statics = await self._statics.load(item.game, item.manifest_key, item.contexts_hash)
            if statics is None:
                _log.error("a session's texts are gone", item=claimed.item)
            else:
                items.append((item, statics))
        return items

    async def _release_unasked(self, batch: Batch, asking: Sequence[Pending]) -> None:
        """Let others ask what this batch claimed and will not ask after all (it was over its budget)."""
        unasked = batch.flights - {pending.flight for pending in asking if pending.flight is not None}
        if unasked:
            batch.flights -= unasked
            await self._connection.trip(self._flights.end_commands(batch.id, dict.fromkeys(unasked)))

    def _joined(self, asking: Sequence[Pending]) -> list[PendingQuestion]:
        """Equal situations as one question, where the sharing rule allows it."""
        return ask_once(
            asking,
            lambda pending: pending.flight,
            lambda asker, leader: may_share(Use.WAIT, asker.party, leader.party, isolates_questions=False),
        )

    async def _ask(self, batch: Batch, questions: Sequence[PendingQuestion], step: int = 0) -> None:
        """Ask the route's provider number `step`, in as many requests as it takes."""
        provider = self._config.routing[batch.route][step]
        calls = self._calls.plan(questions, provider)
        await _together([self._call(batch, call, step) for call in calls])

    async def _call(self, batch: Batch, call: PlannedCall, step: int) -> None:
        chain = self._config.routing[batch.route]
        results = await self._calls.ask(batch, call, chain[step])
        time_left = batch.deadline_ms - self._clock.now_ms() >= MIN_CALL_MS
        if (
            any(result.failed for result in results)
            and self._config.failover
            and step + 1 < len(chain)
            and time_left
        ):
            await self._ask(batch, [result.question for result in results if result.failed], step + 1)
            results = [result for result in results if not result.failed]
        again = await self._finish(batch, results)
        if again:
            await self._ask(batch, [Question(pending) for pending in again])

    async def _finish(self, batch: Batch, results: Sequence[Result]) -> list[Pending]:
        """Give asks their outcomes and settle; returns the siblings that must be asked for themselves."""
        again: list[Pending] = []
        endings: Endings = {}
        for result in results:
            leader, outcome = result.question.leader, result.outcome
            leader.work.resolve(leader, outcome)
            if leader.flight is None or leader.entity_type.cache is None:
                continue
            cached = cached_decision(leader, outcome)
            life_ms = leader.entity_type.cache.ttl_ms
            endings[leader.flight] = (cached, life_ms) if cached is not None else None
            for sibling in result.question.siblings:
                if cached is not None:
                    sibling.work.resolve(sibling, reused(sibling, cached))
                elif result.failed:
                    sibling.work.resolve(sibling, Outcome(None, outcome.code, provider=outcome.provider))
                else:
                    # A refusal or an impossible choice says nothing of the others: each asks for itself.
                    again.append(sibling)
        batch.flights.difference_update(endings)
        await self._settlement.settle(batch, endings)
        return again

    async def _follow(self, batch: Batch, waiting: Sequence[Pending]) -> None:
        """Wait for answers in flight elsewhere; ask for what their askers let go of."""
        while waiting and not batch.lost:
            now_ms = self._clock.now_ms()
            waiting = [one for one in waiting if one.work.item.deadline_ms - now_ms >= MIN_CALL_MS]
            if not waiting:
                return
            await asyncio.sleep(FOLLOW_POLL_S)
            groups = self._flights.wanted_of(waiting)
            try:
                replies = await self._connection.trip(self._flights.look_commands(batch.id, groups))
                looks = self._flights.parse_looks(groups, replies)
            except StoreUnavailableError:
                continue  # what this batch asks meanwhile is paid for: it must not end with the look
            waiting, leading = self._followed(waiting, looks)
            batch.flights.update(pending.flight for pending in leading if pending.flight is not None)
            await self._settlement.settle(batch, {})
            if leading:
                await _together([self._ask(batch, self._joined(leading)), self._follow(batch, waiting)])
                return

    def _followed(
        self, waiting: Sequence[Pending], looks: Mapping[Flight, CachedDecision | bool]
    ) -> tuple[list[Pending], list[Pending]]:
        """Resolve what is cached by now; returns those that wait on and those that are now ours to ask."""
        still: list[Pending] = []
        leading: list[Pending] = []
        for pending in waiting:
            look = looks.get(pending.flight, True) if pending.flight is not None else True
            if isinstance(look, CachedDecision):
                pending.work.resolve(pending, reused(pending, look))
            else:
                (leading if look else still).append(pending)
        return still, leading


async def _together(steps: Sequence[Coroutine[None, None, None]]) -> None:
    """Run steps side by side; a single one without the cost of a task."""
    if len(steps) == 1:
        await steps[0]
        return
    async with asyncio.TaskGroup() as group:
        for step in steps:
            group.create_task(step)
