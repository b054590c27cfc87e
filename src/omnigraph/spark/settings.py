"""What a Spark session is started with, as plain values: reading them imports nothing of Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

LOCAL_MASTER = "local[*,4]"  # without the 4 a failed task is never tried again

_LOOPBACK = "127.0.0.1"
_LOOPBACK_NAMES = (_LOOPBACK, "localhost")
_PARTITIONS_PER_CORE = 4
_LEAST_PARTITIONS = 8


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How a session is started. `conf` wins over everything that is chosen here."""

    master: str | None = None
    """Of Spark itself; this machine's cores by default."""

    remote: str | None = None
    """Address of a Spark Connect server (`sc://host:port`); excludes `master`."""

    conf: Mapping[str, str] = field(default_factory=dict)
    driver_memory: str = "2g"
    app_name: str = "omnigraph"

    @classmethod
    def from_environment(
        cls,
        environment: Mapping[str, str] | None = None,
        *,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> SparkSettings:
        """`SPARK_REMOTE`, `OMNIGRAPH_SPARK_MASTER` and `OMNIGRAPH_SPARK_DRIVER_MEMORY`; an argument wins over them."""
        variables = os.environ if environment is None else environment
        return cls(
            master=master
            or (None if variables.get("SPARK_REMOTE") else variables.get("OMNIGRAPH_SPARK_MASTER") or None),
            remote=None if master else variables.get("SPARK_REMOTE") or None,
            conf=dict(conf or {}),
            driver_memory=variables.get("OMNIGRAPH_SPARK_DRIVER_MEMORY") or cls().driver_memory,
        )

    @property
    def place(self) -> str:
        """The Spark master that is used: an entry in `conf` wins over `master`."""
        return self.conf.get("spark.master") or self.master or LOCAL_MASTER

    @property
    def on_this_machine(self) -> bool:
        """Whether nothing needs to reach the driver from another host."""
        host = self.place.removeprefix("spark://").partition(":")[0]
        return self.place.startswith("local") or host in _LOOPBACK_NAMES

    @property
    def shows_log(self) -> bool:
        """Whoever sets a log level wants to see the log."""
        return "spark.log.level" in self.conf

    def spark_conf(self, scratch: str) -> dict[str, str]:
        """Everything the session is started with. `scratch` is a directory of this process."""
        partitions = max(_LEAST_PARTITIONS, _PARTITIONS_PER_CORE * (os.cpu_count() or 1))
        defaults = {
            "spark.app.name": self.app_name,
            "spark.master": self.place,
            "spark.driver.memory": self.driver_memory,
            "spark.log.level": "ERROR",
            "spark.sql.adaptive.enabled": "true",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": str(partitions),
            "spark.sql.warehouse.dir": scratch,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        if self.on_this_machine:
            # Spark otherwise listens where other machines can reach it.
            defaults |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
        return {**defaults, **self.conf}

    def environment(self, python: str) -> dict[str, str]:
        """Variables that Spark reads while it starts. `python` is what runs on the workers."""
        if self.on_this_machine:
            return {"SPARK_LOCAL_IP": _LOOPBACK, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        # On other hosts our interpreter may be elsewhere, so what the user says about it counts.
        return {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or python, "PYSPARK_DRIVER_PYTHON": python}
