"""Which route and priority class an entity gets, and which lane its queue item waits in. Pure.

A lane is what may share one provider request: route, game, manifest, the scope chain's texts, and the session
itself where the route's provider reads questions jointly.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

PriorityName = Literal["critical", "high", "normal", "background"]
PRIORITY_CLASSES: tuple[PriorityName, ...] = get_args(PriorityName)  # by class, 0 first and most urgent
DEFAULT_ROUTE = "default"
Priority = Literal[0, 1, 2, 3]
PRIORITY_OF: Mapping[PriorityName, Priority] = {"critical": 0, "high": 1, "normal": 2, "background": 3}
DEFAULT_CLASS: Priority = 2


@dataclass(frozen=True, slots=True)
class GameRouting:
    """One game's own choices: entity type or `profile:<name>` → route name, or → priority class."""

    routes: Mapping[str, str]
    priorities: Mapping[str, PriorityName]

    def place(self, entity_type: str, profile: str | None) -> tuple[str, Priority]:
        """The route and class of an entity; a profile's own entry wins over its type's."""
        route = DEFAULT_ROUTE
        priority: Priority = DEFAULT_CLASS
        for key in (entity_type, f"profile:{profile}" if profile is not None else ""):
            route = self.routes.get(key, route)
            if key in self.priorities:
                priority = PRIORITY_OF[self.priorities[key]]
        return route, priority


def lane_name(route: str, game_tag: str, manifest_key: str, texts_hash: str, session: str | None) -> str:
    """The lane's opaque name: equal for what may share a request, different for all else.

    `session` is given where the route's provider does not isolate questions.
    """
    return f"{route}|{game_tag}|{manifest_key}|{texts_hash}|{session or ''}"
