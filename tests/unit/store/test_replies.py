import pytest

from shared.errors import StoreReplyError, StoreUnavailableError
from shared.store.replies import list_of, number, require_done


@pytest.mark.parametrize(
    "text",
    [
        "LOADING Valkey is loading the dataset in memory",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "MISCONF Errors writing to the AOF file: No space left on device",
        "READONLY You can't write against a read only replica.",
        "BUSY Valkey is busy running a script.",
    ],
)
def test_a_server_that_takes_no_work_is_away(text: str) -> None:
    for read in (number, list_of):
        with pytest.raises(StoreUnavailableError, match=text.split()[0]):
            read(StoreReplyError(text))
    with pytest.raises(StoreUnavailableError):
        require_done([1, b"x", StoreReplyError(text)])


@pytest.mark.parametrize("text", ["WRONGTYPE Operation against a key", "ERR LOADING", "BUSYGROUP exists", ""])
def test_any_other_refusal_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(StoreReplyError):
        number(StoreReplyError(text))
    with pytest.raises(StoreReplyError):
        require_done([StoreReplyError(text)])


def test_the_first_error_counts() -> None:
    with pytest.raises(StoreUnavailableError):
        require_done([StoreReplyError("OOM full"), StoreReplyError("ERR other")])


def test_replies_without_an_error_are_done() -> None:
    require_done([None, 1, b"OK", [], {}])
