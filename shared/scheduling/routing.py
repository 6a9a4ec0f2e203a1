"""Which route and priority class an entity gets, and which lane its queue item waits in. Pure.

A lane is what may share one provider request: route, game, manifest, the scope chain's texts, and the session
itself where the route's provider reads questions jointly.
"""

from collections.abc import Mapping
from dataclasses import dataclass

PRIORITY_CLASSES = ("critical", "high", "normal", "background")  # index = class, 0 first
DEFAULT_ROUTE = "default"
DEFAULT_CLASS = PRIORITY_CLASSES.index("normal")


@dataclass(frozen=True, slots=True)
class GameRouting:
    """One game's own choices: entity type or `profile:<name>` → route name, or → priority class."""

    routes: Mapping[str, str]
    priorities: Mapping[str, str]

    def place(self, entity_type: str, profile: str | None) -> tuple[str, int]:
        """The route and class of an entity; a profile's own entry wins over its type's."""
        route = DEFAULT_ROUTE
        priority = DEFAULT_CLASS
        for key in (entity_type, f"profile:{profile}" if profile is not None else ""):
            route = self.routes.get(key, route)
            if key in self.priorities:
                priority = PRIORITY_CLASSES.index(self.priorities[key])
        return route, priority


def lane_name(route: str, game_tag: str, manifest_hash: str, texts_hash: str, session: str | None) -> str:
    """The lane's opaque name; the route comes first, up to the first `|`, so that a worker can tell it.

    `session` is given where the route's provider does not isolate questions.
    """
    return f"{route}|{game_tag}|{manifest_hash[-24:]}|{texts_hash}|{session or ''}"
