"""Waiting for a state that is not reported: it is asked for until it is reached."""

import threading
import time

#: Seconds between two attempts.
INTERVAL = 0.05


def attempts(timeout: float):
    """Yields until `timeout` seconds have passed, and at least once."""
    end = time.monotonic() + timeout
    while True:
        yield
        if time.monotonic() >= end:
            return
        threading.Event().wait(INTERVAL)


def wait_until(found, what, timeout: float = 60):
    """Returns the first true value of `found()`. Fails after `timeout` seconds with `what`, a text
    or a function that returns it."""
    for _ in attempts(timeout):
        if value := found():
            return value
    raise AssertionError(f"waited {timeout} s for {what() if callable(what) else what}")
