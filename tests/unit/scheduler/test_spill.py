"""The spill's folder: one owner, torn ends, a full disk."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scheduler.spill import Spill, SpillFullError, frame
from shared.errors import ConfigError


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.seg"))


def test_entries_outlive_the_process_that_kept_them(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from scheduler.spill import Spill\n"
        "spill = Spill(Path(sys.argv[1]), min_free_bytes=0); spill.append([b'one', b'two'])\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", program, tmp_path], check=False).returncode == -9
    spill = Spill(tmp_path, min_free_bytes=0)
    assert spill.read(1_000) == [b"one", b"two"]
    spill.commit()
    assert segments(tmp_path) == []
    spill.close()


def test_a_torn_end_is_cut_and_set_aside(tmp_path: Path) -> None:
    spill = Spill(tmp_path, min_free_bytes=0)
    spill.append([b"one", b"two"])
    spill.close()
    with segments(tmp_path)[0].open("ab") as file:
        file.write(frame(b"three")[:-1])
    spill = Spill(tmp_path, min_free_bytes=0)
    spill.append([b"four"])
    read = []
    while entries := spill.read(1):
        read += entries
        spill.commit()
    assert read == [b"one", b"two", b"four"]
    assert spill.is_empty
    assert spill.size_bytes == 0
    assert [path.suffix for path in tmp_path.glob("spill-*")] == [".torn"]
    spill.close()


def test_a_segment_of_nothing_but_a_torn_frame_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "spill-000000000001.seg").write_bytes(b"\xff" * 50)
    (tmp_path / "spill-000000000002.seg").write_bytes(b"")
    (tmp_path / "spill-000000000003.seg").write_bytes(frame(b"good"))
    spill = Spill(tmp_path, min_free_bytes=0)
    assert spill.read(1_000) == [b"good"]
    spill.append([b"next"])
    assert segments(tmp_path)[-1].name == "spill-000000000004.seg"
    spill.close()


def test_what_was_appended_is_on_the_disk_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, int]] = []  # inode and size at the time

    def fsync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, os.fstat(descriptor).st_size))

    monkeypatch.setattr(os, "fsync", fsync)
    spill = Spill(tmp_path, min_free_bytes=0)
    spill.append([b"one"])
    assert tmp_path.stat().st_ino in [inode for inode, _ in synced]
    assert synced[-1] == (segments(tmp_path)[0].stat().st_ino, len(frame(b"one")))
    spill.close()


def test_a_folder_has_one_owner_with_a_lasting_name(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "deep" / "down")
    with pytest.raises(ConfigError, match="another log writer"):
        Spill(tmp_path / "deep" / "down")
    name = spill.owner
    spill.close()
    again = Spill(tmp_path / "deep" / "down")
    assert again.owner == name
    again.close()
    other = Spill(tmp_path / "other")
    assert other.owner != name
    other.close()


def test_a_folder_that_cannot_be_used_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="MUSTER_SPILL_DIR"):
        Spill(tmp_path / "file")


def test_little_free_disk_is_left_to_others(tmp_path: Path) -> None:
    spill = Spill(tmp_path, min_free_bytes=1 << 60)
    with pytest.raises(SpillFullError, match="MiB free"):
        spill.append([b"one"])
    assert spill.is_empty
    spill.close()


@contextmanager
def files_end_at(size_bytes: int) -> Iterator[None]:
    """As on a disk that fills up: a write takes what fits, the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_after_a_failed_write_nothing_follows_in_that_segment(tmp_path: Path) -> None:
    spill = Spill(tmp_path, min_free_bytes=0)
    spill.append([b"one"])
    with files_end_at(20), pytest.raises(SpillFullError):
        spill.append([b"two", b"three"])
    spill.append([b"four"])
    assert len(segments(tmp_path)) == 2
    read = []
    while entries := spill.read(1_000):
        read += entries
        spill.commit()
    assert read == [b"one", b"four"]
    assert spill.size_bytes == 0
    spill.close()
