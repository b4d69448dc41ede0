"""What databases say to those that make a table at the same time as others."""

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError

from aioproducer.outbox._check import is_creation_by_others


class DriverError(Exception):
    """An error of a driver, with its attributes."""

    def __init__(self, *args: object, **attributes: str) -> None:
        super().__init__(*args)
        vars(self).update(attributes)


@pytest.mark.parametrize(
    "cause",
    [
        DriverError("Relation »kafka_outbox« existiert bereits", sqlstate="42P07"),
        DriverError("tuple concurrently updated", pgcode="XX000"),
        DriverError({"C": "40P01", "M": "deadlock detected"}),
        DriverError(1050, "Tabelle 'kafka_outbox' bereits vorhanden"),
        DriverError(1213, "Deadlock found"),
        DriverError("table kafka_outbox already exists"),
    ],
)
def test_creation_by_others_is_told_by_codes(cause: DriverError) -> None:
    assert is_creation_by_others(OperationalError("CREATE TABLE", {}, cause))


def test_other_errors_are_not_creation_by_others() -> None:
    assert is_creation_by_others(IntegrityError("CREATE TABLE", {}, DriverError("pg_type_typname_nsp_index")))
    for cause in (DriverError("permission denied", sqlstate="42501"), DriverError(1044, "Access denied")):
        assert not is_creation_by_others(OperationalError("CREATE TABLE", {}, cause))
