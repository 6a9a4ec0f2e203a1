"""Lua scripts by the digest that the server knows them by. Pure."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.errors import StoreReplyError
from shared.store.commands import Command


@dataclass(frozen=True, slots=True)
class Script:
    """A script and its SHA-1, which is what EVALSHA goes by."""

    sha: str
    source: str = field(repr=False)

    def call(self, keys: Sequence[str | bytes], args: Sequence[str | bytes | int | float] = ()) -> Command:
        """The command that runs it on these keys."""
        return ("EVALSHA", self.sha, len(keys), *keys, *args)

    def load(self) -> Command:
        """The command that makes the server know it."""
        return ("SCRIPT", "LOAD", self.source)


class Scripts:
    """The scripts in use, shared by a connection and the blocking ones made from it."""

    def __init__(self, source: Callable[[str], str]) -> None:
        """`source` gives a script's text by its name."""
        self._source = source
        self._by_name: dict[str, Script] = {}
        self._by_sha: dict[str | bytes | int | float, Script] = {}

    def named(self, name: str) -> Script:
        """The script of that name; raises what the source raises for one that is not there."""
        script = self._by_name.get(name)
        if script is None:
            text = self._source(name)
            sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
            script = self._by_name[name] = self._by_sha[sha] = Script(sha, text)
        return script

    def loads(self) -> list[Command]:
        """The commands that make a server know them all."""
        return [script.load() for script in self._by_name.values()]

    def unknown_to_server(
        self, commands: Sequence[Command], replies: Sequence[Any]
    ) -> list[tuple[int, Script]]:
        """Which of the commands failed because the server had lost their script: place and script."""
        return [
            (place, script)
            for place, reply in enumerate(replies)
            if isinstance(reply, StoreReplyError)
            and str(reply).startswith("NOSCRIPT")
            and commands[place][0] == "EVALSHA"
            and (script := self._by_sha.get(commands[place][1])) is not None
        ]


def retry_commands(commands: Sequence[Command], lost: Sequence[tuple[int, Script]]) -> list[Command]:
    """Load each lost script before the command that needs it, two commands for each."""
    return [command for place, script in lost for command in (script.load(), commands[place])]


def merge_retried(replies: list[Any], lost: Sequence[tuple[int, Script]], retried: Sequence[Any]) -> None:
    """Put the replies of `retry_commands` in place; of a script that does not load, the reason why."""
    for number, (place, _) in enumerate(lost):
        loaded, reply = retried[2 * number : 2 * number + 2]
        replies[place] = loaded if isinstance(loaded, StoreReplyError) else reply
