"""The adapter: what Crafter's creatures observe, may do and do, in the words of the manifest.

The one module that knows both the game and the manifest. Reads and moves game objects, does no I/O. Every
action goes through Crafter's own code and keeps its rules: cooldown, reload, damage, what is walkable.
"""

from typing import Any

import numpy as np
from crafter import objects

from deploy.demo.horde import Horde
from deploy.demo.player import doing
from deploy.demo.worlds import Changes, CrafterWorld, Creature

# Crafter's zombies and skeletons notice the player at this distance in cells.
NOTICE_CELLS = 8
SHOT_CELLS = 5
COW_NEAR_CELLS = 4
_HERD_CELLS = 8
_HERD_SHOWN = 4
# A decision is older than the situation it was made for, so carrying it out is allowed a little beyond what
# offering it is; past this the game refuses (status `blocked`).
_LEEWAY_CELLS = 2
_STRIKE, _STRIKE_SLEEPER, _COOLDOWN_FRAMES = 2, 7, 5
_FULL = 9  # health, food, drink and energy of Crafter's player

Observation = dict[str, Any]


class Adapter:
    """One world's creatures as A2G entities. `native` is what an entity without a decision is doing."""

    def __init__(self, world: CrafterWorld) -> None:
        self.world = world
        self.horde = Horde()
        self.caves_known = False
        self.captain: str | None = None
        self.lead_cow: str | None = None
        self.doing: dict[str, str] = {}

    def new_scene(self) -> None:
        """Forget everything about the last island; context learnt on the way stays."""
        self.horde = Horde()
        self.captain = self.lead_cow = None
        self.doing.clear()

    def refresh(self, changes: Changes) -> None:
        """After a frame: who belongs to the horde now, who carries a name."""
        self.horde.bury(changes.killed)
        near = {c.id: c for c in self._kind("zombie") if self.world.distance(c) <= NOTICE_CELLS}
        self.horde.muster(near, self.world.scene_number)
        self.captain = self._named(self.captain, "zombie")
        self.lead_cow = self._named(self.lead_cow, "cow")
        self.doing = {id_: action for id_, action in self.doing.items() if id_ in self.world.creatures}

    def entities(self) -> dict[str, str]:
        """Id → type of everything that can be decided for now."""
        found = {creature.id: creature.kind for creature in self.world.creatures.values()}
        if self.horde.id is not None:
            found[self.horde.id] = "horde"
        return found

    def observe(self, entity_id: str) -> Observation | None:
        """Exactly the manifest's fields of the entity's type; None when it is gone."""
        if entity_id == self.horde.id:
            return self._observe_horde()
        creature = self.world.creatures.get(entity_id)
        return None if creature is None else _OBSERVE[creature.kind](self, creature)

    def legal_actions(self, entity_id: str) -> list[str]:
        """What the rules allow at this moment; empty means: do not ask."""
        if entity_id == self.horde.id:
            return ["press", "surround", "lurk", "fall_back"]
        creature = self.world.creatures.get(entity_id)
        if creature is None or creature.body.health <= 0:
            return []
        return _LEGAL[creature.kind](self, creature)

    def execute(self, creature: Creature, action: str) -> bool:
        """Carry out one frame of a decision; False means blocked: nothing was done, native AI runs."""
        done = _EXECUTE[creature.kind](self, creature, action)
        self.doing[creature.id] = action if done else "native"
        return done

    def release(self, creature: Creature) -> None:
        """Native AI has the creature again."""
        self.doing.pop(creature.id, None)

    def order(self, intent: str | None) -> None:
        """The horde's latest decision, None without a valid one."""
        self.horde.intent = intent

    def links(self, entity_id: str) -> dict[str, Any]:
        """Position, profile and parent, as far as the entity has them."""
        creature = self.world.creatures.get(entity_id)
        if creature is None:
            return {}
        links: dict[str, Any] = {"position": list(creature.position)}
        if entity_id == self.captain:
            links["profile"] = "captain"
        elif entity_id == self.lead_cow:
            links["profile"] = "lead_cow"
        elif creature.kind == "skeleton" and self.caves_known and self.world.underground():
            links["profile"] = "tunnel_warden"
        if entity_id in self.horde.members:
            links["parent"] = self.horde.id
        return links

    def world_state(self) -> Observation:
        """The manifest's `world_fields`."""
        bag = self.world.player.inventory
        return {
            "daylight": _fraction(self.world.engine.daylight),
            "player_health": _fraction(bag["health"] / _FULL),
            "player_food": _fraction(bag["food"] / _FULL),
            "player_sleeping": bool(self.world.player.sleeping),
            "player_weapon": next((m for m in ("iron", "stone", "wood") if bag[f"{m}_sword"]), "none"),
        }

    def scope(self) -> tuple[str, Observation]:
        """The active scope and exactly the fields of its chain."""
        material, _ = self.world.engine[self.world.player.pos]
        state: Observation = {"ground": material if material in ("grass", "sand", "path") else "other"}
        if self.caves_known and self.world.underground():
            return "caves", state | {"lava_near": self._lava_near()}
        daylight = float(self.world.engine.daylight)
        if daylight < 0.45:
            return "surface_night", state | {"darkness": 1 if daylight > 0.3 else 2 if daylight > 0.15 else 3}
        return "surface_day", state

    def telemetry_rows(self) -> list[dict[str, Any]]:
        """Player and creatures as they are; the horde has no body, so it is not among them."""
        bag = self.world.player.inventory
        fields = {name: _fraction(bag[name] / _FULL) for name in ("health", "food", "drink", "energy")}
        act = doing(self.world.player)
        rows: list[dict[str, Any]] = [
            {
                "id": self.world.player_id,
                "type": "player",
                "name": "Player",
                "state": act,
                "fields": fields | {"doing": act},
                "position": [int(v) for v in self.world.player.pos],
            }
        ]
        for creature in self.world.creatures.values():
            observed = _OBSERVE[creature.kind](self, creature)
            rows.append(
                {
                    "id": creature.id,
                    "type": creature.kind,
                    "name": creature.kind.capitalize(),
                    "state": observed["doing"],
                    "fields": {k: v for k, v in observed.items() if isinstance(v, (str, bool, int, float))},
                    **self.links(creature.id),
                }
            )
        return rows

    # -- what each type sees

    def observe_zombie(self, zombie: Creature) -> Observation:
        sees = self._sees(zombie)
        return {
            "health": _fraction(zombie.health),
            "distance": self.world.distance(zombie),
            "to_player": self._to_player(zombie),
            "sees_player": sees,
            "recovered": zombie.body.cooldown == 0,
            "company": self._company(zombie),
            "prey": self.world.player_id if sees else None,
            "doing": self._doing(zombie),
        }

    def observe_skeleton(self, skeleton: Creature) -> Observation:
        return {
            "health": _fraction(skeleton.health),
            "distance": self.world.distance(skeleton),
            "to_player": self._to_player(skeleton),
            "target": self.world.player_id if self._sees(skeleton) else None,
            "reload": int(skeleton.body.reload),
            "clear_shot": self._clear_shot(skeleton),
            "doing": self._doing(skeleton),
        }

    def observe_cow(self, cow: Creature) -> Observation:
        herd = self._herd(cow)[:_HERD_SHOWN]
        return {
            "health": _fraction(cow.health),
            "distance": self.world.distance(cow),
            "player_near": self.world.distance(cow) <= COW_NEAR_CELLS,
            "on_grass": self.world.engine[cow.body.pos][0] == "grass",
            "herd": [{"id": other.id, "distance": _apart(cow, other)} for other in herd],
            "doing": self._doing(cow),
        }

    def _observe_horde(self) -> Observation:
        members = [self.world.creatures[id_] for id_ in self.horde.members if id_ in self.world.creatures]
        distances = [self.world.distance(member) for member in members]
        return {
            "size": len(members),
            "mean_health": _fraction(sum(m.health for m in members) / max(1, len(members))),
            "nearest": min(distances, default=0),
            "spread": max(distances, default=0) - min(distances, default=0),
            "lost": self.horde.lost,
            "captain": self.captain if self.captain in self.horde.members else None,
        }

    # -- what the rules allow

    def legal_zombie(self, zombie: Creature) -> list[str]:
        if not self._sees(zombie):
            return ["hold", "wander"]
        legal = ["chase", "retreat", "hold", "wander"]
        if zombie.id in self.horde.members:
            legal.insert(1, "flank")
        if self.world.distance(zombie) <= 1 and zombie.body.cooldown == 0:
            legal.insert(0, "attack")
        return legal

    def legal_skeleton(self, skeleton: Creature) -> list[str]:
        if not self._sees(skeleton):
            return ["hold", "wander"]
        legal = ["advance", "retreat", "hold", "wander"]
        if skeleton.body.reload == 0 and self._clear_shot(skeleton):
            legal.insert(0, "shoot")
        return legal

    def legal_cow(self, cow: Creature) -> list[str]:
        legal = ["wander"]
        if self.world.engine[cow.body.pos][0] == "grass":
            legal.insert(0, "graze")
        if self.world.distance(cow) <= NOTICE_CELLS:
            legal.append("flee")
        if any(_apart(cow, other) > 1 for other in self._herd(cow)[:1]):
            legal.append("herd")
        return legal

    # -- how it is done

    def move_zombie(self, zombie: Creature, action: str) -> bool:
        body, player = zombie.body, self.world.player
        distance = self.world.distance(zombie)
        if action in ("chase", "flank", "retreat") and distance > NOTICE_CELLS + _LEEWAY_CELLS:
            return False
        if action == "attack" and distance > 1 + _LEEWAY_CELLS:
            return False
        if action == "wander":
            body.move(body.random_dir())
        elif action == "retreat":
            _step_away(body, player)
        elif action == "flank":
            # The shorter axis first: it comes round the side instead of down the line.
            _step(body, body.toward(player, False), body.toward(player))
        elif action == "chase" or (action == "attack" and distance > 1):
            _step(body, body.toward(player), body.toward(player, False))
        self._contact(zombie, strikes=action == "attack")
        return True

    def _contact(self, zombie: Creature, *, strikes: bool) -> None:
        """Crafter's own rule of contact: next to the player the cooldown runs, at 0 a strike lands."""
        body, player = zombie.body, self.world.player
        if self.world.distance(zombie) > 1:
            return
        if body.cooldown:
            body.cooldown -= 1
        elif strikes:
            player.health -= _STRIKE_SLEEPER if player.sleeping else _STRIKE
            body.cooldown = _COOLDOWN_FRAMES

    def move_skeleton(self, skeleton: Creature, action: str) -> bool:
        body, player = skeleton.body, self.world.player
        if action in ("shoot", "advance", "retreat"):
            reach = SHOT_CELLS if action == "shoot" else NOTICE_CELLS
            if self.world.distance(skeleton) > reach + _LEEWAY_CELLS:
                return False
        body.reload = max(0, body.reload - 1)
        if action == "shoot":
            body._shoot(body.toward(player))  # keeps its fire until reloaded
        elif action == "advance":
            _step(body, body.toward(player), body.toward(player, False))
        elif action == "retreat":
            _step_away(body, player)
        elif action == "wander" and body.random.uniform() < 0.3:
            body.move(body.random_dir())
        return True

    def move_cow(self, cow: Creature, action: str) -> bool:
        body = cow.body
        if action == "flee":
            if self.world.distance(cow) > NOTICE_CELLS + _LEEWAY_CELLS:
                return False
            _step_away(body, self.world.player)
        elif action == "herd":
            herd = self._herd(cow)
            if not herd:
                return False
            if _apart(cow, herd[0]) > 1 and body.random.uniform() < 0.5:
                _step(body, body.toward(herd[0].body), body.toward(herd[0].body, False))
        elif action == "wander" and body.random.uniform() < 0.5:
            body.move(body.random_dir())
        return True

    # -- small questions

    def _kind(self, kind: str) -> list[Creature]:
        return [creature for creature in self.world.creatures.values() if creature.kind == kind]

    def _named(self, holder: str | None, kind: str) -> str | None:
        """A name stays with its bearer while it lives and is near, then goes to the nearest of its kind."""
        if holder in self.world.creatures:
            return holder
        nearest = min(self._kind(kind), key=self.world.distance, default=None)
        return None if nearest is None else nearest.id

    def _doing(self, creature: Creature) -> str:
        return self.doing.get(creature.id, "native")

    def _sees(self, creature: Creature) -> bool:
        return self.world.distance(creature) <= NOTICE_CELLS

    def _to_player(self, creature: Creature) -> list[int]:
        return [int(v) for v in self.world.player.pos - creature.body.pos]

    def _company(self, zombie: Creature) -> int:
        others = (other for other in self._kind("zombie") if other is not zombie)
        return sum(_apart(zombie, other) <= NOTICE_CELLS for other in others)

    def _herd(self, cow: Creature) -> list[Creature]:
        others = [other for other in self._kind("cow") if other is not cow]
        near = [other for other in others if _apart(cow, other) <= _HERD_CELLS]
        return sorted(near, key=lambda other: (_apart(cow, other), other.id))

    def _clear_shot(self, skeleton: Creature) -> bool:
        body = skeleton.body
        if self.world.distance(skeleton) > SHOT_CELLS:
            return False
        return bool(body.is_free(body.pos + body.toward(self.world.player), objects.Arrow.walkable))

    def _lava_near(self) -> bool:
        materials, _ = self.world.engine.nearby(self.world.player.pos, 3)
        return "lava" in materials


def _fraction(value: Any) -> float:
    """Two decimals: finer would only make equal situations look different."""
    return round(float(value), 2)


def _apart(one: Creature, other: Creature) -> int:
    return int(one.body.distance(other.body))


def _step(body: Any, first: Any, second: Any) -> None:
    """One step in the first direction that is free; both zero or blocked leaves it standing."""
    for direction in (first, second):
        if np.any(direction) and body.move(direction):
            return


def _step_away(body: Any, player: Any) -> None:
    _step(body, -body.toward(player), -body.toward(player, False))


_OBSERVE = {
    "zombie": Adapter.observe_zombie,
    "skeleton": Adapter.observe_skeleton,
    "cow": Adapter.observe_cow,
}
_LEGAL = {"zombie": Adapter.legal_zombie, "skeleton": Adapter.legal_skeleton, "cow": Adapter.legal_cow}
_EXECUTE = {"zombie": Adapter.move_zombie, "skeleton": Adapter.move_skeleton, "cow": Adapter.move_cow}
