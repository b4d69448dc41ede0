"""The verdict of the demo of transactions in words; 60 columns hold every line."""

from collections.abc import Iterator

from aioproducer.cli.demonstration.transfers.orders import ACCOUNTS, BALANCE
from aioproducer.cli.demonstration.transfers.show import TransferVerdict


def transfer_lines(verdict: TransferVerdict) -> Iterator[str]:
    """The verdict as text, its first line the sentence that counts."""
    report = verdict.report
    yield _sentence(verdict)
    yield f"  orders     {report.orders:>9,}"
    yield f"  done once  {report.done:>9,}"
    yield f"  half done  {report.torn:>9,}"
    yield f"  twice      {report.doubled:>9,}"
    yield f"  sum        {report.total:>9,}  of {ACCOUNTS} accounts with {BALANCE:,} each"
    yield f"  added up   {report.cuts:>9,}  times by aiokafka, {report.wrong_cuts:,} wrong"
    if verdict.worker_back_after_s is None:
        yield "  the worker was not killed"
    else:
        yield f"  worker killed; back at work after {verdict.worker_back_after_s:.1f} s"
    yield "  no broker was killed" if verdict.broker is None else f"  broker {verdict.broker} killed"


def _sentence(verdict: TransferVerdict) -> str:
    if verdict.holds:
        return "PASSED: every order once, and the sum was constant."
    if not verdict.report.holds:
        return "FAILED: the ledger does not add up, or is not complete."
    return "FAILED: the worker or a broker was not killed."
