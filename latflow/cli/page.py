"""`latflow page`: models in the browser."""

from __future__ import annotations

import argparse
import ipaddress
import signal
import socket
import threading
from typing import Any

from latflow.errors import LatflowError
from latflow.stops import stops

MOST_CONNECTIONS = 200


def add(commands: Any) -> None:
    command = commands.add_parser("page", help="see, hear and steer models in the browser")
    command.add_argument(
        "folders",
        nargs="*",
        metavar="RUN",
        help="runs to watch and to use beside the shipped models, also while they train",
    )
    command.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="listen there (127.0.0.1: this machine alone)"
    )
    command.add_argument("--port", type=int, default=8022, metavar="N", help="(8022; 0: any that is free)")
    command.add_argument(
        "--no-browser", action="store_true", help="print the address only, do not open a browser"
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        import uvicorn

        from latflow.page.app import application
        from latflow.page.jobs import Desk
        from latflow.page.kernels import Kernels
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise LatflowError(
            f"the page needs {error.name}; install it with: pip install 'latflow[page]'"
        ) from None
    from latflow.page.guard import LOOPBACK

    if not 0 <= args.port <= 65535:
        raise LatflowError(f"--port is {args.port}; accepted: 0 to 65535")
    host = _address(args.host)
    own = f"[{host}]" if ":" in host else host
    ready = threading.Event()
    app = application(args.folders, names={*LOOPBACK, own}, desk=Desk(twins=ready))
    config = uvicorn.Config(
        app,
        log_level="warning",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=3,
        server_header=False,
        ws="none",
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, args.port), family=family)
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (")[0]
        raise LatflowError(
            f"cannot listen on {own}:{args.port}: {why}; give another --port (0: any that is free), or as --host an "
            "address of this machine"
        ) from None
    address = f"http://{own}:{listening.getsockname()[1]}/"
    print(f"latflow page: {address} (Ctrl+C ends it)", flush=True)
    if not args.no_browser:
        import webbrowser

        webbrowser.open(address)
    kernels, server = Kernels(ready), uvicorn.Server(config)

    def end(number: int) -> None:
        server.should_exit = True

    try:
        with listening, stops(end) as came:
            server.run(sockets=[listening])
    finally:
        kernels.close()
    if came:
        signal.raise_signal(came[0])
    return 0


def _address(host: str) -> str:
    """An address of this machine, which is also what the page's own requests name; not a wildcard."""
    try:
        found = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
    except ValueError:
        raise LatflowError(
            f"--host is {host!r}; accepted: an address of this machine, such as 127.0.0.1"
        ) from None
    if found.is_unspecified:
        raise LatflowError(
            f"--host {host} is every address at once; name the one that browsers will use, for requests that name "
            "another are refused"
        )
    return str(found)
