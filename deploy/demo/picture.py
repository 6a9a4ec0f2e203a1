"""A picture of one world: Crafter's own renderer, enlarged, with what each creature was told to do."""

from pathlib import Path
from typing import Any

import numpy as np
from crafter import engine
from PIL import Image, ImageDraw, ImageFont

from deploy.demo.play import Player
from deploy.demo.worlds import CrafterWorld, Creature

GRID_CELLS = (25, 15)
CELL_PIXELS = 40
_FONT_PIXELS = 11
_DUSK = 0.6
_DECIDED, _NATIVE, _SHADE = (140, 255, 140), (255, 210, 90), (0, 0, 0)


def draw(player: Player, path: Path) -> None:
    """Write a PNG of the surroundings of the world's player. Raises OSError where it cannot be written."""
    world = player.world
    image = Image.fromarray(_render(world))
    brush, font = ImageDraw.Draw(image), ImageFont.load_default(_FONT_PIXELS)
    for creature, (column, row) in visible(player):
        track = player.book.tracks.get(creature.id)
        decision = track.decision if track is not None else None
        name = "captain" if creature.id == player.adapter.captain else creature.id.replace("-", " ")
        what = decision.action if decision is not None else "native AI"
        low = row == GRID_CELLS[1] - 1
        place = ((column + 0.5) * CELL_PIXELS, (row if low else row + 1) * CELL_PIXELS)
        brush.multiline_text(
            place, f"{name}\n{what}", font=font, anchor="md" if low else "ma", align="center", spacing=1,
            fill=_DECIDED if decision is not None else _NATIVE, stroke_width=2, stroke_fill=_SHADE,
        )  # fmt: skip
    brush.text(
        (6, 4), f"{world.scene}: {caption(player)}", font=font, fill=(255, 255, 255), stroke_width=2,
        stroke_fill=_SHADE,
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, format="PNG")


def visible(player: Player) -> list[tuple[Creature, tuple[int, int]]]:
    """The creatures in the picture, with their column and row."""
    corner = player.world.player.pos - np.array(GRID_CELLS) // 2
    found = []
    for creature in player.world.creatures.values():
        column, row = (int(v) for v in creature.body.pos - corner)
        if 0 <= column < GRID_CELLS[0] and 0 <= row < GRID_CELLS[1]:
            found.append((creature, (column, row)))
    return found


def _render(world: CrafterWorld) -> Any:
    """Rows of RGB pixels. Night is drawn as dusk: as dark as Crafter makes it, a still shows nothing."""
    view = engine.LocalView(world.engine, world.textures, GRID_CELLS)
    daylight = world.engine.daylight
    world.engine.daylight = max(daylight, _DUSK)
    try:
        canvas = view(world.player, (CELL_PIXELS, CELL_PIXELS))
    finally:
        world.engine.daylight = daylight
    return np.asarray(canvas, np.uint8).transpose((1, 0, 2))


def caption(player: Player) -> str:
    """The scene's state in a few words."""
    state = player.adapter.world_state()
    scope, _ = player.adapter.scope()
    horde = f", horde {player.adapter.horde.intent or 'native'}" if player.adapter.horde.id else ""
    return f"{scope}, player health {state['player_health']:.0%}{horde}"
