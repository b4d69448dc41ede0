"""Records traces from real brokers, or plays some to both: `python -m tests.contracts.traces record|renew|compare`.

record N           starts a real broker of each release, plays seeds 0 to N - 1 to it, and replaces the recordings
renew KIND         plays the recorded traces of one kind again and replaces their answers: the model serves more by now
compare FROM TO    plays these seeds to real brokers and to the model and prints every difference
"""

import argparse
import asyncio
import secrets
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import repeat

from tests.contracts.traces.brokers import SocketBroker
from tests.contracts.traces.differences import differences, without_exclusions
from tests.contracts.traces.player import answers_of_model, answers_of_real, warm_up
from tests.contracts.traces.traces import FILE, KINDS, Recording, Trace, recordings, trace_of, write_recordings
from tests.kafka_releases import RELEASES, profile_of, real_cluster

DEFAULT_TRACES = 1200


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.contracts.traces", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("record").add_argument("traces", type=int, nargs="?", default=DEFAULT_TRACES)
    commands.add_parser("renew").add_argument("kind", choices=KINDS)
    compare = commands.add_parser("compare")
    compare.add_argument("first", type=int)
    compare.add_argument("end", type=int)
    options = parser.parse_args()
    if options.command == "record":
        return asyncio.run(_with_brokers(partial(_play, range(options.traces), is_recorded=True)))
    if options.command == "renew":
        return asyncio.run(_with_brokers(partial(_renew, options.kind)))
    return asyncio.run(_with_brokers(partial(_play, range(options.first, options.end), is_recorded=False)))


async def _with_brokers(play: Callable[[Mapping[str, str]], int]) -> int:
    clusters = {release: real_cluster(release) for release in RELEASES}
    try:
        for cluster in clusters.values():
            await cluster.start()
        servers = {release: cluster.bootstrap_servers for release, cluster in clusters.items()}
        for address in servers.values():
            await asyncio.to_thread(warm_up, SocketBroker(address))
        return await asyncio.to_thread(play, servers)
    finally:
        for cluster in clusters.values():
            await cluster.stop()


def _play(seeds: range, servers: Mapping[str, str], *, is_recorded: bool) -> int:
    recorded = [_record(trace_of(seed), servers) for seed in seeds]
    found = sum(_print_differences(recording) for recording in recorded)
    steps = sum(len(recording.steps) for recording in recorded)
    print(f"{len(recorded)} traces, {steps} requests, {found} differences on {' and '.join(servers)}")
    if is_recorded:
        write_recordings(recorded)
        print(f"{FILE}: {FILE.stat().st_size} bytes")
    return 1 if found else 0


def _renew(kind: str, servers: Mapping[str, str]) -> int:
    renewed = [_record(old, servers) if old.kind == kind else old for old in recordings()]
    found = sum(_print_differences(recording) for recording in renewed if recording.kind == kind)
    write_recordings(renewed)
    print(f"{found} differences in traces of the kind {kind}")
    return 1 if found else 0


def _record(trace: Trace | Recording, servers: Mapping[str, str]) -> Recording:
    prefix = f"r{trace.seed}-{secrets.token_hex(4)}-"
    answers = {}
    for release, address in servers.items():
        real = answers_of_real(trace.steps, release, bootstrap_servers=address, prefix=prefix)
        profile = profile_of(release)
        answers[release] = [without_exclusions(*each) for each in zip(trace.steps, repeat(profile), real, strict=False)]
    return Recording(trace.seed, trace.kind, trace.steps, answers)


def _print_differences(recording: Recording) -> int:
    count = 0
    for release, real in recording.answers.items():
        model = answers_of_model(recording.steps, release)
        for difference in differences(recording.steps, profile_of(release), real=real, model=model):
            print(f"{release}, seed {recording.seed} ({recording.kind}), {difference}")
            count += 1
    return count


if __name__ == "__main__":
    sys.exit(main())
