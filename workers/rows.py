"""Outcomes as they leave a worker: reply, log entry, and what is cached of them. Pure."""

from collections.abc import Callable

from shared.decision_log import DecisionEntry, DecisionHead, DecisionRow
from shared.scheduling.items import Answer, CachedDecision, ItemReply
from shared.scheduling.routing import PRIORITY_CLASSES
from workers.work import Batch, Outcome, Pending, Work

DecisionIdOf = Callable[[Pending, str], str]  # the ask and its action → a new decision id


def reply_and_entry(
    batch: Batch, work: Work, now_ms: int, decision_id: DecisionIdOf
) -> tuple[ItemReply, DecisionEntry]:
    """One item's answers, for its gateway and for the log; both name the same decision ids."""
    answers: list[Answer] = []
    rows: list[DecisionRow] = []
    latency_ms = max(0, now_ms - work.item.received_ms)
    for pending, outcome in work.answered:
        ask = pending.ask
        issued = decision_id(pending, outcome.action) if outcome.action is not None else None
        answers.append(
            Answer(ask.index, outcome.action, outcome.code, outcome.confidence, issued, outcome.cached)
        )
        rows.append(_row(pending, outcome, issued or f"f_{work.item.id}-{ask.index}", latency_ms))
    reply = ItemReply(work.item.id, answers, work.provider_us, batch.linger_us)
    return reply, DecisionEntry(_head(work, now_ms), rows)


def _head(work: Work, now_ms: int) -> DecisionHead:
    item = work.item
    return DecisionHead(
        at_ms=now_ms,
        game=item.game,
        session=item.session,
        client_id=item.client_id,
        security_profile=item.security_profile,
        epoch=item.epoch,
        manifest_hash=work.session.manifest.hash,
        contexts_hash=item.contexts_hash,
        scope=item.scope,
        route=item.route,
        priority=PRIORITY_CLASSES[item.priority],
        state="{" + work.state + "}",
    )


def _row(pending: Pending, outcome: Outcome, row_id: str, latency_ms: int) -> DecisionRow:
    ask = pending.ask
    return DecisionRow(
        id=row_id,
        entity_id=ask.id,
        entity_type=ask.type,
        legal_actions=list(pending.criteria.options),
        source="AI" if outcome.action is not None else "FALLBACK",
        code=outcome.code,
        action=outcome.action,
        confidence=outcome.confidence,
        probabilities=list(outcome.probabilities) if outcome.probabilities is not None else None,
        profile=ask.profile,
        trigger=ask.trigger,
        parent=ask.parent_id,
        input="{" + pending.own + "}",
        provider=outcome.provider,
        model=outcome.model,
        cached=outcome.cached,
        input_tokens=outcome.input_tokens,
        output_tokens=outcome.output_tokens,
        cost_nanousd=outcome.cost_nanousd,
        latency_ms=latency_ms,
    )


def cached_decision(pending: Pending, outcome: Outcome) -> CachedDecision | None:
    """What the decision cache keeps of an outcome; None for a fallback."""
    if outcome.action is None:
        return None
    probabilities = outcome.probabilities
    return CachedDecision(
        outcome.action,
        outcome.confidence,
        dict(zip(pending.criteria.options, probabilities, strict=True))
        if probabilities is not None
        else None,
        outcome.provider or "",
        outcome.model or "",
    )


def reused(pending: Pending, cached: CachedDecision) -> Outcome:
    """The outcome of an ask that someone else's answer serves."""
    probabilities = cached.probabilities
    return Outcome(
        action=cached.action,
        code=None,
        confidence=cached.confidence,
        probabilities=tuple(probabilities.get(option, 0.0) for option in pending.criteria.options)
        if probabilities is not None
        else None,
        provider=cached.provider,
        model=cached.model,
        cached=True,
    )
