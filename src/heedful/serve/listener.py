"""The socket of the server, and how many connections it may have. The supervisor needs this and no framework."""

import socket
from ipaddress import ip_address
from typing import Any

from heedful.errors import ConfigError

BACKLOG = 2048  # connections that wait to be accepted
_RESERVED_DESCRIPTORS = 256  # for files, and for connections that are accepted at once
_MOST_CONNECTIONS = 10_000


def listen(host: str, port: int) -> socket.socket:
    """A listening socket at this address; port 0 means any free port."""
    try:
        (family, *_, address) = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With IPPROTO_TCP, asyncio disables Nagle's algorithm, which would delay every response by 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        # On Windows, SO_REUSEADDR would let a second server take the port of the first.
        reuse = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
        listener.setsockopt(socket.SOL_SOCKET, reuse, 1)
        try:
            listener.bind(address)
            listener.listen(BACKLOG)  # clients that connect before the server is ready wait
        except OSError:
            listener.close()
            raise
        return listener
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cannot listen on {host}, port {port} ({reason}); give another --port, or 0 for any free one"
        ) from error


def raise_descriptor_limit() -> None:
    """Allow this process as many connections as the system does."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_CONNECTIONS + _RESERVED_DESCRIPTORS
    if 0 <= soft < wanted:  # negative: there is no limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))


def count_allowed_connections() -> int:
    """The number of connections for which there are descriptors, with some left for other things."""
    try:
        import resource
    except ModuleNotFoundError:  # on Windows
        return _MOST_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CONNECTIONS if soft < 0 else max(1, min(_MOST_CONNECTIONS, soft - _RESERVED_DESCRIPTORS))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach this address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url_of(listener: socket.socket) -> str:
    """The address of a listening socket."""
    address: Any = listener.getsockname()
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"http://{host}:{address[1]}"
