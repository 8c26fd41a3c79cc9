"""Process 1 of a local pod: raise the loopback device, carry ports to Unix sockets, end when stdin ends.

    holder.py [PORT=SOCKET ...]      prints its process id as the host sees it once everything listens

It runs inside the pod's namespaces but with the host's files, so no container needs to see the sockets. Standard
library only. Its stdin is held by the launcher alone: however the launcher ends, the pod ends with it.
"""

import asyncio
import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


def raise_loopback() -> None:
    """Set `lo` up, as every pod expects it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(probe, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(probe, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def mount_proc() -> None:
    """Mount the pod's own /proc; bwrap looks its child up there and hangs where it finds a foreign process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"proc", b"/proc", b"proc", 0, None):
        raise OSError(ctypes.get_errno(), "cannot mount /proc")


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
    """Connect one accepted connection with the host's socket; closed at once while nobody listens there."""
    try:
        far_reader, far_writer = await asyncio.open_unix_connection(path)
    except OSError:
        writer.close()
        return
    await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))
    far_writer.close()
    writer.close()


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Carry one direction to its end, then tell the other side."""
    try:
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
    except OSError:
        target.close()


async def serve(port: int, path: str) -> None:
    """Listen on the pod's loopback for one bridge."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await carry(reader, writer, path)

    await asyncio.start_server(accept, "127.0.0.1", port)


async def main() -> None:
    """Set the pod up, say so, and wait for the launcher's end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans of the pod land here; nobody waits for them
    outside = os.readlink("/proc/self")  # noqa: PTH115 - before /proc is the pod's own this is the number outside
    mount_proc()
    raise_loopback()
    for bridge in sys.argv[1:]:
        port, path = bridge.split("=", 1)
        await serve(int(port), path)
    sys.stdout.write(f"{outside}\n")
    sys.stdout.flush()
    asyncio.get_running_loop().add_reader(0, lambda: os.read(0, 64) or os._exit(0))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
