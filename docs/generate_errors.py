"""Writes `reference/errors.md` from the error tree, the table of codes, and `decide` itself.

Run it after changing one of these: `python docs/generate_errors.py`. A test fails while the page is old.
"""
# ruff: noqa: INP001  # a script beside the pages, not a package

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Final

from aioproducer import errors
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.produce import PartitionResponse
from aioproducer._sender.produce_outcome import (
    FEW_RETRIES,
    BatchFacts,
    Complete,
    Fail,
    Policy,
    ProduceOutcome,
    Refuse,
    Retry,
    Split,
    decide,
)
from aioproducer.errors import BrokerError, KafkaError, Outcome

PAGE = Path(__file__).parent / "reference" / "errors.md"

ALWAYS: Final = 2**31 - 1
"""Kafka's default of `retries`."""

_OF_OTHER_REQUESTS: Final = frozenset({41, 70, 71, 72, 78, 80, 83, 84, 88, 89, 106, 122, 123, 133})
"""Retriable codes about controllers, elections, fetches, groups, quotas and share sessions."""

_INTRODUCTION = """\
<!-- Written by docs/generate_errors.py from errors.py, error_codes.py and produce_outcome.py: change them. -->

# Errors

Everything this library raises on purpose is a `KafkaError`.
Where Python has a matching built-in exception, the class has it as a second parent,
so `except TimeoutError` or `except ValueError` works without an import from this library.

{tree}
`exactly_once` adds one, `aioproducer.integrations.aiokafka.exactly_once.PoisonRecordError`: a record of the input fails
at every attempt, also alone. Its `topic`, `partition` and `offset` say which.

## What an error says

{attributes}
## What became of the record

Every error of a record carries an `outcome`.
It claims no more than the broker has proved.

{outcomes}
A response is about its own attempt; the outcome is about the record as a whole.
Once an attempt of a batch went unanswered, or was answered in a way that does not exclude the write,
the batch is in doubt until a broker reports success:
a later "not written" does not change that, since the earlier attempt may still have been written.

Errors that are raised at the call have the outcome `NOT_WRITTEN` or, if they are not about the record, none:
nothing was accepted.

## What each code of a Produce response leads to

One row for each code that `_sender/produce_outcome.py : decide` treats specially,
for a producer with the default options (all acknowledgements, idempotent, any number of retries)
and a batch of two records whose first attempt got this response, without an offset.
The last two columns say what the caller gets when the batch ends with that response:
at once if nothing is sent again, otherwise when `retries` are used up.
If `delivery_timeout_ms` is over first, it is a `DeliveryTimeoutError` with the code in `last_broker_error`.

Under `acks="all"` an error that comes with an offset was found after the write: its outcome is `UNKNOWN`
in every row.
Codes of other requests that mean "try again" ({others}) are tried again here too,
although no broker is known to answer Produce with one.
Every other code, including codes newer than this library,
fails the batch at once with `BrokerError` and `UNKNOWN`.

| code | name | what the broker means | what is done | outcome | class |
| --: | --- | --- | --- | --- | --- |
"""


def render() -> str:
    """Return the whole page."""
    special = [code for code in ErrorCode if _is_special(code)]
    others = ", ".join(str(int(code)) for code in special if code in _OF_OTHER_REQUESTS)
    page = _INTRODUCTION.format(tree=_tree(), attributes=_attributes(), outcomes=_outcomes(), others=others)
    return page + "".join(_row(code) for code in special if code not in _OF_OTHER_REQUESTS)


def _tree() -> str:
    lines = inspect.cleandoc(errors.__doc__ or "").splitlines()
    first = next(index for index, line in enumerate(lines) if line.strip().startswith(KafkaError.__name__))
    last = max(index for index, line in enumerate(lines) if "──" in line)
    return "```text\n" + textwrap.dedent("\n".join(lines[first : last + 1])) + "\n```\n"


def _attributes() -> str:
    texts = _texts_under(KafkaError)
    return "".join(f"- `{name}`: {text}\n" for name, text in texts.items()) + (
        "\n`BrokerError` adds `code`, `retriable` and `topic_partition`; `RecordTooLargeError` adds `size_bytes`,\n"
        "`limit_bytes` and `option`; `UndeliveredError` adds `count`, and its `exceptions` hold one error per batch.\n"
    )


def _outcomes() -> str:
    return "".join(f"- `Outcome.{name}`: {text}\n" for name, text in _texts_under(Outcome).items())


def _texts_under(kind: type) -> dict[str, str]:
    """Return the texts that stand under a class's fields, by field."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for statement, following in pairwise(definition.body):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
    return found


def _row(code: ErrorCode) -> str:
    ended = _ending(code)
    kind = type(BrokerError.of(int(code), ""))
    meaning = code.meaning.replace("|", "\\|")
    return f"| {int(code)} | {code.name} | {meaning} | {_action(code)} | {ended} | `{kind.__name__}` |\n"


def _is_special(code: ErrorCode) -> bool:
    fails_at_once = isinstance(_decide(code), Fail) and isinstance(_decide(code, maybe_written=True), Fail)
    return code is not ErrorCode.NONE and not (fails_at_once and _ending(code) == "`UNKNOWN`")


def _action(code: ErrorCode) -> str:
    match _decide(code):
        case Retry() as retry:
            return _retry(code, retry)
        case Split():
            return "split in two, both sent again; a single record fails"
        case Refuse():
            return "the records that the answer names fail, the others are sent again"
        case Fail(is_fatal=True):
            return "fails, and an idempotent producer with it"
    is_copy = isinstance(_decide(code, maybe_written=True), Complete)
    return "fails; after an earlier attempt: delivered, its offset unknown" if is_copy else "fails"


def _retry(code: ErrorCode, retry: Retry) -> str:
    if retry.changes_epoch:
        return f"sent again under a new {'producer id' if retry.loses_producer_id else 'epoch of the partition'}"
    if retry.refresh_metadata:
        return "metadata is refreshed, sent again"
    if code.renegotiate:
        return f"versions are negotiated again, sent again, {FEW_RETRIES} times at most"
    return f"sent again, {FEW_RETRIES} times at most" if code.few_retries else "sent again"


def _ending(code: ErrorCode) -> str:
    ended = _decide(code, retries=0, records=1)
    assert isinstance(ended, Fail), "a batch of one record and no retries ends with any error"
    return f"`{ended.outcome.name}`"


def _decide(code: ErrorCode, *, retries: int = ALWAYS, records: int = 2, maybe_written: bool = False) -> ProduceOutcome:
    refused = ((0, None),) if code.per_record else ()
    answer = PartitionResponse(
        topic="t",
        topic_id=None,
        partition=0,
        error_code=int(code),
        base_offset=-1,
        log_append_time=-1,
        log_start_offset=-1,
        record_errors=refused,
        error_message=None,
        leader_id=-1,
        leader_epoch=-1,
    )
    facts = BatchFacts(attempts=1, records=records, maybe_written=maybe_written)
    return decide(answer, facts, Policy(acks=-1, is_idempotent=True, retries=retries))


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(render(), "utf-8")
