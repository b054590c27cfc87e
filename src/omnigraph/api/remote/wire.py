"""Results on the wire: Arrow as it is, with what belongs to it in the schema's metadata."""

from __future__ import annotations

import json

import pyarrow as pa

from omnigraph.query.run.result import Result, ResultColumn

ARROW_TYPE = "application/vnd.apache.arrow.stream"
_KEY = b"omnigraph"


def arrow_bytes(result: Result) -> bytes:
    """The result as one Arrow IPC stream."""
    facts = {
        "commit_id": result.commit_id,
        "columns": [[one.name, one.type] for one in result.columns],
        "warnings": list(result.warnings),
    }
    table = result.table.replace_schema_metadata({_KEY: json.dumps(facts).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def result_of(data: bytes) -> Result:
    """The very result that was sent."""
    table = pa.ipc.open_stream(data).read_all()
    facts = json.loads(table.schema.metadata[_KEY])
    columns = tuple(ResultColumn(*one) for one in facts["columns"])
    plain = table.replace_schema_metadata(None)
    return Result.of_table(plain, columns, facts["commit_id"], tuple(facts["warnings"]))
