"""Plays the worlds: one frame loop and one session each, all in one event loop.

No frame ever waits for the network: a frame is the game's own step plus the sending of what is due. A new
island takes a second to make and is made in a thread, while the other worlds go on.
"""

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from deploy.demo.adapter import Adapter
from deploy.demo.client import A2GClient
from deploy.demo.decisions import Book
from deploy.demo.events import EventWatch
from deploy.demo.manifest import CAVES
from deploy.demo.tally import Tally
from deploy.demo.worlds import CrafterWorld, Creature

# An eighth of a second, as the manifest tells the model. A frame costs about 1 ms of CPU.
FRAME_S = 0.125


@dataclass(slots=True)
class Player:
    """One world and its session."""

    world: CrafterWorld
    adapter: Adapter
    book: Book
    watch: EventWatch
    client: A2GClient
    tally: Tally
    now_s: float = 0.0
    sending_context: bool = False

    def frame(self, now_s: float) -> None:
        """One frame. Never waits."""
        self.now_s = now_s
        changes = self.world.step()
        self.adapter.refresh(changes)
        self.book.track(self.adapter.entities(), now_s)
        horde = self.adapter.horde.id
        self.adapter.order(None if horde is None else self.book.current(horde, now_s))
        for entity_id, event in self.watch.notice(self.adapter, changes):
            self.book.notify(entity_id, event)
        self.client.pump(now_s)
        self.tally.frames += 1

    def steer(self, creature: Creature) -> bool:
        """Called by the world where the native AI would run; True when a decision was carried out."""
        action = self.book.current(creature.id, self.now_s)
        done = action is not None and self.adapter.execute(creature, action)
        if action is not None and not done:
            self.book.blocked(creature.id, self.now_s)
        if done:
            self.tally.steered += 1
        else:
            self.adapter.release(creature)
            self.tally.native += 1
        return done

    def begin_scene(self) -> None:
        """A new island comes: what was decided on the old one is void (A2G Glossary, "Epoch")."""
        self.world.abandon()
        self.book.new_epoch()
        self.adapter.new_scene()
        self.watch = EventWatch()

    async def learn_caves(self) -> None:
        """Tell the service about the caves; tried again on a later frame when it did not work."""
        self.adapter.caves_known = await self.client.add_context(CAVES["scopes"], CAVES["profiles"])
        self.sending_context = False


async def run_world(player: Player, stop: asyncio.Event, group: asyncio.TaskGroup) -> None:
    """The frame loop of one world until `stop` is set."""
    next_s = time.monotonic()
    while not stop.is_set():
        now_s = time.monotonic()
        if player.world.over:
            player.client.paused = True
            player.begin_scene()
            await asyncio.to_thread(player.world.generate)
            player.client.paused = False
            next_s = now_s = time.monotonic()
        player.frame(now_s)
        if (
            not player.adapter.caves_known
            and not player.sending_context
            and player.client.open
            and player.world.underground()
        ):
            player.sending_context = True
            group.create_task(player.learn_caves())
        next_s += FRAME_S
        if (late_s := time.monotonic() - next_s) > 0:
            player.tally.late_frames += 1
            next_s += late_s  # a frame that came late is not caught up with
        await asyncio.sleep(max(0.0, next_s - time.monotonic()))


def make_player(
    world: CrafterWorld,
    *,
    http: aiohttp.ClientSession,
    url: str,
    manifest: Mapping[str, Any],
    tally: Tally,
    group: asyncio.TaskGroup,
    began_s: float,
) -> Player:
    """Bind a generated world to a new session of its own."""
    adapter = Adapter(world)
    types: Mapping[str, Any] = manifest["entity_types"]
    book = Book(
        refresh_s={name: kind["refresh_ms"] / 1000 for name, kind in types.items() if "refresh_ms" in kind},
        observe=adapter.observe,
        world=adapter.world_state,
    )
    client = A2GClient(
        http=http,
        url=url,
        client_id=f"crafter-{world.name}-{secrets.token_hex(4)}",
        manifest=manifest,
        game=adapter,
        book=book,
        tally=tally,
        group=group,
        scene=lambda: world.scene,
        began_s=began_s,
    )
    player = Player(world, adapter, book, EventWatch(), client, tally)
    world.steer = player.steer
    return player
