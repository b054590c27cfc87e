"""The test bed: real S3-protocol servers, a proxy that measures and fails requests, and real child processes.

Fixtures (from `tests.support.fixtures`, loaded by `tests/conftest.py`; mark such tests with `@pytest.mark.s3`):

====================== =========================================================================================
`s3_place`             an empty bucket on a moto server (one process per session; every request is atomic)
`seaweed_place`        an empty prefix on SeaweedFS (started by the first test that asks; skipped if not installed)
`race_place`           the test runs on both: for races
`s3_proxy`             a proxy in front of moto, fresh for the test
`proxied_place`        `s3_place` reached through `s3_proxy`
`seaweed_proxy`, `proxied_seaweed_place`   the same in front of SeaweedFS
====================== =========================================================================================

**A place** (`tests.support.s3.S3Place`) is `endpoint`, `bucket`, `prefix`, and what follows from them::

    lance.write_dataset(table, f"{place.uri}/t", storage_options=place.storage_options)
    og.init(place.uri, storage_options=place.storage_options)
    run_workers(work, 4, env=place.env)                # a child then needs no options
    place.object_store(max_retries=0)                  # obstore; by default it repeats nothing, so faults are seen
    place.list_keys()                                  # all keys, relative to the place
    S3Place(**json)  <->  dataclasses.asdict(place)    # to hand a place to a child

**Counting.** Requests are told apart by method (`GET HEAD LIST PUT COPY DELETE DELETE_MANY PART_START PART PART_END
PART_ABORT BUCKET OTHER`) and key class (`graph schema record registry intent archive tag lease trash lock table-data
table-manifest table-txn table-deletion table-index table-hint table-other other`)::

    def test_insert_costs_one_put(s3_proxy, proxied_place):
        g = og.open(proxied_place.uri, ...)
        with s3_proxy.measure(latency_s=0.04) as traffic:
            commit = g.insert(...)
        assert commit is the new head                  # first that it landed: a refused write is cheap
        assert traffic.counts == {("PUT", "record"): 1}
        assert traffic.hops == 1

`traffic.hops` is the longest chain of requests that did not overlap. It needs a latency of 30 ms or more: without one,
parallel requests are over before the next begins. `s3_proxy.max_concurrent = 8` caps concurrency (a request that waits
for its turn then counts as a further hop). `s3_proxy.slope(op)` runs `op` at 0, 50 and 150 ms and returns the fitted
`hops` and `compute_s`. `print(traffic)` gives one line for humans, `s3_proxy.log` every request with its status.

**Faults** strike the n-th matching request from now on (see `Proxy.fail` for all kinds)::

    s3_proxy.fail("drop_answer", method="PUT", key_class="record")           # landed, acknowledgement lost
    s3_proxy.fail("503", nth=3, times=2)                                     # the 3rd and 4th request of any kind
    late = s3_proxy.fail("arrive_late", method="PUT", key_class="record")    # lands after the client gave up:
    ...; late.release(); late.wait_done()
    held = s3_proxy.fail("hold", method="PUT", key_class="table-manifest")   # one actor stands still:
    held.wait_hit(); ...; held.release()
    s3_proxy.fail("drop_answer", nth=n, method="PUT", on_hit=worker.kill)    # SIGKILL right after the n-th effect

obstore repeats failed requests by itself unless told not to, and so does Lance: a single 5xx or cut connection is
often invisible above them; `times=None` makes it last until `s3_proxy.clear_faults()` or `reset()`.

**Processes** (`tests.support.processes`)::

    # tests/commit/workers.py
    def insert(link: Link, *, place: dict[str, str], rows: int) -> int:
        g = og.open(...)
        link.ready()                                   # all start together, after imports and opening
        for number in range(rows):
            g.insert(...)
            link.send(row=number)                      # acknowledged: the test hears it even if we are killed now
        return rows

    results = run_workers(insert, 4, {"place": asdict(place), "rows": 50}, kill=random_kills(seed, [0, 2]))
    results[0].killed, results[0].messages, results[1].value

A worker that raises, dies on its own or is late fails the test with what it printed (late ones with the stacks of all
their threads). `Workers` is the same with a handle: `order` / `receive`, `wait_for(condition)`, `worker.kill()`.
"""
