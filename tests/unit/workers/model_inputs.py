"""Factories for a worker's batch: works and asks of one manifest, with text that is easy to find again."""

from collections.abc import Sequence
from typing import Any

from shared.protocol.manifest import parse_manifest
from shared.protocol.situation import EMPTY_SNAPSHOT, Situation
from shared.scheduling.batches import Call, Question
from shared.scheduling.items import Ask, QueueItem
from workers.prompt import ManifestTexts
from workers.situations import lay_out
from workers.work import Pending, Session, Work

MANIFEST: dict[str, Any] = {
    "world": "A moor.",
    "world_fields": {"night": "boolean"},
    "scopes": {
        "moor": {"text": "Wet."},
        "bog": {"parent": "moor", "text": "Deep.", "fields": {"fog": "number"}},
    },
    "profiles": {"old": {"text": "Old and slow."}, "sly": {"text": "Sly."}},
    "entity_types": {
        "imp": {
            "description": "Small.",
            "actions": {"grin": "Show teeth", "hide": "Vanish", "bite": "Attack"},
            "events": {"hit": "Was hit"},
        },
        "hag": {"description": "Ancient.", "actions": {"curse": "Say it", "wait": "Do nothing"}},
    },
}
RECEIVED_MS = 1_750_000_000_000


def work(
    session: str, asks: Sequence[Ask], *, manifest: dict[str, Any] = MANIFEST, scope: str | None = "bog"
) -> Work:
    """One item of a session whose dynamic state names the session."""
    parsed = parse_manifest(manifest)
    item = QueueItem(
        id=f"item-{session}",
        gateway="g",
        game="moor",
        session=session,
        client_id=f"client-{session}",
        security_profile="server",
        epoch=1,
        manifest_key=parsed.manifest.key,
        contexts_hash=parsed.contexts.hash,
        scope=scope,
        route="default",
        priority=2,
        received_ms=RECEIVED_MS,
        deadline_ms=RECEIVED_MS + 3500,
        world_state=f'{{"canary":"world-{session}"}}',
        scope_state=f'{{"canary":"scope-{session}"}}',
        asks=list(asks),
    )
    owner = Session(
        manifest=parsed.manifest,
        contexts=parsed.contexts,
        texts=ManifestTexts(parsed.manifest),
        situation=Situation(EMPTY_SNAPSHOT, parsed.manifest, {}),
        memory={},
        population="",
        observed_entities="",
    )
    state = f'"world_state":{item.world_state},"scope_state":{item.scope_state}'
    return Work(item=item, session=owner, state=state, open_asks=len(asks))


def ask(session: str, number: int = 0, **changes: Any) -> Ask:
    """One imp of a session, with an observation that names it."""
    fields: dict[str, Any] = {
        "index": number,
        "id": f"id-{session}-{number}",
        "type": "imp",
        "observation": f'{{"canary":"seen-{session}-{number}"}}',
        "legal_mask": 0b101,
        "profile": None,
        "trigger": None,
        "parent_id": None,
        "parent": None,
        "position": None,
        "digest": None,
    }
    return Ask(**(fields | changes))


def pendings(session: str, asks: Sequence[Ask], **changes: Any) -> list[Pending]:
    """The asks of one session, laid out."""
    owner = work(session, asks, **changes)
    return [lay_out(owner, one, RECEIVED_MS) for one in asks]


def call(leaders: Sequence[Pending], *, shared_state: bool) -> Call[Question[Pending]]:
    """One provider request that asks for each of these."""
    return Call([Question(leader) for leader in leaders], shared_state)
