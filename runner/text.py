"""Text that comes from a submission, made fit for the journal."""


def storable(text: str) -> str:
    """Return a text with NUL and lone surrogates written out: JSON can carry both, UTF-8 and PostgreSQL cannot."""
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()
