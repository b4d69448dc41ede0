"""All mutants, in the order in which they are tried."""

from typing import Final

from tests.mutants.connections_and_records import CONNECTIONS_AND_RECORDS
from tests.mutants.invariants import INVARIANTS
from tests.mutants.mutant import Mutant
from tests.mutants.published import PUBLISHED
from tests.mutants.transactions import TRANSACTIONS

MUTANTS: Final[tuple[Mutant, ...]] = (*PUBLISHED, *INVARIANTS, *CONNECTIONS_AND_RECORDS, *TRANSACTIONS)
