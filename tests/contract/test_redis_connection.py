"""What every Redis connection does, whichever kind it is, over a Unix socket and TCP."""

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import redis

from shared.errors import StoreReplyError, StoreUnavailableError
from shared.settings import RedisClient
from shared.store.connection import ConnectionOptions, RedisConnection
from tests.redis_kinds import KINDS, opened, outcome, sockets_open, works_again
from tests.valkey import ValkeyServer

PASSWORD = "correct-horse"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> RedisClient:
    return request.param


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[ValkeyServer, "redis.Redis[bytes]"]]:
    """One server for all, and a plain client that tidies it up."""
    server = ValkeyServer(
        tcp=True, password=PASSWORD, options={"enable-debug-command": "local", "appendonly": "no"}
    )
    gc.freeze()  # each test collects what it left, and need not look through what was there before
    with asyncio.Runner() as runner:
        runner.run(server.start())
        with redis.Redis.from_url(server.url) as client:
            yield server, client
        runner.run(server.remove())
    gc.unfreeze()


@pytest.fixture
def server(running: tuple[ValkeyServer, "redis.Redis[bytes]"]) -> ValkeyServer:
    """Without data, scripts and users."""
    server, client = running
    client.client_unpause()
    client.flushall()
    client.script_flush()
    client.acl_deluser("ann")
    return server


@pytest.fixture(params=["unix", "tcp"])
def url(server: ValkeyServer, request: pytest.FixtureRequest) -> str:
    return server.url if request.param == "unix" else server.tcp_url


@pytest.fixture
async def connection(url: str, kind: RedisClient) -> AsyncIterator[RedisConnection]:
    async with opened(url, kind) as connection:
        yield connection


def texts(replies: list[object]) -> list[object]:
    """Replies with errors as their texts, marked."""
    return [f"! {reply}" if isinstance(reply, StoreReplyError) else reply for reply in replies]


class TestTrip:
    async def test_replies_come_in_the_order_of_the_commands(self, connection: RedisConnection) -> None:
        commands = [("SET", "a", 1), ("INCR", "a"), ("GET", "a"), ("GET", "none"), ("ECHO", b"\0\xff\r\n")]
        assert await connection.trip(commands) == [b"OK", 2, b"2", None, b"\0\xff\r\n"]

    async def test_words_of_every_type_arrive(self, connection: RedisConnection) -> None:
        words = ["höhe", b"\xff", -7, 0.5, ""]
        trip = [("RPUSH", "words", *words), ("LRANGE", "words", 0, -1)]
        assert await connection.trip(trip) == [5, ["höhe".encode(), b"\xff", b"-7", b"0.5", b""]]

    async def test_an_error_takes_the_place_of_its_reply_in_the_server_s_words(
        self, connection: RedisConnection
    ) -> None:
        def raising(text: str) -> tuple[str, ...]:
            return ("EVAL", "return redis.error_reply(ARGV[1])", "0", text)

        replies = await connection.trip(
            [
                ("SET", "a", "x"),
                ("LPUSH", "a", "y"),
                ("INCR", "a"),
                ("NOSUCH", "thing"),
                raising("READONLY You can't write"),
                raising("FULL no place"),
                raising("ERR A thing"),
                raising("OOM command not allowed"),
                ("GET", "a"),
            ]
        )
        assert texts(replies) == [
            b"OK",
            "! WRONGTYPE Operation against a key holding the wrong kind of value",
            "! ERR value is not an integer or out of range",
            "! ERR unknown command 'NOSUCH', with args beginning with: 'thing' ",
            "! READONLY You can't write",
            "! FULL no place",
            "! ERR A thing",
            "! OOM command not allowed",
            b"x",
        ]

    async def test_replies_have_the_same_values_whichever_kind(self, connection: RedisConnection) -> None:
        resp3 = "redis.setresp(3) "
        commands = [
            ("HSET", "h", "f", "v", "g", "w"),
            ("HGETALL", "h"),
            ("HGETALL", "none"),
            ("HMGET", "h", "f", "none"),
            ("SADD", "s", "x"),
            ("SMEMBERS", "s"),
            ("ZADD", "z", "1.5", "m"),
            ("ZSCORE", "z", "m"),
            ("ZSCORE", "z", "none"),
            ("ZRANGE", "z", 0, -1, "WITHSCORES"),
            ("ZADD", "z", "inf", "m"),
            ("ZSCORE", "z", "m"),
            ("XADD", "x", "1-1", "f", "v"),
            ("XREAD", "STREAMS", "x", "0"),
            ("XRANGE", "x", "-", "+"),
            ("XREAD", "STREAMS", "x", "9"),
            ("EVAL", "return false", 0),
            ("EVAL", "return {1, 'a', false, {2.9}}", 0),
            ("EVAL", resp3 + "return true", 0),
            ("EVAL", resp3 + "return false", 0),
            ("EVAL", resp3 + "return {double=0.25}", 0),
            ("EVAL", resp3 + "return {map={k='v'}}", 0),
            ("EVAL", resp3 + "return {set={m=true}}", 0),
            ("EVAL", resp3 + "return {big_number='12345678901234567890123'}", 0),
            ("EVAL", resp3 + "return {verbatim_string={format='txt', string='so'}}", 0),
            ("LRANGE", "none", 0, -1),
        ]
        assert await connection.trip(commands) == [
            2,
            {b"f": b"v", b"g": b"w"},
            {},
            [b"v", None],
            1,
            [b"x"],
            1,
            1.5,
            None,
            [[b"m", 1.5]],
            0,
            float("inf"),
            b"1-1",
            {b"x": [[b"1-1", [b"f", b"v"]]]},
            [[b"1-1", [b"f", b"v"]]],
            None,
            None,
            [1, b"a", None, [2]],
            True,
            False,
            0.25,
            {b"k": b"v"},
            [b"m"],
            b"12345678901234567890123",
            b"so",
            [],
        ]

    async def test_an_error_within_a_reply_is_a_value_too(self, connection: RedisConnection) -> None:
        replies = await connection.trip([("MULTI",), ("SET", "a", "x"), ("INCR", "a"), ("EXEC",)])
        assert texts(replies[-1]) == [b"OK", "! ERR value is not an integer or out of range"]

    async def test_megabytes_pass_both_ways(self, connection: RedisConnection) -> None:
        values = [bytes([number]) * (1 << 20) for number in range(3)]
        stored = await connection.trip([("SET", f"k{n}", value) for n, value in enumerate(values)])
        read = await connection.trip([("GET", f"k{number}") for number in range(3)], timeout_s=5)
        assert stored == [b"OK"] * 3
        assert read == values

    async def test_a_trip_of_no_commands_has_no_replies(self, connection: RedisConnection) -> None:
        assert await connection.trip([]) == []
        assert await connection.trip([("ECHO", "next")]) == [b"next"]

    @pytest.mark.parametrize("bad", [("SET", "k", None), ("SET", "k", ["v"]), ("GET", "\ud800"), ()])
    async def test_what_cannot_be_sent_is_refused_whole_and_disturbs_nobody(
        self, connection: RedisConnection, bad: tuple[str, ...]
    ) -> None:
        with pytest.raises((TypeError, ValueError)):
            await connection.trip([("SET", "other", "x"), bad])
        assert await connection.trip([("GET", "other"), ("ECHO", "mine")]) == [None, b"mine"]

    async def test_a_timeout_ends_the_trip_in_time_and_its_reply_is_nobody_else_s(
        self, connection: RedisConnection
    ) -> None:
        error, took_s = await outcome(
            connection.trip([("DEBUG", "SLEEP", "0.4"), ("ECHO", "late")], timeout_s=0.1)
        )
        assert isinstance(error, StoreUnavailableError)
        assert 0.09 < took_s < 0.3
        assert await connection.trip([("ECHO", "mine")]) == [b"mine"]

    async def test_a_timeout_holds_for_the_second_attempt_of_a_script_too(
        self, connection: RedisConnection, server: ValkeyServer
    ) -> None:
        bump = connection.script("bump")
        await connection.trip([("SCRIPT", "FLUSH")])
        lost = [("DEBUG", "SLEEP", "0.2"), bump.call(["n"], []), ("CLIENT", "PAUSE", "1000", "WRITE")]
        error, took_s = await outcome(connection.trip(lost, timeout_s=0.4))
        assert isinstance(error, StoreUnavailableError)
        assert took_s < 0.55

    async def test_replies_stay_matched_through_timeouts_and_cancellations(
        self, connection: RedisConnection
    ) -> None:
        dice = random.Random(7)
        matched = 0

        async def one(number: int) -> None:
            nonlocal matched
            words = [f"{number}:{part}" for part in range(dice.randint(1, 4))]
            commands: list[tuple[str, ...]] = [("ECHO", word) for word in words]
            if number % 100 == 50:
                commands.insert(0, ("DEBUG", "SLEEP", "0.02"))
            patience_s = dice.choice([0.001, 0.02, 5, 5])
            try:
                replies = await connection.trip(commands, timeout_s=patience_s)
            except StoreUnavailableError:
                assert patience_s < 1, "given up early"
                return
            assert replies[-len(words) :] == [word.encode() for word in words]
            matched += 1

        tasks = [asyncio.create_task(one(number)) for number in range(1_000)]
        cancelled = dice.sample(tasks, 200)
        for task in cancelled:
            await asyncio.sleep(0)
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        failed = [r for r in results if r is not None and not isinstance(r, asyncio.CancelledError)]
        assert failed == []
        assert matched > 200
        for number in range(100):
            assert await connection.trip([("ECHO", number)]) == [str(number).encode()]

    async def test_more_trips_than_sockets_wait_for_their_turn(self, url: str, kind: RedisClient) -> None:
        async with opened(url, kind, options=ConnectionOptions(max_sockets=2)) as connection:
            before = sockets_open()
            trips = (connection.trip([("ECHO", number)], timeout_s=5) for number in range(300))
            assert await asyncio.gather(*trips) == [[str(number).encode()] for number in range(300)]
            assert sockets_open() - before <= 2


class TestScripts:
    async def test_a_script_runs_by_its_name(self, connection: RedisConnection) -> None:
        add = connection.script("add")
        assert await connection.trip([add.call(["n"], [5]), add.call(["n"], [2])]) == [5, 7]

    async def test_lost_scripts_are_loaded_and_run_once_and_nothing_else_is_run_twice(
        self, connection: RedisConnection
    ) -> None:
        bump, add = connection.script("bump"), connection.script("add")
        await connection.trip([bump.call(["n"], []), add.call(["n"], [0])])
        await connection.trip([("SCRIPT", "FLUSH"), ("DEL", "n")])
        commands = [("INCR", "m"), bump.call(["n"], []), ("INCR", "m"), add.call(["n"], [10]), ("INCR", "m")]
        assert await connection.trip(commands) == [1, 1, 2, 11, 3]
        assert await connection.trip([("GET", "n"), ("GET", "m")]) == [b"11", b"3"]

    async def test_many_that_miss_the_same_script_each_run_it_once(self, connection: RedisConnection) -> None:
        bump = connection.script("bump")
        await connection.trip([("SCRIPT", "FLUSH")])
        trips = (connection.trip([bump.call(["n"], [])], timeout_s=5) for _ in range(100))
        assert sorted(reply for (reply,) in await asyncio.gather(*trips)) == list(range(1, 101))

    async def test_scripts_that_are_not_ours_to_load_are_refused_in_place(
        self, connection: RedisConnection
    ) -> None:
        replies = await connection.trip([("EVALSHA", "f" * 40, 0), ("ECHO", "next")])
        assert texts(replies) == ["! NOSCRIPT No matching script.", b"next"]

    async def test_a_script_that_cannot_be_loaded_tells_why(self, connection: RedisConnection) -> None:
        replies = await connection.trip([connection.script("broken").call(["n"], []), ("ECHO", "next")])
        assert str(replies[0]).startswith("ERR Error compiling script")
        assert replies[1] == b"next"

    async def test_an_unknown_name_is_an_error(self, connection: RedisConnection) -> None:
        with pytest.raises(KeyError):
            connection.script("nonesuch")


class TestEntering:
    async def test_the_database_of_the_url_is_used(self, url: str, kind: RedisClient) -> None:
        third = url + "?db=3" if url.startswith("unix") else url.removesuffix("/0") + "/3"
        async with opened(url, kind) as zero, opened(third, kind) as three:
            await three.trip([("SET", "k", "three")])
            assert await zero.trip([("GET", "k"), ("SELECT", 3), ("GET", "k")]) == [None, b"OK", b"three"]

    async def test_the_user_of_the_url_is_used(
        self, server: ValkeyServer, connection: RedisConnection, kind: RedisClient
    ) -> None:
        await connection.trip([("ACL", "SETUSER", "ann", "on", ">p:ss/wörd", "+@all", "~*", "&*")])
        async with opened(f"unix://ann:p%3Ass%2Fw%C3%B6rd@{server.socket}", kind) as ann:
            assert await ann.trip([("ACL", "WHOAMI")]) == [b"ann"]

    @pytest.mark.parametrize(
        ("account", "reason"), [(":guess@", "WRONGPASS"), ("nobody:guess@", "WRONGPASS"), ("", "NOAUTH")]
    )
    @pytest.mark.parametrize("over", ["unix", "redis"])
    async def test_a_wrong_password_is_told_at_once_without_quoting_it(
        self, server: ValkeyServer, kind: RedisClient, over: str, account: str, reason: str
    ) -> None:
        place = f"{server.socket}" if over == "unix" else f"127.0.0.1:{server.port}"
        async with opened(f"{over}://{account}{place}", kind, up=False) as connection:
            async with asyncio.timeout(1):  # at once: waiting does not mend it
                with pytest.raises(StoreUnavailableError, match=reason) as told:
                    await connection.wait_connected(5)
            assert "guess" not in str(told.value)
            assert not connection.connected
            error, took_s = await outcome(connection.trip([("PING",)]))
            assert isinstance(error, StoreUnavailableError)
            assert took_s < 0.1

    async def test_a_password_that_becomes_right_is_let_in(
        self, make_valkey: Callable[..., ValkeyServer], kind: RedisClient
    ) -> None:
        server = make_valkey()
        await server.start()
        async with opened(server.url, kind) as inside:
            await inside.trip([("CONFIG", "SET", "requirepass", "other")])
            async with opened(f"unix://:next@{server.socket}", kind, up=False) as early:
                with pytest.raises(StoreUnavailableError):
                    await early.wait_connected(5)
                await inside.trip([("CONFIG", "SET", "requirepass", "next")])
                await works_again(early)
                assert await early.trip([("ECHO", "in")]) == [b"in"]

    async def test_trips_made_at_once_wait_for_the_first_connection(
        self, url: str, kind: RedisClient
    ) -> None:
        async with opened(url, kind, up=False) as connection:
            assert await connection.trip([("ECHO", "early")]) == [b"early"]

    async def test_nobody_there_is_told_in_time(self, tmp_path: Path, kind: RedisClient) -> None:
        async with opened(f"unix://{tmp_path}/none.sock", kind, up=False) as connection:
            told, took_s = await outcome(connection.wait_connected(0.3))
            assert isinstance(told, StoreUnavailableError)
            assert 0.25 < took_s < 0.6


class TestListen:
    async def test_messages_come_in_order_between_the_replies(self, connection: RedisConnection) -> None:
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        await connection.listen("news", heard.put_nowait)
        sent = [f"m{number}".encode() for number in range(200)]

        async def say(message: bytes) -> None:
            assert await connection.trip([("ECHO", message), ("SPUBLISH", "news", message)], timeout_s=5) == [
                message,
                1,
            ]

        for message in sent[:100]:
            await say(message)
        await asyncio.gather(*map(say, sent[100:]))
        async with asyncio.timeout(2):
            said = [await heard.get() for _ in sent]
        assert said[:100] == sent[:100]
        assert sorted(said) == sorted(sent)
        assert heard.empty()

    async def test_each_channel_has_its_listener_from_the_moment_it_returns(
        self, connection: RedisConnection
    ) -> None:
        heard: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        for name in ("one", "two", "three"):
            await connection.listen(name, lambda message, name=name: heard.put_nowait((name, message)))
            assert await connection.trip([("SPUBLISH", name, "m")]) == [1]
            assert await asyncio.wait_for(heard.get(), 2) == (name, b"m")

    async def test_many_may_begin_to_listen_at_once(self, connection: RedisConnection) -> None:
        heard: list[bytes] = []
        await asyncio.gather(*(connection.listen(f"c{number}", heard.append) for number in range(20)))
        published = [("SPUBLISH", f"c{number}", "m") for number in range(20)]
        assert await connection.trip(published) == [1] * 20

    async def test_the_last_listener_of_a_channel_hears(self, connection: RedisConnection) -> None:
        first: list[bytes] = []
        second: asyncio.Queue[bytes] = asyncio.Queue()
        await connection.listen("news", first.append)
        await connection.listen("news", second.put_nowait)
        await connection.trip([("SPUBLISH", "news", "m")])
        assert await asyncio.wait_for(second.get(), 2) == b"m"
        assert first == []

    async def test_a_listener_s_fault_is_reported_and_ends_nothing(self, connection: RedisConnection) -> None:
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: reported.append(context["exception"])
        )
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        fault = ValueError("a listener's")

        def deliver(message: bytes) -> None:
            if message == b"bad":
                raise fault
            heard.put_nowait(message)

        await connection.listen("news", deliver)
        await connection.trip([("SPUBLISH", "news", "bad"), ("SPUBLISH", "news", "good")])
        assert await asyncio.wait_for(heard.get(), 2) == b"good"
        assert reported == [fault]

    async def test_a_refused_channel_is_an_error_and_replies_stay_matched(
        self, server: ValkeyServer, connection: RedisConnection, kind: RedisClient
    ) -> None:
        await connection.trip(
            [("ACL", "SETUSER", "ann", "on", ">p", "+@all", "~*", "resetchannels", "&open")]
        )
        async with opened(f"unix://ann:p@{server.socket}", kind) as ann:
            heard: asyncio.Queue[bytes] = asyncio.Queue()
            with pytest.raises(StoreReplyError, match="NOPERM"):
                await ann.listen("closed", heard.put_nowait)
            await ann.listen("open", heard.put_nowait)
            assert await ann.trip([("ECHO", "mine"), ("SPUBLISH", "open", "m")]) == [b"mine", 1]
            assert await asyncio.wait_for(heard.get(), 2) == b"m"


class TestBlocking:
    async def test_a_blocked_read_holds_up_nobody_and_gets_what_is_written(
        self, connection: RedisConnection
    ) -> None:
        reader = connection.blocking()
        try:
            read = asyncio.create_task(
                reader.trip([("XREAD", "BLOCK", 5_000, "STREAMS", "x", "0")], timeout_s=6)
            )
            for number in range(20):
                _, took_s = await outcome(connection.trip([("ECHO", number)]))
                assert took_s < 0.5
            assert not read.done()
            await connection.trip([("XADD", "x", "1-1", "f", "v")])
            assert await asyncio.wait_for(read, 2) == [{b"x": [[b"1-1", [b"f", b"v"]]]}]
        finally:
            await reader.close()

    async def test_nothing_in_time_is_none(self, connection: RedisConnection) -> None:
        reader = connection.blocking()
        try:
            await reader.wait_connected(5)
            assert await reader.trip([("XREAD", "BLOCK", 50, "STREAMS", "x", "0")], timeout_s=2) == [None]
        finally:
            await reader.close()

    async def test_closing_the_first_leaves_the_other(self, url: str, kind: RedisClient) -> None:
        async with opened(url, kind) as connection:
            reader = connection.blocking()
            await reader.wait_connected(5)
            await connection.close()
            assert await reader.trip([reader.script("bump").call(["n"], [])]) == [1]
            await reader.close()


class TestClose:
    async def test_trips_in_flight_fail_at_once_and_no_socket_stays(
        self, url: str, kind: RedisClient
    ) -> None:
        before = sockets_open()
        async with opened(url, kind) as connection:
            blocked = [
                asyncio.create_task(outcome(connection.trip([("BLPOP", f"k{number}", 5)], timeout_s=6)))
                for number in range(5)
            ]
            await connection.listen("news", lambda _: None)
            await asyncio.sleep(0.05)  # until they are on their way
            await connection.close()
            for error, took_s in await asyncio.gather(*blocked):
                assert isinstance(error, StoreUnavailableError)
                assert took_s < 1
        assert sockets_open() == before

    async def test_trips_that_have_not_begun_fail_too(self, url: str, kind: RedisClient) -> None:
        before = sockets_open()
        async with opened(url, kind) as connection:
            trips = [asyncio.create_task(outcome(connection.trip([("BLPOP", "k", 5)]))) for _ in range(100)]
            await asyncio.sleep(0)
            await connection.close()
            for error, took_s in await asyncio.gather(*trips):
                assert isinstance(error, StoreUnavailableError)
                assert took_s < 0.9
        assert sockets_open() == before

    async def test_what_is_closed_stays_closed(self, url: str, kind: RedisClient) -> None:
        async with opened(url, kind) as connection:
            await connection.close()
            await connection.close()
            assert not connection.connected
            for attempt in (
                connection.trip([("PING",)]),
                connection.wait_connected(5),
                connection.listen("news", lambda _: None),
            ):
                error, took_s = await outcome(attempt)
                assert isinstance(error, StoreUnavailableError)
                assert took_s < 0.1

    @pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8])
    async def test_it_may_be_closed_while_it_connects(self, url: str, kind: RedisClient, turns: int) -> None:
        before = sockets_open()
        async with opened(url, kind, up=False) as connection:
            waiting = asyncio.create_task(outcome(connection.wait_connected(5)))
            for _ in range(turns):
                await asyncio.sleep(0)
            await connection.close()
            _, took_s = await waiting
            assert took_s < 1
        assert sockets_open() == before
