"""What a log line looks like, whatever is written into it."""

import io
import json
import logging
import os
from collections.abc import Iterator

import pytest
import structlog

from shared.logs import configure_logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def test_an_event_is_one_json_line_with_role_and_pid() -> None:
    stream = io.StringIO()
    configure_logs("gateway", stream=stream)
    structlog.get_logger().info("listening", port=8787)
    line = stream.getvalue()
    assert line.count("\n") == 1
    event = json.loads(line)
    assert event["timestamp"].endswith("Z")
    del event["timestamp"]
    assert event == {
        "event": "listening",
        "level": "info",
        "port": 8787,
        "role": "gateway",
        "pid": os.getpid(),
    }


def test_no_control_character_survives() -> None:
    stream = io.StringIO()
    configure_logs("gateway", stream=stream)
    hostile = "a\r\n{}\x1b[2J\x00\x7f\x9b1mb"
    structlog.get_logger().info("seen", name=hostile)
    line = stream.getvalue()
    assert line.rstrip("\n").isprintable()
    assert json.loads(line)["name"] == hostile


def test_a_traceback_stays_on_its_line() -> None:
    stream = io.StringIO()
    configure_logs("worker", stream=stream)
    try:
        int("no\nluck")
    except ValueError:
        structlog.get_logger().exception("failed")
    assert stream.getvalue().count("\n") == 1
    assert "ValueError: invalid literal" in json.loads(stream.getvalue())["exception"]


def test_the_standard_librarys_loggers_speak_json_too() -> None:
    stream = io.StringIO()
    configure_logs("scheduler", stream=stream)
    logging.getLogger("celery.beat").warning("late by %d s\x1b", 3)
    event = json.loads(stream.getvalue())
    assert (event["event"], event["level"], event["logger"], event["role"]) == (
        "late by 3 s\x1b",
        "warning",
        "celery.beat",
        "scheduler",
    )


def test_the_level_holds_for_both() -> None:
    stream = io.StringIO()
    configure_logs("worker", level="warning", stream=stream)
    structlog.get_logger().info("quiet")
    logging.getLogger("aiohttp").info("quiet")
    assert stream.getvalue() == ""
    structlog.get_logger().warning("loud")
    assert json.loads(stream.getvalue())["event"] == "loud"


def test_a_terminal_gets_text_with_controls_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUSTER_LOG_FORMAT", raising=False)
    stream = Terminal()
    configure_logs("up", stream=stream)
    structlog.get_logger().info("hello\x07", name="x\x1b]0;y")
    assert "\\u0007" in stream.getvalue()
    assert "x\\u001b]0;y" in stream.getvalue()
    assert "\x07" not in stream.getvalue()


def test_a_terminal_gets_json_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_LOG_FORMAT", "json")
    stream = Terminal()
    configure_logs("up", stream=stream)
    structlog.get_logger().info("hello")
    assert json.loads(stream.getvalue())["event"] == "hello"
