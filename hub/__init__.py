"""The long-lived services around the trials: journal, archives, verdicts, reports; and the gateway, its own process."""
