"""The horde: a squad without a body. Zombies near the player belong to it and name it as their parent."""

from collections.abc import Iterable, Mapping
from typing import Any

MIN_MEMBERS = 2


class Horde:
    """Who belongs to it and what it is up to. `intent` is set from outside, by its latest decision."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.members: frozenset[str] = frozenset()
        self.intent: str | None = None
        self.lost = 0

    def muster(self, near: Mapping[str, Any], scene_number: int) -> None:
        """Members are the zombies in `near`; fewer than two are no horde. One id per scene."""
        if len(near) < MIN_MEMBERS:
            self.id, self.members, self.intent, self.lost = None, frozenset(), None, 0
            return
        self.id = f"horde-{scene_number}"
        self.members = frozenset(near)

    def bury(self, killed: Iterable[str]) -> None:
        """Count members among the killed; call before the next `muster`."""
        self.lost += len(self.members.intersection(killed))
