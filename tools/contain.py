#!/usr/bin/env python3
"""Run a command and, when it ends or is interrupted, end every process it left behind: `contain.py COMMAND …`.

The kernel hands orphans of ours to us (PR_SET_CHILD_SUBREAPER), so even what daemonised is found by its parent's id,
and nothing that others started is touched.
"""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def descendants(root: int) -> list[int]:
    """Return every living process below a process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:  # it ended meanwhile
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, open_ = [], [root]
    while open_:
        below = children.get(open_.pop(), [])
        found += below
        open_ += below
    return found


def end_all(sig: signal.Signals, seconds: float) -> None:
    """Signal every descendant until none is left or time is up."""
    limit = time.monotonic() + seconds
    signalled: set[int] = set()
    while (left := descendants(os.getpid())) and time.monotonic() < limit:
        for pid in set(left) - signalled:
            signalled.add(pid)
            try:
                os.kill(pid, sig)
            except ProcessLookupError:
                continue
        reap()
        time.sleep(0.1)


def reap() -> None:
    """Collect ended children."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def wait_for(child: int) -> int:
    """Return the exit code of a child, as a shell counts; orphans are collected meanwhile, so that none looks alive."""
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def main(argv: list[str]) -> int:
    """Run the command and clean up after it."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(143))
    try:
        # A session of its own, so that an interrupt at the terminal reaches us alone.
        # Not by subprocess, which collects children of its own accord.
        return wait_for(os.posix_spawnp(argv[0], argv, os.environ, setsid=True))
    except KeyboardInterrupt:
        return 130
    finally:
        if left := descendants(os.getpid()):
            print(f"ending {len(left)} processes that were left", file=sys.stderr)
            end_all(signal.SIGTERM, float(os.environ.get("CONTAIN_PATIENCE_SECONDS", "30")))
            end_all(signal.SIGKILL, 10)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
