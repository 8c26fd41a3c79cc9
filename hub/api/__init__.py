"""The hub over HTTP: routes of a few lines each. Decisions and storage live next door, in `hub`."""
