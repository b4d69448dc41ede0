"""What the raw socket sends is as large as it claims; that a broker takes it, the run on the embedded cluster shows."""

from aioproducer.cli.benchmark.clients.raw_socket import prepared_request
from aioproducer.cli.benchmark.job import Job, Outcome


def test_prepared_request_has_a_full_batch_for_each_partition() -> None:
    """As many records as fit in the batch size."""
    job = Job(work="", topic="t", partitions=4)

    body, records = prepared_request(job, 16_384)

    per_batch = records // 4
    assert records == per_batch * 4
    assert 4 * (16_384 - 110) < len(body) < 4 * 16_384 + 200
    assert body.count(job.value) == records


def test_smallest_request_has_one_record() -> None:
    """For one partition."""
    body, records = prepared_request(Job(work="", topic="t"), 0, partitions=1)

    assert records == 1
    assert len(body) < 300


def test_job_and_outcome_go_through_json() -> None:
    """Between the two processes."""
    job = Job(work="ours.enqueue", records=5, batch_size=262_144)
    outcome = Outcome(5, {"records_per_s": 1.5}, {"linger_ms": "5"})

    assert Job.from_json(job.to_json()) == job
    assert Outcome.from_json(outcome.to_json()) == outcome
