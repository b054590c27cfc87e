"""Query results as Arrow IPC streams; commit id, columns and warnings are in the schema's metadata."""

from __future__ import annotations

import json

import pyarrow as pa

from omnigraph.query.run.result import Result, ResultColumn

ARROW_TYPE = "application/vnd.apache.arrow.stream"
_KEY = b"omnigraph"


def encode_arrow(result: Result) -> bytes:
    """The result as one Arrow IPC stream."""
    facts = {
        "commit_id": result.commit_id,
        "columns": [[column.name, column.type] for column in result.columns],
        "warnings": list(result.warnings),
    }
    table = result.table.replace_schema_metadata({_KEY: json.dumps(facts).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def decode_arrow(data: bytes) -> Result:
    """The result that `encode_arrow` was called with."""
    table = pa.ipc.open_stream(data).read_all()
    facts = json.loads(table.schema.metadata[_KEY])
    columns = tuple(ResultColumn(*column) for column in facts["columns"])
    return Result.of_table(table.replace_schema_metadata(None), columns, facts["commit_id"], tuple(facts["warnings"]))
