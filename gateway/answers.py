"""What the gateway answers itself: one legal action, cached decisions, fallbacks; their log rows. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.plan import Rendered
from gateway.sessions import SessionCopy
from shared.decision_log import DecisionEntry, DecisionHead, DecisionRow
from shared.protocol.decide import REASONS, DecideRequest, Decision, Entity, Fallback, FallbackCode
from shared.scheduling.items import Answer, CachedDecision
from shared.scheduling.routing import PRIORITY_CLASSES


@dataclass(frozen=True, slots=True)
class OwnAnswer:
    """An entity that this gateway answers without a worker. `cached` is the decision reused, if any."""

    index: int
    action: str | None
    code: FallbackCode | None
    cached: CachedDecision | None = None


def only_option(index: int, entity: Entity) -> OwnAnswer:
    """One legal action is no question: it is answered with confidence 1."""
    return OwnAnswer(index, entity.legal_actions[0], None)


def reused(index: int, cached: CachedDecision) -> OwnAnswer:
    """A cached decision, to count as an ordinary one (A2G Manifest, "Decision cache")."""
    return OwnAnswer(index, cached.action, None, cached)


def fallback(index: int, code: FallbackCode) -> OwnAnswer:
    """No decision for this entity."""
    return OwnAnswer(index, None, code)


def as_answer(own: OwnAnswer, decision_id: str | None) -> Answer:
    """The same in the form in which workers answer."""
    confidence = own.cached.confidence if own.cached is not None else 1.0
    return Answer(
        own.index,
        own.action,
        own.code,
        confidence if own.action is not None else None,
        decision_id,
        own.cached is not None,
    )


def on_the_wire(entity: Entity, answer: Answer) -> Decision | Fallback:
    """An answer as `/v1/decide` replies it; an answer that the entity did not allow is no choice."""
    entity_type = entity.entity_type
    if answer.action is None or answer.decision_id is None or answer.action not in entity.legal_actions:
        code: FallbackCode = _code(answer)
        return Fallback(id=entity.id, code=code, reason=REASONS[code], ttl_ms=entity_type.decision_ttl_ms)
    return Decision(
        id=entity.id,
        action=answer.action,
        label=entity_type.actions[answer.action],
        confidence=None if answer.confidence is None else round(answer.confidence, 6),
        ttl_ms=entity_type.decision_ttl_ms,
        decision_id=answer.decision_id,
        cached=answer.cached,
    )


def _code(answer: Answer) -> FallbackCode:
    for code in REASONS:
        if code == answer.code:
            return code
    return "invalid_choice"


def log_entry(
    copy: SessionCopy,
    request: DecideRequest,
    rendered: Rendered,
    answers: Sequence[tuple[OwnAnswer, str | None]],
    at_ms: int,
    received_ms: int,
    fallback_id: Callable[[int], str],
) -> DecisionEntry:
    """The log entry of what this gateway answered: (answer, its decision id) pairs of one request."""
    first = request.entities[answers[0][0].index]
    route, priority = copy.place(first)
    states = (("world_state", rendered.world_state), ("scope_state", rendered.scope_state))
    head = DecisionHead(
        at_ms=at_ms,
        game=copy.game,
        session=copy.session,
        client_id=copy.client_id,
        security_profile=copy.profile,
        epoch=request.epoch,
        manifest_hash=copy.plan.compiled.manifest.hash,
        contexts_hash=copy.contexts.contexts.hash,
        scope=request.scope,
        route=route,
        priority=PRIORITY_CLASSES[priority],
        state="{" + ",".join(f'"{key}":{text}' for key, text in states if text) + "}",
    )
    rows = [
        _row(
            request.entities[own.index],
            own,
            decision_id or fallback_id(own.index),
            rendered,
            at_ms - received_ms,
        )
        for own, decision_id in answers
    ]
    return DecisionEntry(head, rows)


def _row(entity: Entity, own: OwnAnswer, row_id: str, rendered: Rendered, latency_ms: int) -> DecisionRow:
    cached = own.cached
    probabilities: list[float] | None = None
    confidence: float | None = None
    if cached is not None:
        confidence = cached.confidence
        if cached.probabilities is not None:
            probabilities = [cached.probabilities.get(action, 0.0) for action in entity.legal_actions]
    elif own.action is not None:
        probabilities, confidence = [1.0], 1.0
    return DecisionRow(
        id=row_id,
        entity_id=entity.id,
        entity_type=entity.entity_type.name,
        legal_actions=list(entity.legal_actions),
        source="AI" if own.action is not None else "FALLBACK",
        code=own.code,
        action=own.action,
        confidence=confidence,
        probabilities=probabilities,
        profile=entity.profile,
        trigger=entity.trigger,
        parent=entity.parent,
        input='{"observation":' + rendered.observations[own.index] + "}",
        provider=cached.provider if cached is not None else None,
        model=cached.model if cached is not None else None,
        cached=cached is not None,
        input_tokens=0,
        output_tokens=0,
        cost_nanousd=0,
        latency_ms=latency_ms,
    )
