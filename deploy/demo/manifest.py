"""The demo's manifest and what is added to it during play. Files and constants; no logic of the game."""

import json
from importlib import resources
from typing import Any

# Sent through /v1/context when a player first goes underground: a game seldom knows every place at start.
CAVES: dict[str, Any] = {
    "scopes": {
        "caves": {
            "parent": "overworld",
            "text": "Tunnels inside the mountain: narrow, dark, one cell wide in places. Skeletons know them "
            "well; whoever holds the long straight tunnel holds the cave. Lava kills the player at once.",
            "fields": {"lava_near": "boolean"},
        }
    },
    "profiles": {
        "tunnel_warden": {
            "type": "skeleton",
            "text": "Warden of the tunnels. Never leaves its post for long and prefers one sure arrow to "
            "two.",
        }
    },
}


def load_manifest() -> dict[str, Any]:
    """The manifest as it is sent in /v1/session."""
    text = resources.files("deploy.demo").joinpath("manifest.json").read_text(encoding="utf-8")
    manifest: dict[str, Any] = json.loads(text)
    return manifest
