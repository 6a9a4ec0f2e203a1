"""Provider calls of one batch: model input laid out, one provider asked, answers turned into outcomes."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
import structlog

from shared import metric_defs
from shared.clock import Clock
from shared.metrics import Metrics
from shared.protocol.contexts import Contexts
from shared.scheduling.batches import Asked, Call, Caps, Question, plan_calls
from shared.scheduling.tokens import estimated_tokens
from workers.latency import Latency
from workers.prompt import instructions_object, profiles_text, state_object
from workers.providers.base import Answer, ModelRequest, NoAnswer
from workers.providers.base import Question as ModelQuestion
from workers.providers.client import Attempt, ProviderClient
from workers.slots import Slots
from workers.work import Batch, Outcome, Pending

REQUEST_TOKENS = 250  # a request's share of slots and request quotas, weighed in tokens (decision 004)

_log = structlog.get_logger(__name__)

PendingQuestion = Question[Pending]
PlannedCall = Call[PendingQuestion]


class Result(msgspec.Struct, frozen=True):
    """One question's outcome. `failed`: the call brought no reply; another provider may."""

    question: PendingQuestion
    outcome: Outcome
    failed: bool


class Calls:
    """Asks questions of a batch, within the provider's slots."""

    def __init__(
        self,
        clients: Mapping[str, ProviderClient],
        slots: Mapping[str, Slots],
        routing: Mapping[str, Sequence[str]],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._routes = {route: chain[0] for route, chain in routing.items()}
        self._latencies = {name: Latency() for name in clients}
        self._clients = clients
        self._slots = slots
        self._clock = clock
        self._metrics = metrics

    def plan(self, questions: Sequence[PendingQuestion], provider: str) -> list[PlannedCall]:
        """Cut questions into requests to one provider."""
        entry = self._clients[provider].provider
        caps = Caps(entry.max_questions, entry.max_request_tokens, entry.isolates, REQUEST_TOKENS)
        states = {one.leader.work.item.session: one.leader.work.state for one in questions}
        first = questions[0].leader.work
        texts = first.session.texts
        static = texts.static(first.session.contexts, first.item.scope)
        types = texts.types({one.leader.ask.type for one in questions})
        return plan_calls(
            [Asked(one, one.leader.work.item.session, one.leader.tokens) for one in questions],
            lambda session: estimated_tokens(len(states[session])),
            estimated_tokens(len(static) + len(types)),
            caps,
        )

    def least_ms(self, provider: str) -> int:
        """The time, in milliseconds, without which this provider is not asked."""
        return self._latencies[provider].least_ms(asyncio.get_running_loop().time())

    async def ask(self, batch: Batch, call: PlannedCall, provider: str) -> list[Result]:
        """Make one request and say what became of its questions; a failure is a result, not an error.

        Questions that can no longer be answered in time are not sent: their outcome is `busy`.
        """
        slots = self._slots[provider]
        if batch.holds_slot and provider == self._routes[batch.route]:
            batch.holds_slot = False  # the claim took it for the first call
        else:
            await slots.acquire()
        loop = asyncio.get_running_loop()
        try:
            # Looked at with the slot in hand: waiting for one may have taken the time that was left.
            now_ms = self._clock.now_ms()
            call, too_late = _in_time(call, now_ms + self.least_ms(provider))
            if not call.questions:
                return too_late
            request = model_request(call)
            started_s = loop.time()
            attempt = await self._clients[provider].ask(request, batch.deadline_ms - now_ms)
            took_s = loop.time() - started_s
        finally:
            slots.release()
        if attempt.reply is not None:
            self._latencies[provider].record(loop.time(), int(took_s * 1000))
        self._count(provider, len(call.questions), attempt, took_s)
        for work in {question.leader.work for question in call.questions}:
            work.provider_us += int(took_s * 1e6)
        return results(call, attempt, provider) + too_late

    def give_back(self, batch: Batch) -> None:
        """Free the slot that was taken at the claim and is not needed."""
        if batch.holds_slot:
            batch.holds_slot = False
            self._slots[self._routes[batch.route]].release()

    def _count(self, provider: str, questions: int, attempt: Attempt, took_s: float) -> None:
        outcome = "ok" if attempt.error is None else attempt.error.kind
        metrics = self._metrics
        metrics.counter(metric_defs.PROVIDER_CALLS, provider, outcome).inc()
        metrics.counter(metric_defs.PROVIDER_QUESTIONS, provider).inc(questions)
        metrics.counter(metric_defs.PROVIDER_TOKENS, provider, "input").inc(attempt.usage.input_tokens)
        metrics.counter(metric_defs.PROVIDER_TOKENS, provider, "output").inc(attempt.usage.output_tokens)
        metrics.counter(metric_defs.PROVIDER_COST, provider).inc(attempt.cost_nanousd)
        metrics.histogram(metric_defs.PROVIDER_SECONDS, provider).observe(took_s)
        if attempt.error is not None:
            _log.warning("provider call failed", provider=provider, outcome=outcome, error=str(attempt.error))


def _in_time(call: PlannedCall, earliest_ms: int) -> tuple[PlannedCall, list[Result]]:
    """The call without questions whose deadline comes before `earliest_ms`, and the results of those."""
    if all(one.leader.work.item.deadline_ms >= earliest_ms for one in call.questions):
        return call, []
    late = [one for one in call.questions if one.leader.work.item.deadline_ms < earliest_ms]
    kept = [one for one in call.questions if one.leader.work.item.deadline_ms >= earliest_ms]
    busy = [Result(one, _fallback(one.leader, "busy", None, None), failed=False) for one in late]
    return Call(kept, call.shared_state), busy


def model_request(call: PlannedCall) -> ModelRequest:
    """The model input of one request: the shared state and each question's own part.

    A request of several sessions shares only what is the same for all of them; each session's dynamic state,
    and profile texts that not all of them have, stand in that session's questions.
    """
    pendings = [question.leader for question in call.questions]
    first = pendings[0].work
    shared, own = _profiles(pendings)
    state = state_object(
        first.session.texts.static(first.session.contexts, first.item.scope),
        profiles_text(shared),
        first.session.texts.types({pending.ask.type for pending in pendings}),
        first.state if call.shared_state else "",
    )
    questions = [
        ModelQuestion(
            f"q{number}",
            instructions_object(
                own[number - 1], "" if call.shared_state else pending.work.state, pending.own
            ),
            pending.criteria.text,
            pending.criteria.options,
        )
        for number, pending in enumerate(pendings, 1)
    ]
    return ModelRequest(state, questions)


def _profiles(pendings: Sequence[Pending]) -> tuple[dict[str, str], list[str]]:
    """Profile texts for the shared state, and for each question the text that only its session has."""
    used = {pending.ask.profile for pending in pendings if pending.ask.profile is not None}
    if not used:
        return {}, [""] * len(pendings)
    contexts = {id(p.work.session.contexts): p.work.session.contexts for p in pendings}
    shared: dict[str, str] = {}
    for name in used:
        known = {_profile_text(one, name) for one in contexts.values()}
        text = known.pop()
        if not known and text is not None:
            shared[name] = text
    return shared, [_own_profile(pending, shared) for pending in pendings]


def _own_profile(pending: Pending, shared: Mapping[str, str]) -> str:
    name = pending.ask.profile
    if name is None or name in shared:
        return ""
    return profiles_text({name: pending.work.session.contexts.profiles[name].text})


def _profile_text(contexts: Contexts, name: str) -> str | None:
    profile = contexts.profiles.get(name)
    return profile.text if profile is not None else None


def results(call: PlannedCall, attempt: Attempt, provider: str) -> list[Result]:
    """What one attempt means for each question; tokens and cost are split so that the shares sum up."""
    count = len(call.questions)
    tokens = _shares(attempt.usage.input_tokens, count)
    output_tokens = _shares(attempt.usage.output_tokens, count)
    costs = _shares(attempt.cost_nanousd, count)
    reply = attempt.reply
    found = []
    for place, question in enumerate(call.questions):
        leader = question.leader
        leader.spent_tokens += tokens[place]
        leader.spent_output_tokens += output_tokens[place]
        leader.spent_nanousd += costs[place]
        if reply is None:
            found.append(Result(question, _fallback(leader, "unavailable", provider, None), failed=True))
            continue
        answer = reply.answers[place]
        found.append(Result(question, _outcome(leader, answer, provider, reply.model), failed=False))
    return found


def _outcome(leader: Pending, answer: Answer | NoAnswer, provider: str, model: str) -> Outcome:
    if isinstance(answer, NoAnswer):
        return _fallback(leader, answer.code, provider, model)
    return Outcome(
        action=answer.choice,
        code=None,
        confidence=answer.confidence,
        probabilities=answer.probabilities,
        provider=provider,
        model=model,
        input_tokens=leader.spent_tokens,
        output_tokens=leader.spent_output_tokens,
        cost_nanousd=leader.spent_nanousd,
    )


def _fallback(leader: Pending, code: str, provider: str | None, model: str | None) -> Outcome:
    return Outcome(
        action=None,
        code=code,
        provider=provider,
        model=model,
        input_tokens=leader.spent_tokens,
        output_tokens=leader.spent_output_tokens,
        cost_nanousd=leader.spent_nanousd,
    )


def _shares(total: int, count: int) -> list[int]:
    """`total` in `count` whole parts that sum up to it; the first ones carry the remainder."""
    share, rest = divmod(total, count)
    return [share + 1] * rest + [share] * (count - rest)
