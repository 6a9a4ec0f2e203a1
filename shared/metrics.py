"""Builds the metrics of `shared.metric_defs` for one process. Each role has its own registry and port."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from shared import metric_defs
from shared.metric_defs import MetricDef


class Metrics:
    """One process's metrics by definition."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        for one in metric_defs.ALL:
            self._build(one)

    def _build(self, one: MetricDef) -> None:
        if one.kind == "counter":
            self._counters[one.name] = Counter(one.name, one.meaning, one.labels, registry=self.registry)
        elif one.kind == "gauge":
            self._gauges[one.name] = Gauge(one.name, one.meaning, one.labels, registry=self.registry)
        else:
            self._histograms[one.name] = Histogram(
                one.name, one.meaning, one.labels, buckets=one.buckets, registry=self.registry
            )

    def counter(self, one: MetricDef, *labels: str) -> Counter:
        """The counter of a definition, for these label values."""
        counter = self._counters[one.name]
        return counter.labels(*labels) if labels else counter

    def gauge(self, one: MetricDef, *labels: str) -> Gauge:
        """The gauge of a definition, for these label values."""
        gauge = self._gauges[one.name]
        return gauge.labels(*labels) if labels else gauge

    def histogram(self, one: MetricDef, *labels: str) -> Histogram:
        """The histogram of a definition, for these label values."""
        histogram = self._histograms[one.name]
        return histogram.labels(*labels) if labels else histogram
