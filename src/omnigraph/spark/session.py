"""The one Spark session of a process: started by the first operation that needs it, quiet, stopped at exit.

A session of the caller is used as it is and never stopped. The JVM's stderr goes into a temporary file, from which a
failed start is explained: Java prints there before any log setting of Spark takes effect.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import IO, TYPE_CHECKING, Any

from omnigraph.errors import InvalidInput, OmnigraphError, Unavailable, Unsupported
from omnigraph.spark.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JAVA_ADVICE = "Install Java 17 or newer (Debian: openjdk-17-jre-headless) and set JAVA_HOME, or use --engine local"
_LOG_TAIL_CHARS = 2_000
_JVM_END_S = 10.0
#: A Connect server that is starting needs some seconds; PySpark itself would go on asking for ten minutes.
_CONNECT_S = 60.0


@dataclass(slots=True)
class _Running:
    """The session that this process started."""

    session: SparkSession
    settings: SparkSettings
    pid: int
    scratch: tempfile.TemporaryDirectory[str]


_LOCK = RLock()
_running: _Running | None = None
_default_settings: SparkSettings | None = None


def use_settings(settings: SparkSettings) -> None:
    """The settings of a session that is started later in this process. Starts nothing now."""
    global _default_settings
    _default_settings = settings


def get_session(settings: SparkSettings | None = None, existing: SparkSession | None = None) -> SparkSession:
    """`existing` if given; else the session that is active in this process; else a new one, shared by the process.

    Without `settings` those of `use_settings` count, else those of the environment. Raises InvalidInput if a session
    with other settings is running.
    """
    if existing is not None:
        return existing
    with _LOCK:
        running = _find_running()
        if running is not None:
            if settings is not None and settings != running.settings:
                raise _other_settings()
            return running.session
        return _foreign_session() or _start(settings or _default_settings or SparkSettings.from_environment())


def stop_session() -> None:
    """Stop the session that `get_session` started, if there is one, and its JVM; never a session of the user."""
    global _running
    with _LOCK:
        running, _running = _running, None
    if running is None or running.pid != os.getpid():
        return
    running.session.stop()
    if running.settings.remote is None:
        _end_jvm()
    running.scratch.cleanup()


def is_connect(session: SparkSession) -> bool:
    """Whether this is a Spark Connect client: it has no context, hence no status tracker."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def _find_running() -> _Running | None:
    """The session that this process started. A fork must not talk through the sockets of its parent."""
    if _running is None or _running.pid != os.getpid():
        return None
    return None if _is_stopped(_running.session) else _running


def _is_stopped(session: SparkSession) -> bool:
    """Whether the user has stopped the session."""
    if is_connect(session):
        return bool(session.is_stopped)  # type: ignore[attr-defined]
    return session.sparkContext._jsc is None


def _foreign_session() -> SparkSession | None:
    """A session that the user started in this process; a second one could not run beside it."""
    module = sys.modules.get("pyspark.sql")
    return module.SparkSession.getActiveSession() if module is not None else None


def _start(settings: SparkSettings) -> SparkSession:
    global _running
    if settings.remote is not None and settings.master is not None:
        raise InvalidInput("a Spark master and a Spark Connect server are both named", advice="Leave out one of them")
    scratch = tempfile.TemporaryDirectory(prefix="omnigraph-spark-", ignore_cleanup_errors=True)
    atexit.register(stop_session)  # registered after the directory's cleanup, so it runs before it
    try:
        session = _connect(settings) if settings.remote is not None else _launch(settings, scratch.name)
    except BaseException:
        scratch.cleanup()
        raise
    _running = _Running(session, settings, os.getpid(), scratch)
    from omnigraph.spark.data_source import register

    register(session)
    return session


def _connect(settings: SparkSettings) -> SparkSession:
    assert settings.remote is not None
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        _wait_for_server(settings.remote)
        builder = SparkSession.builder.remote(settings.remote).appName(settings.app_name)
        for name, value in settings.conf.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except ImportError as error:
        raise Unsupported(
            f"Spark Connect needs a package that is not installed: {error}",
            code="connect_missing",
            advice="pip install 'pyspark[connect]'",
        ) from error
    except (PySparkException, OSError) as error:
        raise Unavailable(
            f"the Spark Connect server at {_without_secrets(settings.remote)} does not answer: {_first_line(error)}",
            advice="Check SPARK_REMOTE",
        ) from error


def _wait_for_server(remote: str) -> None:
    """Raises TimeoutError if no server answers."""
    import grpc  # type: ignore[import-untyped]
    from pyspark.sql.connect.client import DefaultChannelBuilder

    if not remote.startswith("sc://"):  # PySpark starts a server of its own
        return
    with DefaultChannelBuilder(remote).toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=_CONNECT_S)
        except grpc.FutureTimeoutError:
            raise TimeoutError(f"no connection within {_CONNECT_S:.0f} s") from None


def _without_secrets(remote: str) -> str:
    """The parameters of an address may hold a token."""
    return remote.partition(";")[0].rstrip("/")


def _launch(settings: SparkSettings, scratch: str) -> SparkSession:
    _check_java()
    from pyspark import SparkConf, SparkContext, java_gateway
    from pyspark.sql import SparkSession

    start_jvm: Any = java_gateway.launch_gateway
    conf = SparkConf(loadDefaults=False).setAll(list(settings.spark_conf(scratch).items()))
    with (
        tempfile.TemporaryFile() as log,
        _environment(settings.environment(sys.executable)),
        warnings.catch_warnings(),
    ):
        # PySpark forks to start Java, and Lance warns of forks; this one becomes another program at once.
        warnings.filterwarnings("ignore", "lance is not fork-safe")
        gateway = None
        try:
            if SparkContext._gateway is None:  # else an earlier session has left its JVM behind
                gateway = start_jvm(conf, {} if settings.shows_log else {"stderr": log})
            context = SparkContext(conf=conf, gateway=gateway)
        except Exception as error:  # py4j and Spark raise a dozen kinds here; each means that it did not start
            if gateway is not None:
                _end_jvm()
            raise _not_started(settings, error, log) from error
    return SparkSession(context)


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home is not None and not os.access(os.path.join(home, "bin", "java"), os.X_OK):
        raise Unsupported(f"JAVA_HOME is {home!r}, which has no bin/java", code="java_missing", advice=_JAVA_ADVICE)
    if home is None and shutil.which("java") is None:
        raise Unsupported("Spark needs Java, and there is none on PATH", code="java_missing", advice=_JAVA_ADVICE)


def _not_started(settings: SparkSettings, error: Exception, log: IO[bytes]) -> OmnigraphError:
    log.seek(0)
    tail = log.read().decode(errors="replace")[-_LOG_TAIL_CHARS:].strip()
    if "UnsupportedClassVersionError" in tail:
        return Unsupported("this Java is too old for Spark", code="java_missing", advice=_JAVA_ADVICE)
    return Unavailable(
        f"Spark did not start on {settings.place}: {_first_line(error)}",
        code="spark_not_started",
        advice="Check --master, --spark-conf and the log that follows" if tail else "Check --master and --spark-conf",
        log=tail or None,
    )


def _other_settings() -> InvalidInput:
    return InvalidInput(
        "a Spark session with other settings is running in this process",
        code="spark_running",
        advice="Use it, or call omnigraph.spark.session.stop_session() first",
    )


@contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    """Variables for a starting JVM. `SPARK_REMOTE` would turn the session into a Connect client: it is put aside."""
    before = {name: os.environ.get(name) for name in (*changes, "SPARK_REMOTE")}
    os.environ.pop("SPARK_REMOTE", None)
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _end_jvm() -> None:
    """The JVM ends when its stdin does. Waiting for it keeps its temporary files from outliving this process."""
    from subprocess import TimeoutExpired

    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    process = gateway.proc
    if process is None:
        return
    process.stdin.close()
    try:
        process.wait(_JVM_END_S)
    except TimeoutExpired:
        process.kill()
        process.wait()


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
