"""Spill segments: what was appended is read back; any cut or flipped byte loses only what follows it."""

import io
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from scheduler.spill import Spill, frame, read_frame

ENTRIES = st.lists(st.binary(max_size=300), max_size=12)


def read_all(data: bytes) -> list[bytes]:
    file = io.BytesIO(data)
    return list(iter(lambda: read_frame(file), None))


def whole_frames(entries: list[bytes], size: int) -> int:
    """How many of the entries' frames lie wholly within the first `size` bytes."""
    ends = [sum(8 + len(one) for one in entries[: n + 1]) for n in range(len(entries))]
    return sum(end <= size for end in ends)


@given(ENTRIES)
def test_frames_are_read_back(entries: list[bytes]) -> None:
    assert read_all(b"".join(map(frame, entries))) == entries


@given(ENTRIES, st.integers(0, 4000))
def test_a_cut_keeps_the_frames_before_it(entries: list[bytes], cut: int) -> None:
    data = b"".join(map(frame, entries))[:cut]
    assert read_all(data) == entries[: whole_frames(entries, len(data))]


@given(ENTRIES, st.data())
def test_a_flipped_bit_keeps_the_frames_before_it(entries: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(b"".join(map(frame, [*entries, b"last"])))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    assert read_all(bytes(whole)) == entries[: whole_frames(entries, at)]


@given(ENTRIES, st.integers(1, 5000))
def test_zeros_after_a_power_cut_are_no_entries(entries: list[bytes], zeros: int) -> None:
    assert read_all(b"".join(map(frame, entries)) + bytes(zeros)) == entries


@given(st.binary(max_size=2000))
def test_any_bytes_can_be_read(data: bytes) -> None:
    read_all(data)


STEPS = st.one_of(ENTRIES.filter(bool), st.sampled_from(["read", "again"]))


@given(st.lists(STEPS), st.integers(20, 400), st.integers(1, 200))
def test_a_spill_is_a_queue_whatever_happens_between(
    steps: list[list[bytes] | str], segment_bytes: int, read_bytes: int
) -> None:
    """Appends, committed reads and new lives in any order: every entry comes out, in order, and only the
    committed ones of a segment not yet emptied come again."""
    with tempfile.TemporaryDirectory() as folder:
        spill = Spill(Path(folder), segment_bytes=segment_bytes, min_free_bytes=0)
        appended: list[bytes] = []
        read = 0  # entries committed
        for step in steps:
            if step == "again":
                spill.close()
                spill = Spill(Path(folder), segment_bytes=segment_bytes, min_free_bytes=0)
                read = len(appended) - len(drain_copy(Path(folder)))
            elif step == "read":
                entries = spill.read(read_bytes)
                assert entries == appended[read : read + len(entries)]
                assert bool(entries) == (read < len(appended))
                spill.commit()
                read += len(entries)
            else:
                spill.append(step)
                appended += step
            assert spill.is_empty == (read == len(appended))
            assert spill.size_bytes == sum(8 + len(one) for one in appended[read:])
        spill.close()


def drain_copy(folder: Path) -> list[bytes]:
    """Every entry in the segments of a folder, in order."""
    return [entry for path in sorted(folder.glob("*.seg")) for entry in read_all(path.read_bytes())]
