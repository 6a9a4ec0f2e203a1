"""A Crafter world without surprises: bare grass, a player who stands still, creatures where a test says."""

from typing import Any

import crafter
import pytest
from crafter import objects

from deploy.demo.adapter import Adapter
from deploy.demo.player import Policy
from deploy.demo.worlds import Changes, CrafterWorld, Creature

CENTRE = (32, 32)


def _grass(world: Any, _player: Any) -> None:
    for x in range(world.area[0]):
        for y in range(world.area[1]):
            world[x, y] = "grass"


class Meadow:
    """Put creatures down with the methods, then `step`. Crafter spawns nothing in the first nine frames."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(crafter.worldgen, "generate_world", _grass)
        monkeypatch.setattr(Policy, "choose", lambda *_: 0)
        self.world = CrafterWorld("meadow", seed=0)
        self.world.generate()
        self.adapter = Adapter(self.world)

    def zombie(self, x: int, y: int) -> Creature:
        return self._put(objects.Zombie(self.world.engine, (x, y), self.world.player))

    def skeleton(self, x: int, y: int) -> Creature:
        return self._put(objects.Skeleton(self.world.engine, (x, y), self.world.player))

    def cow(self, x: int, y: int) -> Creature:
        return self._put(objects.Cow(self.world.engine, (x, y)))

    def lay(self, material: str) -> None:
        """Change the ground around the player, four cells each way."""
        for x in range(CENTRE[0] - 4, CENTRE[0] + 5):
            for y in range(CENTRE[1] - 4, CENTRE[1] + 5):
                self.world.engine[x, y] = material

    def step(self) -> Changes:
        changes = self.world.step()
        self.adapter.refresh(changes)
        return changes

    def _put(self, body: Any) -> Creature:
        self.world.engine.add(body)
        self.world._meet()
        self.adapter.refresh(Changes())
        return self.world._known[body]
