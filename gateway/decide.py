"""The decide use case: what needs no provider is answered here, the rest is admitted and waited for.

DESIGN, "The life of a decide request", steps 1 to 4 and 11. Two round trips to Redis before the wait: what
the session, its parents and the cache say; then admission together with what was answered at once.
"""

import asyncio
from collections.abc import Sequence
from itertools import count

from gateway.answering import Answering, Decide
from gateway.answers import OwnAnswer, on_the_wire, only_option, reused
from gateway.http import Call
from gateway.lookup import Lookup, Lookups
from gateway.plan import Rendered
from gateway.replies import ReplyRouter, Waiter
from gateway.reply import UNKNOWN_SESSION, Reply
from gateway.sessions import SessionCopy, Sessions
from shared import metric_defs
from shared.clock import Clock
from shared.config import Config
from shared.errors import InputError, StoreUnavailableError
from shared.metrics import Metrics
from shared.protocol.decide import REASONS, Entity, encode_decide_reply
from shared.protocol.decision_ids import DecisionIds
from shared.protocol.messages import decode_client_id
from shared.protocol.situation import AskedRow, LastDecision
from shared.scheduling.items import Answer, Ask, QueueItem, encode
from shared.scheduling.routing import Priority, lane_name
from shared.store.connection import Command, RedisConnection
from shared.store.connection import Reply as StoreReply
from shared.store.keys import game_tag
from shared.store.log_outbox import LogOutbox
from shared.store.queue import Admission, Cancelled, DeadlineQueue
from shared.store.replies import require_done
from shared.store.situations import SituationStore

MAX_RELOADS = 3  # a session that changes more often than that within one request is taken as unknown
USUAL_TRIP_MS = 1_000  # what the connection grants a trip by itself
TAKE_BACK_S = 0.2  # at the deadline a Redis that does not answer is not waited for
ON_ITS_WAY_S = 0.06  # at the deadline, how long a reply that is already on the stream may take to be read


class _OutOfDateError(Exception):
    """The request was judged by a copy of its session that is not the current one."""


class DecideService:
    """Answers `POST /v1/decide`."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        lookups: Lookups,
        connection: RedisConnection,
        queue: DeadlineQueue,
        situations: SituationStore,
        router: ReplyRouter,
        outbox: LogOutbox,
        ids: DecisionIds,
        config: Config,
        clock: Clock,
        metrics: Metrics,
        gateway: str,
    ) -> None:
        self._sessions = sessions
        self._lookups = lookups
        self._connection = connection
        self._queue = queue
        self._situations = situations
        self._router = router
        self._outbox = outbox
        self._answering = Answering(outbox, ids, clock, gateway)
        self._config = config
        self._clock = clock
        self._gateway = gateway
        self._item_numbers = count()
        self._decisions = {
            (source, code, cached): metrics.counter(metric_defs.DECISIONS, source, code, cached)
            for source, code in [("AI", ""), *(("FALLBACK", code) for code in REASONS)]
            for cached in ("true", "false")
        }
        self._decide_seconds = metrics.histogram(metric_defs.DECIDE_SECONDS)
        self._overhead_seconds = metrics.histogram(metric_defs.OVERHEAD_SECONDS)

    async def __call__(self, call: Call) -> Reply:
        """Decide for every entity of the request; failures behind the gateway are fallbacks, never errors.

        Raises InputError for a request that breaks the protocol, StoreUnavailableError when Redis is away
        and the session is not known to this process.
        """
        client_id = decode_client_id(call.body)
        copy = self._sessions.known(client_id) or await self._sessions.load(client_id)
        for _ in range(MAX_RELOADS):
            if copy is None:
                return UNKNOWN_SESSION
            decide = await self._decided(call, copy)
            if decide is not None:
                return self._reply(decide)
            # Another gateway changed the session, or it has ended: judge by what is true now.
            copy = await self._sessions.load(client_id)
        return UNKNOWN_SESSION

    async def _decided(self, call: Call, copy: SessionCopy) -> Decide | None:
        """The request with an answer for every entity; None when `copy` turns out to be out of date.

        Without Redis a session known to this process is served all the same, with fallbacks.
        """
        try:
            request = copy.plan.compiled.decode_decide(call.body, copy.contexts)
        except InputError:
            if (await self._lookups.look_up(copy, None, self._trip_s(call))).version == copy.version:
                raise
            return None
        decide = Decide(call, copy, request, copy.rendered(request), [None] * len(request.entities))
        try:
            lookup = self._lookups.nothing_to_ask(copy, request)
            if lookup is None:
                lookup = await self._lookups.look_up(copy, request, self._trip_s(call))
            if lookup.version != copy.version:
                return None
            await self._sessions.renew(copy)
            await self._admit_and_wait(decide, lookup)
        except _OutOfDateError:
            return None
        except StoreUnavailableError:
            await self._answering.give_up_all(decide)
        return decide

    def _trip_s(self, call: Call) -> float | None:
        """How long one round trip may take: no longer than the game waits. None: the usual time."""
        within_ms = self._within_ms(call)
        return within_ms / 1000 if within_ms < USUAL_TRIP_MS else None

    def _within_ms(self, call: Call) -> int:
        return min(self._config.decide_timeout_ms, call.timeout_ms or self._config.decide_timeout_ms)

    async def _admit_and_wait(self, decide: Decide, lookup: Lookup) -> None:
        here: list[OwnAnswer] = []
        asked: dict[tuple[str, Priority], list[Ask]] = {}
        for index, entity in enumerate(decide.request.entities):
            cached = lookup.cached[index]
            if len(entity.legal_actions) == 1:
                here.append(only_option(index, entity))
            elif cached is not None and cached.action in entity.legal_actions:
                here.append(reused(index, cached))
            else:
                place = decide.copy.place(entity)
                asked.setdefault(place, []).append(_ask(index, entity, decide.rendered, lookup))
        admissions = [self._admission(decide, place, asks) for place, asks in asked.items()]
        commands, encoded = self._commands(decide, here, admissions)
        waiter = Waiter(decide.items)
        self._router.expect(waiter)
        try:
            await self._send(decide, commands, encoded, confirmed=lookup.confirmed)
            refused = [item for item in waiter.items if item not in decide.items]
            for item in refused:
                waiter.settle(item)
            if decide.items:
                await self._wait(decide, waiter)
        finally:
            self._router.forget(waiter.items)

    def _admission(self, decide: Decide, place: tuple[str, Priority], asks: list[Ask]) -> Admission:
        copy, request = decide.copy, decide.request
        route, priority = place
        types = copy.plan.compiled.manifest.entity_types
        within_ms = min(self._within_ms(decide.call), *(types[ask.type].decision_ttl_ms for ask in asks))
        provider = self._config.providers[self._config.routing[route][0]]
        item = QueueItem(
            id=f"{self._gateway}-{next(self._item_numbers)}",
            gateway=self._gateway,
            game=copy.game,
            session=copy.session,
            client_id=copy.client_id,
            security_profile=copy.profile,
            epoch=request.epoch,
            manifest_key=copy.plan.compiled.manifest.key,
            contexts_hash=copy.contexts.contexts.hash,
            scope=request.scope,
            route=route,
            priority=priority,
            received_ms=decide.call.received_ms,
            deadline_ms=decide.call.received_ms + within_ms,
            world_state=decide.rendered.world_state,
            scope_state=decide.rendered.scope_state,
            asks=asks,
        )
        decide.items[item.id] = item
        return Admission(
            item=item.id,
            gateway=self._gateway,
            route=route,
            priority=priority,
            lane=lane_name(
                route,
                game_tag(copy.game),
                item.manifest_key,
                copy.scope_plan(request.scope).texts_hash,
                None if provider.isolates else copy.session,
            ),
            deadline_ms=item.deadline_ms,
            questions=len(asks),
            full=provider.max_questions,
            linger_ms=self._config.linger_for(route),
            payload=encode(item),
        )

    def _commands(
        self, decide: Decide, here: Sequence[OwnAnswer], admissions: Sequence[Admission]
    ) -> tuple[list[Command], bytes | None]:
        """The second trip, admission last in it, and the log entry of what was answered here, encoded."""
        now_ms = self._clock.now_ms()
        copy = decide.copy
        entities = decide.request.entities
        commands: list[Command] = []
        encoded: bytes | None = None
        if here:
            encoded = self._answering.settle(decide, here, now_ms)
            commands.append(self._outbox.command(encoded))
            chosen = {
                entities[own.index].id: encode(
                    LastDecision(entities[own.index].entity_type.name, own.action, now_ms)
                )
                for own in here
                if own.action is not None
            }
            commands.append(self._situations.remember_command(copy.session, chosen))
        rows = {
            entity.id: encode(_asked_row(entity, decide.rendered.observations[index]))
            for index, entity in enumerate(entities)
            if entity.parent is not None
        }
        if rows:
            # Before admission: the worker that claims the items reads these rows.
            commands.append(self._situations.asked_command(copy.session, rows))
        if admissions:
            commands.append(self._queue.admit_command(now_ms, admissions))
        return commands, encoded

    async def _send(
        self, decide: Decide, commands: Sequence[Command], encoded: bytes | None, *, confirmed: bool
    ) -> None:
        """Make the second trip; what it could not do becomes fallbacks and a held log entry.

        Unless `confirmed`, the session's version is asked for with it; raises _OutOfDateError when it is not
        the one that the request was judged by.
        """
        if not commands:
            return
        asking = [] if confirmed else [self._lookups.version_command(decide.copy)]
        try:
            replies = await self._connection.trip([*asking, *commands], timeout_s=self._trip_s(decide.call))
            require_done(replies)
        except StoreUnavailableError:
            if encoded is not None:
                self._outbox.hold(encoded)
            if decide.items:
                await self._take_back(list(decide.items))  # they may have been admitted all the same
                await self._answering.give_up(decide, list(decide.items), "unavailable")
            return
        if not confirmed:
            await self._require_version(decide, replies[0])
        if decide.items:
            admitted = self._queue.parse_admit(replies[-1])
            refused = [item for item, taken in zip(list(decide.items), admitted, strict=True) if not taken]
            await self._answering.give_up(decide, refused, "busy")

    async def _require_version(self, decide: Decide, version: StoreReply) -> None:
        """Take admitted items back when they were judged by a session that is not the current one."""
        if self._lookups.version_of(version) != decide.copy.version:
            await self._take_back(list(decide.items))
            raise _OutOfDateError

    async def _take_back(self, items: Sequence[str]) -> list[Cancelled] | None:
        """Take items out of the queue and tell where they were, None when Redis does not say.

        Unread, the command still stands in the connection behind what was sent before it: a Redis that was
        only frozen comes upon it when it goes on, and few of the items are asked in vain.
        """
        command = self._queue.cancel_command(items)
        try:
            (reply,) = await self._connection.trip([command], timeout_s=TAKE_BACK_S)
            return self._queue.parse_cancel(reply)
        except StoreUnavailableError:
            return None

    async def _wait(self, decide: Decide, waiter: Waiter) -> None:
        deadline_ms = max(item.deadline_ms for item in decide.items.values())
        left_s = (deadline_ms - self._clock.now_ms()) / 1000
        if left_s > 0:
            await asyncio.wait((waiter.done,), timeout=left_s)
        if not waiter.done.done():
            await self._at_deadline(decide, waiter)
        provider_us = linger_us = 0
        for reply in waiter.replies:
            decide.items.pop(reply.item, None)
            provider_us = max(provider_us, reply.provider_us)
            linger_us = max(linger_us, reply.linger_us)
            for answer in reply.answers:
                decide.answers[answer.index] = answer
        if waiter.replies:
            total_us = (self._clock.now_ms() - decide.call.received_ms) * 1000
            self._overhead_seconds.observe(max(0, total_us - provider_us - linger_us) / 1e6)
        if waiter.dropped:
            decide.copy.renewed_ms = 0  # a worker may have missed the session's texts: they are put again
        for item, code in waiter.dropped:
            await self._answering.give_up(decide, [item], code)
        await self._answering.give_up(decide, list(decide.items), "unavailable")

    async def _at_deadline(self, decide: Decide, waiter: Waiter) -> None:
        """Take back what is unanswered: still queued is `busy`, in a call is `unavailable`."""
        outstanding = list(waiter.items)
        verdicts = await self._take_back(outstanding)
        if verdicts is None:
            return
        by_verdict: dict[Cancelled, list[str]] = {verdict: [] for verdict in Cancelled}
        for item, verdict in zip(outstanding, verdicts, strict=True):
            by_verdict[verdict].append(item)
        await self._answering.give_up(decide, by_verdict[Cancelled.QUEUED], "busy")
        await self._answering.give_up(decide, by_verdict[Cancelled.CLAIMED], "unavailable")
        for item in (*by_verdict[Cancelled.QUEUED], *by_verdict[Cancelled.CLAIMED]):
            waiter.settle(item)
        if by_verdict[Cancelled.GONE]:
            await asyncio.wait((waiter.done,), timeout=ON_ITS_WAY_S)

    def _reply(self, decide: Decide) -> Reply:
        decisions = []
        counts: dict[tuple[str, str, str], int] = {}
        for entity, answer in zip(decide.request.entities, decide.answers, strict=True):
            given = answer or Answer(0, None, "unavailable", None, None, cached=False)
            decisions.append(on_the_wire(entity, given))
            cached = "true" if given.cached else "false"
            code = "" if given.action is not None else given.code or "invalid_choice"
            key = ("FALLBACK" if code else "AI", code, cached)
            counts[key] = counts.get(key, 0) + 1
        for key, number in counts.items():
            self._decisions[key].inc(number)
        latency_ms = max(0, self._clock.now_ms() - decide.call.received_ms)
        self._decide_seconds.observe(latency_ms / 1000)
        return Reply(200, encode_decide_reply(decide.request.epoch, latency_ms, decisions))


def _ask(index: int, entity: Entity, rendered: Rendered, lookup: Lookup) -> Ask:
    return Ask(
        index=index,
        id=entity.id,
        type=entity.entity_type.name,
        observation=rendered.observations[index],
        legal_mask=entity.legal_mask,
        profile=entity.profile,
        trigger=entity.trigger,
        parent_id=entity.parent,
        parent=lookup.parents.get(entity.parent) if entity.parent is not None else None,
        position=entity.position,
        digest=lookup.digests[index],
    )


def _asked_row(entity: Entity, observation: str) -> AskedRow:
    return AskedRow(entity.id, entity.entity_type.name, entity.position, entity.parent, observation)
