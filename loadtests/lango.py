"""The specification's example game as a load: its manifest, decide requests, telemetry and reports. Pure."""

import json
from random import Random

_FIELDS = {
    "hp_fraction": "number",
    "distance_to_player": "number",
    "sees_player": "boolean",
    "current_action": ["idle", "wander", "chase", "flee"],
}
_ACTIONS = {
    "chase": "Move toward the player to hit them by contact",
    "flee": "Move directly away from the player to preserve health",
    "idle": "Stop and hold position",
    "wander": "Patrol around the home area without engaging",
}
_EVENTS = {
    "player_spotted": "The player just came into view",
    "hit": "This creature was just hit by the player",
    "ally_died": "A creature nearby was just killed",
}
ACTIONS = tuple(_ACTIONS)

MANIFEST = {
    "world": (
        "Lango is a top-down 2D action RPG. The player fights with melee weapons or a ranged form. Hostile "
        "creatures damage the player only by body contact. The player can drink a repellent that hides them "
        "from enemies. Health is given as fractions (0..1). Distances are in pixels."
    ),
    "world_fields": {"player_hp_fraction": "number", "repellent": "boolean"},
    "scopes": {
        "outdoors": {"text": "Open outdoor levels with room to retreat and regroup."},
        "caves": {"text": "Narrow cave levels. Little room to flee; enemies meet the player at close range."},
        "dungeon": {"text": "Dungeon rooms connected by corridors."},
        "boss_arena": {
            "parent": "dungeon",
            "text": "The boss room. The boss keeps spawning bees while it lives.",
            "fields": {"boss_hp_fraction": "number"},
        },
    },
    "entity_types": {
        "bee": {
            "description": (
                "Small, fragile swarm insect (3 HP). Brave in numbers; when badly wounded, alone near the "
                "player or among the last of its swarm, it keeps its distance or flees. Bees spawned by the "
                "boss follow its lead."
            ),
            "fields": _FIELDS,
            "actions": _ACTIONS,
            "events": _EVENTS,
            "decision_ttl_ms": 12000,
            "refresh_ms": 8000,
            "perception_radius": 120,
            "max_input_tokens": 700,
            "cache": {
                "key": [
                    "hp_fraction",
                    "sees_player",
                    "current_action",
                    "world.player_hp_fraction",
                    "parent.action",
                ],
                "buckets": {"hp_fraction": [0.34, 0.67], "world.player_hp_fraction": [0.25, 0.5]},
                "ttl_ms": 8000,
            },
        },
        "bat": {
            "description": (
                "Agile cave hunter (6 HP). Opportunistic: attacks when the player is weakened or busy with "
                "other creatures; backs off when wounded and alone."
            ),
            "fields": _FIELDS,
            "actions": _ACTIONS,
            "events": _EVENTS,
            "perception_radius": 120,
            "max_input_tokens": 700,
        },
        "player": {
            "description": "The human-controlled hero. Not controlled by A2G.",
            "fields": {"hp_fraction": "number", "action": ["move", "roll", "attack", "transition"]},
            "actions": {},
            "perception_radius": 80,
        },
    },
}


def session_body(client_id: str) -> bytes:
    """A session with the manifest."""
    return _encoded(
        {"a2g": "0.1", "client_id": client_id, "game": "Lango", "engine": "load", "manifest": MANIFEST}
    )


def decide_body(client_id: str, kind: str, entities: int, chance: Random) -> bytes:
    """One request for `entities` creatures of type `kind` in the caves; `e0`… are their ids."""
    return _encoded(
        {
            "client_id": client_id,
            "epoch": 1,
            "world": {"player_hp_fraction": round(chance.random(), 3), "repellent": False},
            "scope": "caves",
            "entities": [
                {
                    "id": f"e{n}",
                    "type": kind,
                    "observation": {
                        "hp_fraction": round(chance.random(), 3),
                        "distance_to_player": round(chance.uniform(5, 300), 1),
                        "sees_player": chance.random() < 0.5,
                        "current_action": chance.choice(ACTIONS),
                    },
                    "legal_actions": list(ACTIONS),
                    "position": _place(chance),
                }
                for n in range(entities)
            ],
        }
    )


def telemetry_body(client_id: str, kind: str, entities: int, chance: Random) -> bytes:
    """A snapshot of the player and `entities` creatures of type `kind`."""
    creatures: list[dict[str, object]] = [
        {
            "id": f"e{n}",
            "type": kind,
            "name": kind,
            "state": chance.choice(ACTIONS).upper(),
            "pending": False,
            "fields": {
                "hp_fraction": round(chance.random(), 3),
                "distance_to_player": round(chance.uniform(5, 300), 1),
            },
            "position": _place(chance),
        }
        for n in range(entities)
    ]
    player: dict[str, object] = {
        "id": "player",
        "type": "player",
        "state": "MOVE",
        "fields": {"hp_fraction": 0.8, "action": "move"},
        "position": [400, 300],
    }
    return _encoded(
        {
            "client_id": client_id,
            "mode": "ai",
            "paused": False,
            "scene": "Cave1",
            "scope": "caves",
            "world": {"player_hp_fraction": 0.8, "repellent": False},
            "entities": [player, *creatures],
        }
    )


def report_body(client_id: str, entity: str, decision_id: str, action: str, chance: Random) -> bytes:
    """How one decision ended, with the deltas that the reference SDK sends."""
    return _encoded(
        {
            "client_id": client_id,
            "entity_id": entity,
            "decision_id": decision_id,
            "action": action,
            "status": "executed",
            "outcome": {
                "hp_fraction_delta": 0,
                "distance_to_player_delta": round(chance.uniform(-90, 120), 1),
                "world_player_hp_fraction_delta": round(-chance.random() / 10, 3),
                "seconds": round(chance.uniform(1, 8), 1),
            },
        }
    )


def _place(chance: Random) -> list[float]:
    return [round(chance.uniform(0, 800), 1), round(chance.uniform(0, 600), 1)]


def _encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
