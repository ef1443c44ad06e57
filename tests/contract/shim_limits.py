"""What fikitd does not serve of a driver's contract, by test; docs/unmodified-programs.md tells of each."""

LIMITS: dict[str, str] = {}


def reason(file: str, test: str) -> str | None:
    """Why a test, or all of its file's, must fail through the shim; None where it must pass."""
    return LIMITS.get(file) or LIMITS.get(f"{file}::{test}") or LIMITS.get(f"{file}::{test.split('[')[0]}")
