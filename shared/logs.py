"""Structured logs: one JSON line an event on standard error, with the role and process id of who wrote it.

The standard library's loggers (aiohttp, Celery, asyncio) come out in the same form. Control characters never
reach the terminal or the log collector unescaped (`shared/STYLE.md`, "Never").
"""

import json
import logging
import os
import sys
import unicodedata
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from shared.settings import LogLevel

_LEVELS: Final[dict[LogLevel, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure_logs(role: str, level: LogLevel = "info", stream: TextIO | None = None) -> None:
    """Send this process's logs to `stream` (standard error unless given), every line bound to `role` and pid.

    Lines are JSON, except for a person: on a terminal with `MUSTER_LOG_FORMAT` unset they are coloured text.
    """
    target = sys.stderr if stream is None else stream
    readable = target.isatty() and not os.environ.get("MUSTER_LOG_FORMAT")
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[*before, *_renderers(readable)],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=target),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(role=role, pid=os.getpid())
    _capture_standard_library(before, readable, level, target)


def _renderers(readable: bool) -> list[Processor]:
    if readable:
        return [escape_controls, structlog.dev.ConsoleRenderer()]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_json_line)]


def _capture_standard_library(
    before: list[Processor], readable: bool, level: LogLevel, target: TextIO
) -> None:
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*before, structlog.stdlib.add_logger_name],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderers(readable)],
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_LEVELS[level])


def escape_controls(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Spell out control characters in every text of an event: no value can move a terminal's cursor."""
    return {
        _escaped(key): _escaped(value) if isinstance(value, str) else value for key, value in event.items()
    }


def _json_line(event: EventDict, **options: Any) -> str:
    # U+007F is the one control character that JSON lets through raw, and it can only stand inside a string.
    return json.dumps(event, **options).replace("\x7f", "\\u007f")


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(f"\\u{ord(c):04x}" if unicodedata.category(c) == "Cc" else c for c in text)
