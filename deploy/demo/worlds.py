"""Crafter worlds: the game itself, with a place where something else may steer a creature.

A creature's own `update()` is its native AI. It runs on every frame in which the world's `steer` function
does not take over, so a world without anyone to steer plays exactly as Crafter does. Knows nothing of A2G.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import crafter
import numpy as np
from crafter import constants, objects

from deploy.demo.player import Policy

AREA_CELLS = (64, 64)
# Crafter moves only what is nearer to the player than twice its view of 9 cells; the rest stands still, so
# deciding for it would be wasted.
ACTIVE_CELLS = 18
FULL_HEALTH = {"zombie": 5, "skeleton": 3, "cow": 3}
_KINDS = {objects.Zombie: "zombie", objects.Skeleton: "skeleton", objects.Cow: "cow"}
# A cell counts as underground when this share of the cells around it is rock or tunnel.
_ROCK = frozenset({"stone", "path", "coal", "iron", "diamond", "lava"})
_ROCK_SHARE = 0.6
# What the hero starts with, so that a demo of a minute sees fights and tunnels, not lumber work.
_KIT = {"wood_pickaxe": 1, "wood_sword": 1}
# Of a day of 300 steps; it gets dark, and zombies rise, some eight seconds later.
_AFTERNOON_STEP = 90


@dataclass(slots=True, eq=False)
class Creature:
    """A zombie, skeleton or cow. `body` is Crafter's own object; ids are never reused in a process."""

    id: str
    kind: str
    body: Any

    @property
    def health(self) -> float:
        """Fraction 0..1 of the kind's full health."""
        return float(self.body.health) / FULL_HEALTH[self.kind]

    @property
    def position(self) -> tuple[int, int]:
        return int(self.body.pos[0]), int(self.body.pos[1])


@dataclass(slots=True)
class Changes:
    """What one frame did to the creatures near the player: ids that appeared, were killed or left."""

    appeared: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def nobody_steers(_: Creature) -> bool:
    return False


class CrafterWorld:
    """One running game. `steer(creature)` says whether it moved the creature in this frame."""

    def __init__(self, name: str, seed: int, steer: Callable[[Creature], bool] = nobody_steers) -> None:
        self.name = name
        self.steer = steer
        self.creatures: dict[str, Creature] = {}
        self.scene_number = 0
        self._known: dict[Any, Creature] = {}
        self._born = 0
        self._policy = Policy()
        self._env = crafter.Env(area=AREA_CELLS, length=None, seed=seed)
        # Crafter draws a picture at every step, two thirds of a step's cost, which nobody looks at here.
        self._env._obs = lambda: None

    @property
    def engine(self) -> Any:
        """Crafter's own world: cells and objects."""
        return self._env._world

    @property
    def textures(self) -> Any:
        return self._env._textures

    @property
    def player(self) -> Any:
        return self._env._player

    @property
    def player_id(self) -> str:
        return f"player-{self.scene_number}"

    @property
    def scene(self) -> str:
        return f"{self.name} island {self.scene_number}"

    @property
    def over(self) -> bool:
        """The player is dead: nothing goes on until `generate`."""
        return bool(self.player.health <= 0)

    def generate(self) -> None:
        """Begin a new game on a new island. Takes about a second of CPU: run it off the frame loop."""
        self._env.reset()
        self._env._step = _AFTERNOON_STEP
        self.player.inventory.update(_KIT)
        self._policy = Policy()
        self.scene_number += 1

    def abandon(self) -> None:
        """Nobody is there any more: before a new island is made, so that no one looks at half of it."""
        self._known.clear()
        self.creatures.clear()

    def step(self) -> Changes:
        """One frame: the player acts, then every creature near them."""
        # Known before the frame, so that even a creature's first update can be steered.
        self._meet()
        self._env.step(self._policy.choose(self.engine, self.player))
        return self._look_around()

    def distance(self, creature: Creature) -> int:
        """Cells between creature and player, as Crafter's own rules count them."""
        return int(creature.body.distance(self.player))

    def underground(self) -> bool:
        """Whether the player is in a mountain's tunnels."""
        x, y = (int(v) for v in self.player.pos)
        # The world's own table of cells; one slice is far cheaper than 49 look-ups.
        around = self.engine._mat_map[max(0, x - 3) : x + 4, max(0, y - 3) : y + 4]
        rock = [self.engine._mat_ids[name] for name in _ROCK]
        return bool(np.isin(around, rock).mean() >= _ROCK_SHARE)

    def _meet(self) -> list[str]:
        """Hook creatures that are near for the first time; returns ids new among `creatures`."""
        appeared = []
        for body in self.engine.objects:
            kind = _KINDS.get(type(body))
            if kind is None or body.distance(self.player) >= ACTIVE_CELLS:
                continue
            creature = self._known.get(body)
            if creature is None:
                self._born += 1
                creature = self._known[body] = Creature(f"{kind}-{self._born}", kind, body)
                body.update = functools.partial(self._update, creature, body.update)
            if creature.id not in self.creatures:
                self.creatures[creature.id] = creature
                appeared.append(creature.id)
        return appeared

    def _update(self, creature: Creature, native: Callable[[], None]) -> None:
        # The dead are Crafter's business: its own update takes them off the map.
        if creature.body.health <= 0 or not self.steer(creature):
            native()

    def _look_around(self) -> Changes:
        changes = Changes(appeared=self._meet())
        for creature in list(self.creatures.values()):
            if creature.body.removed:
                (changes.killed if creature.body.health <= 0 else changes.left).append(creature.id)
                del self._known[creature.body]
            elif self.distance(creature) >= ACTIVE_CELLS:
                changes.left.append(creature.id)
            else:
                continue
            del self.creatures[creature.id]
        return changes


def walkable(engine: Any, position: Any) -> bool:
    """Whether a creature could step there now: free and grass, sand or path."""
    material, obj = engine[position]
    return obj is None and material in constants.walkable
