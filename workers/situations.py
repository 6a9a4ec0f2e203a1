"""The batch's one look into Redis: situation, memory and latest decisions of its sessions, and the cache."""

from collections.abc import Sequence

from cachetools import LRUCache

from shared.protocol.manifest import Manifest
from shared.protocol.situation import (
    EMPTY_SNAPSHOT,
    ParentDecision,
    Situation,
    Snapshot,
    parent_text,
    unpack_snapshot,
)
from shared.scheduling.items import Ask, QueueItem, decode_last, decode_row
from shared.scheduling.sharing import Party
from shared.scheduling.tokens import estimated_tokens
from shared.store.connection import Command, Reply
from shared.store.situations import SessionSituation, SituationStore
from shared.store.statics import Statics
from workers.flights import flight_of
from workers.prompt import EntitySituation, ManifestTexts, entity_text, session_text
from workers.work import Pending, Session, Work

KEPT_TEXTS = 512  # manifests whose static text stays encoded


class Situations:
    """Reads sessions for a batch and lays out each ask's own part."""

    def __init__(self, store: SituationStore) -> None:
        self._store = store
        self._texts: LRUCache[str, ManifestTexts] = LRUCache(KEPT_TEXTS)

    def read_commands(self, items: Sequence[QueueItem]) -> tuple[list[Command], dict[str, int]]:
        """Commands for all sessions of the items, and where each session's replies begin."""
        commands: list[Command] = []
        places: dict[str, int] = {}
        wanted: dict[str, list[str]] = {}
        for item in items:
            wanted.setdefault(item.session, []).extend(ask.id for ask in item.asks)
        for session, entities in wanted.items():
            places[session] = len(commands)
            commands += self._store.read_commands(session, entities)
        return commands, places

    def works(
        self,
        items: Sequence[tuple[QueueItem, Statics]],
        places: dict[str, int],
        replies: Sequence[Reply],
    ) -> list[Work]:
        """The items with their sessions' situation, read from the replies to `read_commands`."""
        wanted: dict[str, list[str]] = {}
        for item, _ in items:
            wanted.setdefault(item.session, []).extend(ask.id for ask in item.asks)
        sessions: dict[tuple[str, str, str], Session] = {}
        works: list[Work] = []
        for item, statics in items:
            key = (item.session, item.manifest_key, item.contexts_hash)
            session = sessions.get(key)
            if session is None:
                read = self._store.parse_read(replies, places[item.session], wanted[item.session])
                session = sessions[key] = self._session(statics, read)
            works.append(
                Work(
                    item,
                    session,
                    session_text(item, session.population, session.observed_entities),
                    len(item.asks),
                )
            )
        return works

    def _session(self, statics: Statics, read: SessionSituation) -> Session:
        manifest = statics.manifest
        situation = Situation(
            _known_types(unpack_snapshot(read.snapshot), manifest) if read.snapshot else EMPTY_SNAPSHOT,
            manifest,
            {entity: last for entity, value in read.last.items() if (last := decode_last(value))},
            [row for value in read.asked.values() if (row := decode_row(value))],
            read.seen,
        )
        texts = self._texts.get(manifest.key)
        if texts is None:
            texts = self._texts[manifest.key] = ManifestTexts(manifest)
        return Session(
            manifest=manifest,
            contexts=statics.contexts,
            texts=texts,
            situation=situation,
            memory=read.memory,
            population=situation.population_text(),
            observed_entities=situation.observed_entities_text(),
        )


def _known_types(snapshot: Snapshot, manifest: Manifest) -> Snapshot:
    """The snapshot without types that a reopened session's manifest no longer declares."""
    rows = [row for row in snapshot.rows if row.type in manifest.entity_types]
    return snapshot if len(rows) == len(snapshot.rows) else Snapshot(snapshot.scene, rows)


def lay_out(work: Work, ask: Ask, now_ms: int) -> Pending:
    """One ask with its own part of the model input and the size that counts against its budget."""
    session = work.session
    entity_type = session.manifest.entity_types[ask.type]
    situation = session.situation
    criteria = session.texts.criteria(entity_type, ask.legal_mask)
    own = entity_text(
        entity_type,
        ask,
        session.memory.get(ask.id, ""),
        EntitySituation(
            situation.nearby_text(ask.id, ask.type, ask.position),
            parent_text(_parent(session.manifest, ask, now_ms)),
            situation.members_text(ask.id, ask.position),
        ),
    )
    item = work.item
    return Pending(
        work=work,
        ask=ask,
        entity_type=entity_type,
        criteria=criteria,
        own=own,
        tokens=estimated_tokens(len(own) + len(criteria.text)),
        party=Party(item.security_profile, item.game, item.session, item.manifest_key, item.scope or ""),
        flight=flight_of(item, ask.digest) if ask.digest is not None else None,
    )


def _parent(manifest: Manifest, ask: Ask, now_ms: int) -> ParentDecision | None:
    last = ask.parent
    if last is None or ask.parent_id is None:
        return None
    entity_type = manifest.entity_types.get(last.type)
    label = entity_type.actions.get(last.action, "") if entity_type is not None else ""
    return ParentDecision(ask.parent_id, last.type, last.action, label, (now_ms - last.at_ms) / 1000)
