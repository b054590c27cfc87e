"""What dies in child processes: one operation each, killed at an exact place."""

from __future__ import annotations

from typing import Any

from tests.faults.atomicity import attempt
from tests.faults.faulty_process import FaultyProcess
from tests.faults.operations import BY_NAME
from tests.support.faulty_store import EFFECTS, Fault, FaultPlan
from tests.support.processes import Link


def run_until_killed(
    link: Link,
    *,
    uri: str,
    operation: str,
    fault: str | None = None,
    n: int = 1,
    point: str | None = None,
    options: dict[str, str] | None = None,
) -> bool:
    """Run the operation; die at its n-th effect, or at the n-th visit of a named point. True if it was acknowledged.

    With neither, the test kills from outside.
    """
    fault_operation = BY_NAME[operation]
    process = FaultyProcess(uri, options, hasty=options is None, **fault_operation.config)
    prepared: Any = fault_operation.prepare(process)
    if fault is not None:
        process.arm(FaultPlan.at(n, Fault(fault), kinds=EFFECTS))
    if point is not None:
        process.pauses.crash_at(point, n)
    link.ready()
    answer = attempt(process, fault_operation, prepared)
    return answer.is_positive
