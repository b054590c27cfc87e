"""The write path: from an operation to a durable commit record (docs/internals/protocol.md).

Read in this order: publish_plan, footprint, writer, staging, publisher, group, next_record, put_record; then fold,
idempotency, birth and graph_runtime. Every room above may import it; it writes records only through the publisher.
"""
