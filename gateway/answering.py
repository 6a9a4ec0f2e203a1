"""The answers that a gateway gives itself, logged as they are given; their log rows travel by the outbox."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from gateway.answers import OwnAnswer, as_answer, fallback, log_entry
from gateway.http import Call
from gateway.plan import Rendered
from gateway.sessions import SessionCopy
from shared.clock import Clock
from shared.decision_log import encode_entry
from shared.protocol.decide import DecideRequest, FallbackCode
from shared.protocol.decision_ids import DecisionIds
from shared.scheduling.items import Answer, QueueItem
from shared.store.log_outbox import LogOutbox


@dataclass(slots=True)
class Decide:
    """One decide request on its way through the gateway."""

    call: Call
    copy: SessionCopy
    request: DecideRequest
    rendered: Rendered
    answers: list[Answer | None]  # by entity
    items: dict[str, QueueItem] = field(default_factory=dict)  # that still want an answer


class Answering:
    """Gives and logs a gateway's own answers."""

    def __init__(self, outbox: LogOutbox, ids: DecisionIds, clock: Clock, gateway: str) -> None:
        self._outbox = outbox
        self._ids = ids
        self._clock = clock
        self._gateway = gateway
        self._numbers = count()

    def settle(self, decide: Decide, here: Sequence[OwnAnswer], now_ms: int) -> bytes:
        """Set the answers and return their log entry, encoded."""
        entities = decide.request.entities
        answered: list[tuple[OwnAnswer, str | None]] = []
        for own in here:
            entity = entities[own.index]
            decision_id = None
            if own.action is not None:
                ttl_ms = entity.entity_type.decision_ttl_ms
                decision_id = self._ids.issue(decide.copy.session, entity.id, own.action, ttl_ms, now_ms)
            decide.answers[own.index] = as_answer(own, decision_id)
            answered.append((own, decision_id))
        number = next(self._numbers)
        return encode_entry(
            log_entry(
                decide.copy,
                decide.request,
                decide.rendered,
                answered,
                now_ms,
                decide.call.received_ms,
                lambda index: f"f_{self._gateway}:{number}-{index}",
            )
        )

    async def give_up_all(self, decide: Decide) -> None:
        """Answer every entity with `unavailable`."""
        await self._give(decide, [fallback(i, "unavailable") for i in range(len(decide.answers))])

    async def give_up(self, decide: Decide, items: Sequence[str], code: FallbackCode) -> None:
        """Answer the entities of those items that still want an answer."""
        given_up = [decide.items.pop(item) for item in items if item in decide.items]
        await self._give(decide, [fallback(ask.index, code) for item in given_up for ask in item.asks])

    async def _give(self, decide: Decide, here: Sequence[OwnAnswer]) -> None:
        if here:
            await self._outbox.write(self.settle(decide, here, self._clock.now_ms()))
