"""`stack.json`: what a running `muster up` tells about itself to the other commands of its owner."""

from pathlib import Path
from typing import Final

import msgspec

from deploy.data_dir import write_private
from shared.errors import ConfigError

_FILE: Final = "stack.json"


class Process(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process: `internal` is the address of its health and metrics, where it has them."""

    pid: int
    internal: str | None = None


class Stack(msgspec.Struct, frozen=True):
    """Addresses and process ids; no secret."""

    pid: int  # the supervisor's
    url: str
    profile: str
    redis_url: str
    broker_url: str
    postgres_url: str
    config: str
    simulator: str | None
    processes: dict[str, Process]


def write_stack(directory: Path, stack: Stack) -> None:
    """Replace the file, readable to its owner only."""
    write_private(directory / _FILE, msgspec.json.format(msgspec.json.encode(stack), indent=2) + b"\n")


def remove_stack(directory: Path) -> None:
    """The stack runs no more."""
    (directory / _FILE).unlink(missing_ok=True)


def read_stack(directory: Path) -> Stack:
    """Of a running `muster up`. Raises ConfigError where there is none."""
    path = directory.expanduser() / _FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Stack)
    except FileNotFoundError:
        raise ConfigError(f"--data-dir {directory}: no `muster up` runs on it") from None
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
