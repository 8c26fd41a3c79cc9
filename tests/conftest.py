"""What all tests share: properties are tried on the same examples everywhere, however slow the machine is."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "proctor", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("proctor")
