"""Scripts by their digest, commands as bytes, delays between attempts: the pure parts of a connection."""

import pytest

from shared.errors import StoreReplyError
from shared.store.commands import pack
from shared.store.keeper import Backoff
from shared.store.scripts import Scripts, merge_retried, retry_commands

LOST = StoreReplyError("NOSCRIPT No matching script.")


def test_a_script_is_read_once_and_called_by_its_sha1() -> None:
    read: list[str] = []

    def source(name: str) -> str:
        read.append(name)
        return "return 1"

    scripts = Scripts(source)
    script = scripts.named("one")
    assert scripts.named("one") is script
    assert read == ["one"]
    assert script.call(["k"], ["a", 2]) == (
        "EVALSHA",
        "e0e1f9fabfc9d4800c877a703b823ac0578ff8db",
        1,
        "k",
        "a",
        2,
    )
    assert scripts.loads() == [("SCRIPT", "LOAD", "return 1")]


def test_only_known_scripts_that_the_server_lost_are_run_again() -> None:
    scripts = Scripts("return '{}'".format)
    script = scripts.named("a")
    commands = [script.call([]), ("GET", "k"), script.call([]), ("EVALSHA", "f" * 40, 0), ("GET", script.sha)]
    replies = [LOST, LOST, StoreReplyError("ERR NOSCRIPT"), LOST, LOST]
    assert scripts.unknown_to_server(commands, replies) == [(0, script)]


def test_replies_of_the_second_run_take_their_places() -> None:
    scripts = Scripts({"a": "return 'a'", "b": "return 'b'"}.__getitem__)
    a, b = scripts.named("a"), scripts.named("b")
    commands = [a.call([]), ("PING",), b.call([])]
    replies: list[object] = [LOST, b"PONG", LOST]
    lost = scripts.unknown_to_server(commands, replies)
    assert retry_commands(commands, lost) == [a.load(), commands[0], b.load(), commands[2]]
    refused = StoreReplyError("ERR Error compiling script")
    merge_retried(replies, lost, [b"sha", b"a", refused, LOST])
    assert replies == [b"a", b"PONG", refused]


def test_commands_are_packed_one_by_one() -> None:
    assert pack([("SET", b"\r\n", 1), ("é",)]) == [
        b"*3\r\n$3\r\nSET\r\n$2\r\n\r\n\r\n$1\r\n1\r\n",
        b"*1\r\n$2\r\n\xc3\xa9\r\n",
    ]


@pytest.mark.parametrize("command", [(), (None,), (True,), ([],), ("\ud800",), ["PING"], "PING"])
def test_what_is_no_command_is_refused(command: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        pack([("PING",), command])  # type: ignore[list-item]


def test_delays_double_up_to_a_second_and_are_halved_at_most() -> None:
    longest, shortest = Backoff(lambda _, most: most), Backoff(lambda least, _: least)
    assert [longest.after(0) for _ in range(7)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert [shortest.after(0) for _ in range(7)] == [0.025, 0.05, 0.1, 0.2, 0.4, 0.5, 0.5]
    assert [longest.after(0) for _ in range(2000)][-1] == 1.0


def test_only_a_session_of_some_length_starts_anew() -> None:
    backoff = Backoff(lambda _, most: most)
    assert [backoff.after(seconds) for seconds in (0, 0.9, 0.9, 1.0, 0, 0)] == [
        0.05,
        0.1,
        0.2,
        0.0,
        0.05,
        0.1,
    ]
