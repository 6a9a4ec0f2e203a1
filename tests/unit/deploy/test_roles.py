"""The environment and command line that a role gets; the embedded servers' logs and socket paths."""

import os
import sys
from pathlib import Path

import pytest

from deploy.embedded.servers import ServerLog, ServerStartError, short_path
from deploy.roles import celery, muster, role_environment


def test_a_role_keeps_the_callers_environment_but_not_what_is_decided_here() -> None:
    own = {
        "PATH": "/bin",
        "TYPESAFE_API_KEY": "k",
        "PGPORT": "1",
        "PGSERVICE": "x",
        "MUSTER_BIND": "0.0.0.0:1",
        "MUSTER_LISTEN_FD": "3",
        "MUSTER_INTERNAL_BIND": "0.0.0.0:2",
        "MUSTER_REDIS_URL": "redis://elsewhere",
        "MUSTER_LOG_LEVEL": "debug",
    }
    assert role_environment(own, redis_url="unix:///v.sock", profile="local") == {
        "PATH": "/bin",
        "TYPESAFE_API_KEY": "k",
        "MUSTER_REDIS_URL": "unix:///v.sock",
        "MUSTER_LOG_LEVEL": "debug",
        "MUSTER_PROFILE": "local",
    }


def test_command_lines_show_the_role() -> None:
    assert muster("gateway") == (sys.executable, str(Path(sys.executable).with_name("muster")), "gateway")
    assert celery("worker")[1:6] == (
        *(str(Path(sys.executable).with_name("celery")), "-A", "scheduler.celery_app", "-q", "worker"),
    )
    assert celery("beat")[-2:] == ("beat", "--pidfile=")


def test_a_short_socket_path_is_taken_as_it_is(tmp_path: Path) -> None:
    assert short_path(Path("/srv/muster"), "valkey.sock") == Path("/srv/muster")


def test_a_long_socket_path_gets_one_short_private_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    link = short_path(folder, "valkey.sock")
    assert short_path(folder, "valkey.sock") == link
    assert link.resolve() == folder.resolve()
    assert link.parent == tmp_path / f"muster-{os.getuid()}"
    assert link.parent.stat().st_mode & 0o777 == 0o700
    assert len(list(link.parent.iterdir())) == 1


def test_a_place_for_links_that_others_can_enter_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"muster-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(ServerStartError, match="belongs to somebody else"):
        short_path(tmp_path / ("x" * 100), "valkey.sock")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("", "it said nothing"),
        ("one\ntwo\n\n", "two"),
        ("FATAL:  wrong\nHINT:  mend it\n", "FATAL:  wrong"),
        ("bad\x1b[2Jline", "bad[2Jline"),
    ],
)
def test_the_reason_of_a_failed_start_is_from_that_start(tmp_path: Path, said: str, reason: str) -> None:
    log = ServerLog(tmp_path / "s.log")
    with log.open() as file:
        file.write(b"FATAL: an earlier start\n")
    with log.open() as file:
        file.write(said.encode())
    assert log.reason() == reason
    assert (tmp_path / "s.log").stat().st_mode & 0o777 == 0o600


def test_a_large_log_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "s.log"
    path.write_bytes(b"x" * (4 * 1024 * 1024 + 1))
    with ServerLog(path).open() as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
