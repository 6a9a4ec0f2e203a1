"""The book of decisions of one session: who asks when, what is valid, how it ended. Pure: no clock, no I/O.

Keeps the game's obligations (A2G Decide, "Game obligations"): replies of an old epoch are dropped, an action
must be among those offered, a decision ends with its TTL, anything else means native AI. Times are seconds of
one monotonic clock, passed in.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from deploy.demo.wire import DecisionReply, Report

MAX_BATCH = 16
# A2G Modes and fallback, "Timing": least time between two questions for one entity.
MIN_INTERVAL_S = 0.5
DEFAULT_REFRESH_S = 3.0
MAX_OUTCOME_VALUES = 12
# Reports that wait while the service is away; older ones are of no use to anyone.
_MAX_REPORTS = 512

Status = Literal["executed", "blocked", "expired"]
# What became of one entity's question: a decision, or why there is none. The protocol's fallback codes, and
# the game's own: no reply, a reply too late for its epoch, an entity that left, an action not offered.
Verdict = Literal[
    "ai", "cached", "unavailable", "busy", "refused", "invalid_choice", "budget",
    "no_reply", "stale", "gone", "illegal",
]  # fmt: skip
CODES: frozenset[str] = frozenset({"unavailable", "busy", "refused", "invalid_choice", "budget"})


@dataclass(frozen=True, slots=True)
class Valid:
    """A decision in force, with what the entity saw when it was asked for."""

    decision_id: str
    action: str
    confidence: float | None
    cached: bool
    made_s: float
    expires_s: float
    observation: Mapping[str, Any]
    world: Mapping[str, Any]


@dataclass(slots=True)
class Track:
    """One entity as the book knows it. `ending` says how its last decision ended, for the view."""

    kind: str
    asked_s: float = float("-inf")
    pending: bool = False
    trigger: str | None = None
    last_trigger: str | None = None
    decision: Valid | None = None
    verdict: Verdict | None = None
    ending: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """One entity of a decide request, as it was asked."""

    entity_id: str
    observation: Mapping[str, Any]
    legal: tuple[str, ...]
    trigger: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """A decide request on its way."""

    epoch: int
    world: Mapping[str, Any]
    questions: tuple[Question, ...]


@dataclass(slots=True)
class Book:
    """Decisions of one session.

    `observe(id)` gives an entity's observation now, None when it is gone; `world()` the world state now.
    """

    refresh_s: Mapping[str, float]
    observe: Callable[[str], Mapping[str, Any] | None]
    world: Callable[[], Mapping[str, Any]]
    epoch: int = 0
    tracks: dict[str, Track] = field(default_factory=dict)
    reports: deque[Report] = field(default_factory=lambda: deque(maxlen=_MAX_REPORTS))

    def new_epoch(self) -> None:
        """The context is invalid (another scene): all is forgotten, replies under way will be dropped."""
        self.epoch += 1
        self.tracks.clear()

    def track(self, entities: Mapping[str, str], now_s: float) -> None:
        """Take over who is there now (id → type); the decisions of those who left end."""
        for entity_id in [known for known in self.tracks if known not in entities]:
            self._end(entity_id, "executed", now_s, "left")
            del self.tracks[entity_id]
        for entity_id, kind in entities.items():
            if entity_id not in self.tracks:
                self.tracks[entity_id] = Track(kind)

    def notify(self, entity_id: str, event: str) -> None:
        """An event: the entity asks as soon as it may. A later event replaces one that still waits."""
        if entity_id in self.tracks:
            self.tracks[entity_id].trigger = event

    def due(self, now_s: float) -> list[str]:
        """Who should be asked now: events first, then whoever has waited longest; at most one batch."""
        found = []
        for entity_id, track in self.tracks.items():
            waited_s = now_s - track.asked_s
            interval_s = MIN_INTERVAL_S if track.trigger else self._refresh_s(track.kind)
            if track.pending or waited_s < interval_s:
                continue
            found.append((track.trigger is None, track.asked_s, entity_id))
        return [entity_id for _, _, entity_id in sorted(found)[:MAX_BATCH]]

    def ask(self, legal: Mapping[str, Sequence[str]], now_s: float) -> Asked:
        """Mark as asked and remember what was offered. Entities without legal actions are not asked."""
        questions = []
        for entity_id, actions in legal.items():
            track, observation = self.tracks[entity_id], self.observe(entity_id)
            track.asked_s = now_s
            if not actions or observation is None:
                continue
            questions.append(Question(entity_id, observation, tuple(actions), track.trigger))
            track.pending, track.last_trigger, track.trigger = True, track.trigger, None
        return Asked(self.epoch, self.world(), tuple(questions))

    def answer(
        self, asked: Asked, epoch: int, decisions: Iterable[DecisionReply], now_s: float
    ) -> list[Verdict]:
        """Take a reply; returns what became of each question, in order."""
        if asked.epoch != self.epoch or epoch != asked.epoch:
            self._settle(asked)
            return ["stale"] * len(asked.questions)
        replies = {decision.id: decision for decision in decisions}
        return [self._take(asked, q, replies.get(q.entity_id), now_s) for q in asked.questions]

    def no_answer(self, asked: Asked, now_s: float) -> list[Verdict]:
        """No usable reply at all (A2G Errors: any non-200 is "no decision"): native AI for all."""
        return self.answer(asked, asked.epoch, (), now_s)

    def current(self, entity_id: str, now_s: float) -> str | None:
        """The action in force, None for native AI. Ends a decision whose TTL has passed."""
        track = self.tracks.get(entity_id)
        if track is None or track.decision is None:
            return None
        if now_s >= track.decision.expires_s:
            self._end(entity_id, "expired", now_s)
            return None
        return track.decision.action

    def blocked(self, entity_id: str, now_s: float) -> None:
        """The game refused to execute the decision in force: it ends, and the entity asks again soon."""
        self._end(entity_id, "blocked", now_s)
        track = self.tracks[entity_id]
        soon_s = now_s + MIN_INTERVAL_S - self._refresh_s(track.kind)
        track.asked_s = min(track.asked_s, soon_s)

    def _take(self, asked: Asked, question: Question, reply: DecisionReply | None, now_s: float) -> Verdict:
        track = self.tracks.get(question.entity_id)
        if track is None:
            return "gone"
        track.pending = False
        track.verdict = _judge(question, reply)
        self._end(question.entity_id, "executed", now_s)
        if reply is not None and track.verdict in ("ai", "cached"):
            track.decision = Valid(
                decision_id=reply.decision_id,
                action=reply.action,
                confidence=reply.confidence,
                cached=reply.cached,
                made_s=now_s,
                expires_s=now_s + reply.ttl_ms / 1000,
                observation=question.observation,
                world=asked.world,
            )
        return track.verdict

    def _refresh_s(self, kind: str) -> float:
        return self.refresh_s.get(kind, DEFAULT_REFRESH_S)

    def _settle(self, asked: Asked) -> None:
        """A reply that cannot be used still ends the wait, for entities of the present epoch."""
        if asked.epoch == self.epoch:
            for question in asked.questions:
                if question.entity_id in self.tracks:
                    self.tracks[question.entity_id].pending = False

    def _end(self, entity_id: str, status: Status, now_s: float, why: str = "") -> None:
        track = self.tracks[entity_id]
        decision, track.decision = track.decision, None
        if decision is None:
            return
        after = self.observe(entity_id) or {}
        outcome = deltas(decision.observation, after, decision.world, self.world())
        outcome["seconds"] = round(now_s - decision.made_s, 1)
        self.reports.append(Report(entity_id, decision.decision_id, decision.action, status, outcome))
        track.ending = _ending(why or status, decision.action, outcome)


def deltas(
    before: Mapping[str, Any], after: Mapping[str, Any], world_before: Mapping[str, Any],
    world_after: Mapping[str, Any],
) -> dict[str, float]:  # fmt: skip
    """Numeric changes, `<field>_delta` and `world_<field>_delta` (A2G Report, the SDK's convention).

    Leaves room for `seconds` among the 12 values a report may have; the world's come last and are cut first.
    """
    found = {f"{name}_delta": change for name, change in _changes(before, after)}
    found |= {f"world_{name}_delta": change for name, change in _changes(world_before, world_after)}
    return dict(list(found.items())[: MAX_OUTCOME_VALUES - 1])


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[tuple[str, float]]:
    for name, value in before.items():
        if _is_number(value) and _is_number(after.get(name)):
            yield name, round(after[name] - value, 3)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _judge(question: Question, reply: DecisionReply | None) -> Verdict:
    if reply is None:
        return "no_reply"
    if reply.source != "AI":
        return reply.code  # type: ignore[return-value]  # wire.py admits the protocol's codes only
    if reply.action not in question.legal:
        return "illegal"
    return "cached" if reply.cached else "ai"


def _ending(status: str, action: str, outcome: Mapping[str, float]) -> str:
    shown = [f"{action} {status} {outcome['seconds']:g}s"]
    for name, label in (("distance_delta", "dist"), ("health_delta", "health"), ("nearest_delta", "dist")):
        if outcome.get(name):
            shown.append(f"{label} {outcome[name]:+g}")
    if outcome.get("world_player_health_delta"):
        shown.append(f"player {outcome['world_player_health_delta']:+g}")
    return ", ".join(shown)
