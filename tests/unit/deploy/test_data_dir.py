"""The data directory: private, held by one, with keys made once; and `stack.json` in it."""

import base64
import os
from pathlib import Path

import pytest

from deploy.data_dir import DataDirectory, write_private
from deploy.stack import Process, Stack, read_stack, remove_stack, write_stack
from shared.errors import ConfigError
from shared.protocol.secret_keys import SecretKeys

_STACK = Stack(
    pid=1,
    url="http://127.0.0.1:8787",
    profile="local",
    redis_url="unix:///v.sock",
    broker_url="unix:///v.sock?db=1",
    postgres_url="postgresql://muster@/muster?host=/p",
    config="/c.json",
    simulator=None,
    processes={"gateway-1": Process(2, "http://127.0.0.1:4"), "valkey": Process(3)},
)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_it_is_made_for_its_owner_only(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path / "a" / "b")
    assert mode(directory.path) == 0o700
    directory.spill()
    directory.secret_keys()
    assert {entry.name: mode(entry) for entry in directory.path.iterdir()} == {
        "lock": 0o600,
        "secret_keys": 0o600,
        "spill": 0o700,
    }
    directory.close()


def test_it_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    first = DataDirectory.open(tmp_path)
    with pytest.raises(ConfigError, match=f"process {os.getpid()} runs on it already"):
        DataDirectory.open(tmp_path)
    first.close()
    DataDirectory.open(tmp_path).close()


def test_what_cannot_be_a_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=f"--data-dir {tmp_path}/file/data: Not a directory"):
        DataDirectory.open(tmp_path / "file" / "data")


def test_keys_are_made_once_and_can_be_used(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path)
    keys = directory.secret_keys()
    assert directory.secret_keys() == keys
    key_id, _, key = keys.partition(":")
    assert key_id == "1"
    assert len(base64.urlsafe_b64decode(key)) == 32
    assert SecretKeys.parse(keys).signing_id == 1
    directory.close()


def test_keys_on_lines_of_their_own_are_joined(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path)
    (tmp_path / "secret_keys").write_text("2:new\n1:old\n")
    assert directory.secret_keys() == "2:new,1:old"
    directory.close()


def test_a_private_file_is_replaced_at_once_whatever_a_crash_left(tmp_path: Path) -> None:
    path = tmp_path / "f"
    (tmp_path / ".f.new").write_text("half")
    write_private(path, b"one")
    inode = path.stat().st_ino
    write_private(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_ino != inode
    assert mode(path) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_stack_reads_back(tmp_path: Path) -> None:
    write_stack(tmp_path, _STACK)
    assert mode(tmp_path / "stack.json") == 0o600
    assert read_stack(tmp_path) == _STACK
    remove_stack(tmp_path)
    with pytest.raises(ConfigError, match="no `muster up` runs on it"):
        read_stack(tmp_path)
    remove_stack(tmp_path)


def test_a_spoilt_stack_is_a_readable_error(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text('{"pid": "x"}')
    with pytest.raises(ConfigError, match=r"stack\.json"):
        read_stack(tmp_path)
