"""What the simulator counted, for tests, the demo and the benchmark."""

import msgspec


class Stats(msgspec.Struct):
    """Counters since start or the last reset. `requests` counts everything that reached a decision route."""

    requests: int = 0
    questions: int = 0  # answered
    tokens: int = 0  # of answered requests: what a real provider would bill
    by_status: dict[str, int] = {}
    dropped: int = 0
    malformed: int = 0
    missing: int = 0
    abandoned: int = 0  # the caller had gone before its answer was ready: paid for nothing
    in_flight: int = 0  # being evaluated, refused ones never
    peak_in_flight: int = 0
    largest_batch: int = 0  # questions in one request

    def reset(self) -> None:
        """Start counting anew; requests in flight stay counted as such."""
        fresh = Stats(in_flight=self.in_flight, peak_in_flight=self.in_flight)
        for name in self.__struct_fields__:
            setattr(self, name, getattr(fresh, name))

    def enter(self) -> None:
        """A request is being evaluated."""
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)

    def leave(self) -> None:
        """It no longer is."""
        self.in_flight -= 1

    def count_status(self, status: int) -> None:
        """One reply with `status`."""
        self.by_status[str(status)] = self.by_status.get(str(status), 0) + 1
