"""A real server process for tests, a graph of one's own in its directory, and short words for asking it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

import omnigraph as og
from omnigraph.api.remote import RemoteGraph
from omnigraph.config import Config

QUICK = Config(fsync=False)
PEOPLE = """
node Person {
    name: String @key
    age: I32?
    born: Date?
    @range(age, 0..150)
}
node Doc { name: String @key  content: Blob? }
edge Knows: Person -> Person { since: Date? }
"""
ADD = "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"
ALL = "query everybody() { match { $p: Person } return { $p.name as name, $p.age as age } order { $p.name } }"
AGE = "query age($n: String, $a: I32) { update Person set { age: $a } where name = $n }"


#: og.Graph or og.RemoteGraph: that both fit is what the tests of the facade are about.
Facade = Any


class Server:
    """`omnigraph serve` as a child process on a free port of the loopback."""

    def __init__(self, *words: str | Path, environment: Mapping[str, str] | None = None) -> None:
        program = "from omnigraph.cli.main import main; main()"
        environment_variables = {name: value for name, value in os.environ.items() if not name.startswith("OMNIGRAPH_")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, "serve", "--port", "0", *map(str, words)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**environment_variables, "OMNIGRAPH_FSYNC": "off", **(environment or {})},
            text=True,
        )
        self.log: list[dict[str, Any]] = []
        self.noise: list[str] = []
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._listening.wait(180)
        assert self.url, "\n".join(self.noise)

    @property
    def url(self) -> str:
        return next((line["url"] for line in self.log if line["event"] == "listening"), "")

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def memory_mib(self) -> float:
        """What the process holds in memory now."""
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("VmRSS:"))

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def ask_to_stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        code = self._process.wait(60)
        self._reader.join(10)
        assert self._process.stderr is not None
        self._process.stderr.close()
        return code

    def _end(self, how: signal.Signals) -> int:
        if not self.has_ended:
            self._process.send_signal(how)
        return self.wait()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            try:
                self.log.append(json.loads(line))
            except ValueError:
                self.noise.append(line)
            if '"listening"' in line:
                self._listening.set()
        self._listening.set()


@dataclass(frozen=True)
class HttpAnswer:
    """What came back."""

    status: int
    document: Any
    headers: Mapping[str, str]

    @property
    def code(self) -> str:
        return str(self.document["code"])


@dataclass
class Door:
    """One graph behind a server."""

    url: str
    name: str
    place: Path
    token: str | None = None
    server: Server | None = None
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=60, trust_env=False))

    def call(self, method: str, path: str, **options: Any) -> HttpAnswer:
        headers = dict(options.pop("headers", None) or {})
        if self.token:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        response = self.http.request(method, f"{self.url}{path}", headers=headers, **options)
        is_json = response.headers.get("content-type", "").startswith("application/json")
        return HttpAnswer(response.status_code, response.json() if is_json else response.content, response.headers)

    def get(self, route: str, **query: Any) -> HttpAnswer:
        return self.call("GET", f"/graphs/{self.name}/{route}", params=query)

    def post(self, route: str, body: Any, **headers: str) -> HttpAnswer:
        header_values = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.call("POST", f"/graphs/{self.name}/{route}", json=body, headers=header_values)

    def mutate(self, source: str, params: Mapping[str, Any] | None = None, **more: Any) -> HttpAnswer:
        headers = {name: more.pop(name) for name in ("Idempotency_Key", "If_Match") if name in more}
        return self.post("mutate", {"source": source, "params": dict(params or {}), **more}, **headers)

    def query(self, source: str = ALL, params: Mapping[str, Any] | None = None, **more: Any) -> HttpAnswer:
        return self.post("query", {"source": source, "params": dict(params or {}), **more})

    def names(self) -> list[str]:
        return [row["name"] for row in self.query().document["rows"]]

    def open_embedded(self) -> og.Graph:
        return og.open(self.place, config=QUICK)

    def connect(self) -> RemoteGraph:
        return og.connect(f"{self.url}/graphs/{self.name}", self.token)


def metric(text: str, name: str, **labels: str) -> float:
    """The sum of the samples of a metric that have these labels."""
    label_texts = [f'{key}="{value}"' for key, value in labels.items()]
    lines = [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    return sum(
        float(line.rpartition(" ")[2]) for line in lines if all(label_text in line for label_text in label_texts)
    )
