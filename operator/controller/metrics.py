"""What the operator counts, in a registry of its own so that several engines fit into one process."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """Counters and gauges of one engine."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.api_calls = Counter(
            "proctor_api_calls", "Calls to the API server", ["verb", "kind", "code"], registry=self.registry
        )
        self.passes = Counter("proctor_passes", "Reconcile passes", ["kind", "outcome"], registry=self.registry)
        self.pass_seconds = Histogram("proctor_pass_seconds", "Length of a pass", ["kind"], registry=self.registry)
        self.moves = Counter("proctor_trial_moves", "Trials entering a phase", ["phase"], registry=self.registry)
        self.failures = Counter(
            "proctor_attempt_failures", "Failed attempts", ["failure_class", "reason"], registry=self.registry
        )
        self.queue = Gauge("proctor_queue_length", "Keys waiting or being worked on", registry=self.registry)
        self.leader = Gauge("proctor_leader", "1 while this process holds the Lease", registry=self.registry)

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)
