"""The session: quiet, on loopback, shared, never somebody else's, and not there unless it is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from omnigraph.errors import InvalidInput
from omnigraph.spark.session import get_session, is_connect, use_settings
from omnigraph.spark.settings import LOCAL_MASTER, SparkSettings
from tests.support.spark_session import SETTINGS

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1 as /proc writes it, also inside IPv6


def run(script: str, warnings: str = "error", **environment: str) -> subprocess.CompletedProcess[str]:
    """A script in a process of its own, with warnings as errors."""
    return subprocess.run(
        [sys.executable, "-W", warnings, "-c", script],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, **environment},
        check=False,
    )


def test_one_session_for_all(spark: SparkSession) -> None:
    assert get_session() is spark
    assert get_session(SETTINGS) is spark
    assert spark.range(3).count() == 3
    with pytest.raises(InvalidInput) as refused:
        get_session(SparkSettings(driver_memory="7g"))
    assert refused.value.code == "spark_running"


def test_a_given_session_is_used_as_it_is(spark: SparkSession) -> None:
    user_session = spark.newSession()
    assert get_session(existing=user_session) is user_session
    assert get_session(SparkSettings(master="local[7]"), existing=user_session) is user_session
    assert not is_connect(user_session)


def test_settings_of_the_running_session(spark: SparkSession) -> None:
    conf = dict(spark.sparkContext.getConf().getAll())
    assert conf["spark.master"] == LOCAL_MASTER
    assert conf["spark.ui.enabled"] == "false"
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert spark.sparkContext.pythonExec == sys.executable


def test_it_listens_on_loopback_only(spark: SparkSession) -> None:
    process = SparkContext._gateway.proc  # type: ignore[union-attr]
    owned = {
        os.readlink(path)
        for path in Path(f"/proc/{process.pid}/fd").iterdir()
        if os.readlink(path).startswith("socket:")
    }
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process.pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in owned:
                listening.append(words[1].partition(":")[0])
    assert listening
    assert set(listening) <= LOOPBACK


@pytest.mark.slow
def test_it_starts_and_ends_without_a_word() -> None:
    """Not even Java's own first lines, nor a warning about the fork that starts it."""
    process = run(
        "import lance\n"
        "from omnigraph.spark.session import get_session\n"
        "from omnigraph.spark.settings import SparkSettings\n"
        "spark = get_session(SparkSettings(driver_memory='1g'))\n"
        "assert spark.range(4).count() == 4\n"
        "print('done')\n"
    )
    assert (process.stdout, process.stderr, process.returncode) == ("done\n", "", 0)


@pytest.mark.slow
def test_one_jvm_for_all_loads_of_a_process(tmp_path: Path) -> None:
    """What makes the second load cheap (`python -m bench load` says by how much): nothing is started for it."""
    process = run(
        "import os\n"
        "from pathlib import Path\n"
        "import omnigraph as og\n"
        "from pyspark import SparkContext, java_gateway\n"
        "from omnigraph.spark.session import get_session, use_settings\n"
        "from omnigraph.spark.settings import SparkSettings\n"
        "use_settings(SparkSettings(driver_memory='1g'))\n"
        "launch, launched, sessions = java_gateway.launch_gateway, [], []\n"
        "java_gateway.launch_gateway = lambda *given: launched.append(1) or launch(*given)\n"
        "place = Path(os.environ['PLACE'])\n"
        "graph = og.init(place / 'g', 'node Person { name: String @key }')\n"
        "for number in range(2):\n"
        "    path = place / f'{number}.csv'\n"
        "    path.write_text('name\\n' + ''.join(f'p{number}-{one}\\n' for one in range(1000)))\n"
        "    assert graph.load({'Person': path}, engine='spark', progress=False).loaded == 1000\n"
        "    sessions.append((get_session().sparkContext.applicationId, SparkContext._gateway.proc.pid))\n"
        "assert sessions[0] == sessions[1], sessions\n"
        "print(len(launched))\n",
        PLACE=str(tmp_path),
    )
    assert (process.stdout, process.stderr, process.returncode) == ("1\n", "", 0)


@pytest.mark.parametrize("java_home", ["", "/nowhere"])
def test_missing_java_is_told(tmp_path: Path, java_home: str) -> None:
    script = (
        "import os\n"
        "if not os.environ['JAVA_HOME']: del os.environ['JAVA_HOME']\n"
        "from omnigraph.errors import Unsupported\n"
        "from omnigraph.spark.session import get_session\n"
        "try:\n    get_session()\nexcept Unsupported as error:\n    print(error.code, error)\n"
    )
    outcome = run(script, PATH=str(tmp_path), JAVA_HOME=java_home)
    assert outcome.stdout.startswith("java_missing ")
    assert "Install Java 17" in outcome.stdout
    assert outcome.stderr == ""


def test_a_master_that_is_none_is_told() -> None:
    script = (
        "from omnigraph.errors import Unavailable\n"
        "from omnigraph.spark.session import get_session\n"
        "from omnigraph.spark.settings import SparkSettings\n"
        "try:\n    get_session(SparkSettings(master='nonsense', driver_memory='1g'))\n"
        "except Unavailable as error:\n    print(error.code, error)\n"
    )
    outcome = run(script, warnings="default::UserWarning")  # PySpark leaves the pipe of a JVM that did not start
    assert outcome.stdout.startswith("spark_not_started Spark did not start on nonsense")
    assert outcome.stderr == ""


def test_nothing_small_imports_spark(tmp_path: Path) -> None:
    """Writing, querying and a small export need no JVM and not even PySpark."""
    script = (
        "import sys, omnigraph as og\n"
        f"g = og.init({str(tmp_path / 'g')!r}, 'node P {{ name: String @key }}')\n"
        "g.mutate('query q() { insert P { name: \"a\" } }')\n"
        "assert len(g.query('query q() { match { $p: P } return { $p.name } }').rows) == 1\n"
        f"g.export({str(tmp_path / 'out.ndjson')!r})\n"
        "assert not [name for name in sys.modules if name.partition('.')[0] == 'pyspark']\n"
    )
    outcome = run(script)
    assert (outcome.stderr, outcome.returncode) == ("", 0)


def test_settings_from_the_environment() -> None:
    assert SparkSettings.from_environment({}) == SparkSettings()
    environment = {"OMNIGRAPH_SPARK_MASTER": "spark://h:7077", "OMNIGRAPH_SPARK_DRIVER_MEMORY": "3g"}
    assert SparkSettings.from_environment(environment) == SparkSettings("spark://h:7077", driver_memory="3g")
    remote = {**environment, "SPARK_REMOTE": "sc://h"}
    assert SparkSettings.from_environment(remote) == SparkSettings(remote="sc://h", driver_memory="3g")
    assert SparkSettings.from_environment(remote, master="local[1]") == SparkSettings("local[1]", driver_memory="3g")


def test_only_what_stays_here_is_bound_to_loopback() -> None:
    for master in (None, "local", "local[3,2]", "spark://127.0.0.1:7077", "spark://localhost:7077"):
        assert "spark.driver.host" in SparkSettings(master).spark_conf("x")
        assert "SPARK_LOCAL_IP" in SparkSettings(master).environment("python")
    for master in ("spark://host:7077", "yarn", "k8s://https://host"):
        assert "spark.driver.host" not in SparkSettings(master).spark_conf("x")
        assert "SPARK_LOCAL_IP" not in SparkSettings(master).environment("python")


def test_settings_of_the_user_win() -> None:
    conf = {"spark.sql.shuffle.partitions": "3", "spark.master": "local[1]", "spark.log.level": "INFO"}
    settings = SparkSettings(conf=conf)
    assert settings.place == "local[1]"
    assert settings.spark_conf("x").items() >= conf.items()
    assert settings.shows_log
    assert not SparkSettings().shows_log


def test_two_places_at_once_are_refused() -> None:
    script = (
        "from omnigraph.errors import InvalidInput\n"
        "from omnigraph.spark.session import get_session, use_settings\n"
        "from omnigraph.spark.settings import SparkSettings\n"
        "use_settings(SparkSettings(master='local[1]', remote='sc://localhost'))\n"
        "try:\n    get_session()\nexcept InvalidInput as error:\n    print(error)\n"
    )
    assert "both named" in run(script).stdout
    assert callable(use_settings)
