"""The gateway: the only way from an untrusted pod to a model. So far a stub that knows no provider."""
