"""The program of the guide runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "async.md"


def test_the_program_of_the_guide(tmp_path: Path) -> None:
    program = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)[0]
    completed = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "OMNIGRAPH_FSYNC": "off"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert completed.returncode == 0, completed.stderr
    assert "{'name': 'Dora'}" in completed.stdout
    assert completed.stdout.splitlines()[-2:] == ["insert Eve", "fast_forward"]
