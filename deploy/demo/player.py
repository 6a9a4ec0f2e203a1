"""The scripted player: explores, fights, eats, drinks, sleeps. Something for the creatures to react to.

Chooses one of Crafter's own actions per frame from what a player could see; it is no part of A2G.
"""

from typing import Any

import numpy as np
from crafter import constants, objects

ACTIONS: dict[str, int] = {name: index for index, name in enumerate(constants.actions)}
_STEPS = {(-1, 0): "move_left", (1, 0): "move_right", (0, -1): "move_up", (0, 1): "move_down"}
_DIGGABLE = frozenset({"stone", "coal"})
_SIGHT_CELLS = 9
_FIGHT_CELLS = 6
# Below these (of 9) the player looks for food, water or sleep before anything else.
_HUNGRY, _THIRSTY, _TIRED = 5, 5, 2
_FLEE_HEALTH = 2
# Frames spent on one errand before the other: into the mountain, back to the meadow.
_ERRAND_FRAMES = 120
_DETOUR_FRAMES = 6


class Policy:
    """Decides the player's next action; remembers its errand and a detour around obstacles."""

    def __init__(self) -> None:
        self._frame = 0
        self._detour: tuple[int, int] | None = None
        self._detour_left = 0
        self._goal: Any = None

    def choose(self, world: Any, player: Any) -> int:
        """The index of a Crafter action."""
        self._frame += 1
        return ACTIONS[self._action(world, player)]

    def _action(self, world: Any, player: Any) -> str:
        foe = _nearest(world, player, (objects.Zombie, objects.Skeleton), _FIGHT_CELLS)
        if foe is not None and player.health <= _FLEE_HEALTH:
            return self._walk(world, player, 2 * player.pos - foe.pos)
        if foe is not None:
            return self._strike(world, player, foe.pos)
        if player.inventory["energy"] <= _TIRED:
            return "sleep"
        if player.inventory["drink"] <= _THIRSTY:
            water = _nearest_cell(world, player, "water", _SIGHT_CELLS)
            if water is not None:
                return self._strike(world, player, water)
        if player.inventory["food"] <= _HUNGRY:
            cow = _nearest(world, player, (objects.Cow,), _SIGHT_CELLS)
            if cow is not None:
                return self._strike(world, player, cow.pos)
        return self._explore(world, player)

    def _explore(self, world: Any, player: Any) -> str:
        if self._frame % 2:
            return "noop"  # looks about: at full pace it would outrun everything that hunts it
        if self._goal is None or self._frame % _ERRAND_FRAMES == 0 or player.distance(self._goal) <= 1:
            underground = (self._frame // _ERRAND_FRAMES) % 2 == 1
            self._goal = _far_cell(world, player, "path" if underground else "grass")
        return self._walk(world, player, self._goal) if self._goal is not None else "noop"

    def _strike(self, world: Any, player: Any, target: Any) -> str:
        """Face the target from the next cell and act on it, else come nearer."""
        offset = np.asarray(target) - player.pos
        if np.abs(offset).sum() != 1:
            return self._walk(world, player, target)
        step = (int(offset[0]), int(offset[1]))
        # Moving against an occupied cell turns the player without moving them.
        return "do" if tuple(player.facing) == step else _STEPS[step]

    def _walk(self, world: Any, player: Any, target: Any) -> str:
        if self._detour is not None and self._detour_left > 0:
            self._detour_left -= 1
            if _passable(world, player, self._detour):
                return _STEPS[self._detour]
        offset = np.asarray(target) - player.pos
        along_x = (int(np.sign(offset[0])), 0)
        along_y = (0, int(np.sign(offset[1])))
        long_first = (along_x, along_y) if abs(offset[0]) >= abs(offset[1]) else (along_y, along_x)
        for step in long_first:
            if step in _STEPS and _passable(world, player, step):
                return _STEPS[step]
        for step in long_first:
            if step in _STEPS and _diggable(world, player, step):
                return "do" if tuple(player.facing) == step else _STEPS[step]
        return self._turn_aside(world, player)

    def _turn_aside(self, world: Any, player: Any) -> str:
        ways = [step for step in _STEPS if _passable(world, player, step)]
        if not ways:
            return "noop"
        self._detour = ways[int(world.random.randint(0, len(ways)))]
        self._detour_left = _DETOUR_FRAMES
        return _STEPS[self._detour]


def doing(player: Any) -> str:
    """The player's action in the words of the manifest."""
    if player.sleeping:
        return "sleep"
    if player.action == "do":
        return "strike"
    return "walk" if player.action.startswith("move_") else "rest"


def _passable(world: Any, player: Any, step: tuple[int, int]) -> bool:
    # Without lava: Crafter lets the player walk into it, once.
    return bool(player.is_free(player.pos + np.array(step), constants.walkable))


def _diggable(world: Any, player: Any, step: tuple[int, int]) -> bool:
    material, obj = world[player.pos + np.array(step)]
    return obj is None and material in _DIGGABLE


def _nearest(world: Any, player: Any, kinds: tuple[type, ...], cells: int) -> Any:
    near = [obj for obj in world.objects if isinstance(obj, kinds) and player.distance(obj) <= cells]
    return min(near, key=player.distance, default=None)


def _cells(world: Any, material: str) -> Any:
    return np.argwhere(world._mat_map == world._mat_ids[material])


def _nearest_cell(world: Any, player: Any, material: str, cells: int) -> Any:
    found = _cells(world, material)
    if not len(found):
        return None
    distances = np.abs(found - player.pos).sum(axis=1)
    best = int(distances.argmin())
    return found[best] if distances[best] <= cells else None


def _far_cell(world: Any, player: Any, material: str) -> Any:
    """A cell of this material some way off, chosen by the world's own dice."""
    found = _cells(world, material)
    if not len(found):
        return None
    distances = np.abs(found - player.pos).sum(axis=1)
    middling = found[(distances >= 4) & (distances <= 20)]
    pool = middling if len(middling) else found
    return pool[int(world.random.randint(0, len(pool)))]
