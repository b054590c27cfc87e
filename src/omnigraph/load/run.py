"""The walk of a load: find the input files, choose the engine, run it, report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from omnigraph.commit.graph_runtime import Branch, GraphRuntime
from omnigraph.commit.publish_plan import WriteOptions
from omnigraph.commit.publisher import Publisher
from omnigraph.errors import InvalidInput
from omnigraph.intents.run_bulk import run_bulk
from omnigraph.load.inputs import Inputs, LoadSources, discover
from omnigraph.load.local.operation import LocalLoad
from omnigraph.load.options import LoadOptions
from omnigraph.load.report import LoadReport
from omnigraph.log.snapshot import Catalogs
from omnigraph.progress import report_progress
from omnigraph.storage.input_files import InputFiles


@dataclass(frozen=True)
class LoadJob:
    """Everything that an engine needs. `session` is a `SparkSession`; if None, the engine uses that of the process."""

    runtime: GraphRuntime
    branch: Branch
    holder: str | None
    inputs: Inputs
    options: LoadOptions
    write: WriteOptions
    progress: bool | None = None
    session: Any = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    master: str | None = None


def find_inputs(load_sources: LoadSources, catalogs: Catalogs, publisher: Publisher, options: LoadOptions) -> Inputs:
    """Finds the input files. If a named type is unknown, it may be new: then the newest commit record is read."""
    files = InputFiles(options.storage_options)
    try:
        return discover(load_sources, catalogs.get(publisher.head.schema), files)
    except InvalidInput as error:
        if error.code != "type_not_found":
            raise
        return discover(load_sources, catalogs.get(publisher.refresh().schema), files)


def run_load(job: LoadJob) -> LoadReport:
    """Runs a load in this process or on Spark, as the options and the size of the input require."""
    if job.options.mode == "overwrite":
        # An overwrite replaces whole tables: retried after a conflict, it would silently undo what others wrote since.
        job = replace(job, write=replace(job.write, on_conflict="fail"))
    if job.options.engine_for(job.inputs.size_bytes) == "local" and not _overwrites_too_many_rows(job):
        return run_in_process(job)
    # Spark is slow to import, and this module is imported by `load.spark`.
    from omnigraph.load.spark.load import load_files

    return load_files(job)


def _overwrites_too_many_rows(job: LoadJob) -> bool:
    """Whether the engine is `auto` and a small input would replace more rows than this process should have in memory.

    It is not known yet which types mixed records replace, so for them every table counts.
    """
    if job.options.engine != "auto" or job.options.mode != "overwrite":
        return False
    head = job.branch.publisher.head
    catalog = job.runtime.catalogs.get(head.schema)
    mixed = any(source.type_name is None for source in job.inputs.sources)
    replaced = [
        type_def for type_def in catalog.types if mixed or (type_def.kind, type_def.name) in job.inputs.named_types
    ]
    rows = sum(head.pins[type_def.id].rows for type_def in replaced if type_def.id in head.pins)
    return rows > job.runtime.backend.config.mutation_max_rows


def run_in_process(job: LoadJob) -> LoadReport:
    with report_progress(job.progress) as progress:
        operation = LocalLoad(job.runtime.backend, job.inputs, job.options, progress)
        receipt = run_bulk(job.runtime.backend, job.branch.writer, operation, job.write, job.holder)
    report = LoadReport.from_receipt(receipt)
    if receipt.replayed:
        return report
    return replace(report, sample=tuple(reject.to_json() for reject in operation.summary.sample))
