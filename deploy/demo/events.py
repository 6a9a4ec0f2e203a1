"""What just happened to an entity: compares a frame with the one before and names manifest events."""

from dataclasses import dataclass

from deploy.demo.adapter import NOTICE_CELLS, SHOT_CELLS, Adapter
from deploy.demo.worlds import Changes, Creature

# At this distance or nearer the player counts as close, in cells, by type.
_CLOSE_CELLS = {"zombie": 2, "skeleton": 3, "cow": 3}
_ALLY_CELLS = 8


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is remembered of a creature from one frame to the next."""

    kind: str
    position: tuple[int, int]
    distance: int
    health: float
    waiting: bool  # cooling down or reloading


class EventWatch:
    """Turns changes into (entity id, event) pairs, each event once when it begins."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._members: frozenset[str] = frozenset()
        self._intent: str | None = None

    def notice(self, adapter: Adapter, changes: Changes) -> list[tuple[str, str]]:
        """Events of the frame that led here; the weightier of two for one entity comes last."""
        now = {c.id: _look(adapter, c) for c in adapter.world.creatures.values()}
        events: list[tuple[str, str]] = []
        for entity_id, seen in now.items():
            before = self._seen.get(entity_id)
            events += [(entity_id, event) for event in _own_events(before, seen)]
        events += self._mourning(now, changes.killed)
        events += self._horde_events(adapter, changes.killed)
        self._seen = now
        return events

    def _mourning(self, now: dict[str, _Seen], killed: list[str]) -> list[tuple[str, str]]:
        events = []
        for lost in (self._seen[entity_id] for entity_id in killed if entity_id in self._seen):
            events += [
                (entity_id, "ally_died")
                for entity_id, seen in now.items()
                if seen.kind == lost.kind
                and seen.kind != "skeleton"  # skeletons mourn nobody: their manifest has no such event
                and _apart(seen.position, lost.position) <= _ALLY_CELLS
            ]
        return events

    def _horde_events(self, adapter: Adapter, killed: list[str]) -> list[tuple[str, str]]:
        horde = adapter.horde
        before, intent = self._members, self._intent
        self._members, self._intent = horde.members, horde.intent
        if horde.id is None:
            return []
        events: list[tuple[str, str]] = []
        if not before:
            events.append((horde.id, "formed"))
        elif horde.members - before:
            events.append((horde.id, "grown"))
        if before.intersection(killed):
            events.append((horde.id, "member_lost"))
        if horde.intent is not None and horde.intent != intent:
            events += [(member, "horde_changed") for member in sorted(horde.members)]
        return events


def _look(adapter: Adapter, creature: Creature) -> _Seen:
    body = creature.body
    waiting = bool(getattr(body, "cooldown", 0) or getattr(body, "reload", 0))
    return _Seen(creature.kind, creature.position, adapter.world.distance(creature), creature.health, waiting)


def _own_events(before: _Seen | None, seen: _Seen) -> list[str]:
    events = []
    was_far = before is None or before.distance > NOTICE_CELLS
    if seen.kind != "cow" and seen.distance <= NOTICE_CELLS and was_far:
        events.append("player_spotted")
    close = _CLOSE_CELLS[seen.kind]
    if before is not None and seen.distance <= close < before.distance:
        events.append("player_close")
    ready = before is not None and before.waiting and not seen.waiting
    if ready and seen.kind == "zombie" and seen.distance <= 1:
        events.append("recovered")
    if ready and seen.kind == "skeleton" and seen.distance <= SHOT_CELLS:
        events.append("reloaded")
    if before is not None and seen.health < before.health:
        events.append("hit")
    return events


def _apart(one: tuple[int, int], other: tuple[int, int]) -> int:
    return abs(one[0] - other[0]) + abs(one[1] - other[1])
