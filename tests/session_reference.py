"""A session's scripts in plain Python, to hold them against: same calls, same replies, same state.

Where a script makes room in a full hash at random, the reference is told afterwards what was taken.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shared.store.sessions import ContextUpdateResult, SessionRecord
from shared.store.situations import Reported, ReportedDecision, SituationBounds, Snapshot


@dataclass
class ReferenceSession:
    """One session's state; `record` None while it does not exist."""

    bounds: SituationBounds
    record: SessionRecord | None = None
    version: int = 0
    snapshot: Snapshot | None = None
    seen: set[tuple[str, str]] = field(default_factory=set)  # type and id
    current: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    memory: dict[str, list[str]] = field(default_factory=dict)
    last: dict[str, bytes] = field(default_factory=dict)
    asked: dict[str, bytes] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)

    def open(self, record: SessionRecord) -> int:
        same_game = self.record is not None and self.record.game == record.game
        if self.record is None or not same_game or self.record.manifest_key != record.manifest_key:
            self.snapshot = None
            for situation in (self.asked, self.seen, self.counts):
                situation.clear()
        if not same_game:
            for kept in (self.current, self.gone, self.memory, self.last):
                kept.clear()
        self.version = max(record.created_ms, self.version + 1 if self.record is not None else 0)
        self.record = record
        return self.version

    def update_context(self, version: int, contexts_hash: str) -> ContextUpdateResult | None:
        if self.record is None:
            return None
        if version != self.version:
            return ContextUpdateResult(False, self.version)
        self.version += 1
        self.record = replace(self.record, contexts_hash=contexts_hash)
        return ContextUpdateResult(True, self.version)

    def telemetry(self, snapshot: Snapshot) -> bool | None:
        if self.record is None:
            return None
        if self.snapshot is not None and snapshot.at_ms < self.snapshot.at_ms:
            return False
        known = self.current
        if self.snapshot is None or self.snapshot.scene != snapshot.scene:
            self.seen, self.counts, known = set(), {}, {}
        for name, kind in snapshot.entities:
            if known.get(name) == kind or (kind, name) in self.seen:
                continue
            self.counts[kind] = self.counts.get(kind, 0) + 1
            if len(self.seen) < self.bounds.max_seen:
                self.seen.add((kind, name))
        present = dict(snapshot.entities)
        for name in self.current.keys() - present.keys():
            self.gone[name] = snapshot.at_ms
            self.memory.pop(name, None)
            self.last.pop(name, None)
        for name in present.keys() - self.current.keys():
            self.gone.pop(name, None)
        horizon = snapshot.at_ms - self.bounds.gone_window_ms
        latest = sorted(self.gone.items(), key=lambda pair: (pair[1], pair[0]))[-self.bounds.max_gone :]
        self.gone = {name: at for name, at in latest if at > horizon}
        self.current, self.snapshot = present, snapshot
        self.asked.clear()
        return True

    def report(self, now_ms: int, reported: ReportedDecision) -> Reported | None:
        if self.record is None:
            return None
        self.used = {name: expires for name, expires in self.used.items() if expires > now_ms}
        if reported.decision_id in self.used:
            return Reported.REPEATED
        self.used[reported.decision_id] = reported.expires_ms
        entity = reported.entity_id
        if entity in self.gone:
            return Reported.LOGGED_ONLY
        self.memory[entity] = [*self.memory.get(entity, []), reported.report][-self.bounds.max_reports :]
        return Reported.REMEMBERED

    def remember(self, decisions: Mapping[str, bytes]) -> None:
        self.last.update(decisions)

    def ask(self, rows: Mapping[str, bytes]) -> None:
        self.asked.update(rows)


def make_room(reference: dict[str, Any], found: Iterable[str], written: Iterable[str], most: int) -> None:
    """Take from the reference what a script took to make room: no more than needed, nothing just written."""
    taken = reference.keys() - set(found)
    assert len(taken) == max(0, len(reference) - most)
    assert not taken & set(written)
    for name in taken:
        del reference[name]
