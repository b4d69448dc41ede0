"""All mutants, in the order in which they are tried."""

from typing import Final

from tests.programs.mutants.connections_and_records import CONNECTIONS_AND_RECORDS
from tests.programs.mutants.invariants import INVARIANTS
from tests.programs.mutants.mutant import Mutant
from tests.programs.mutants.published import PUBLISHED
from tests.programs.mutants.security import SECURITY
from tests.programs.mutants.transactions import TRANSACTIONS

MUTANTS: Final[tuple[Mutant, ...]] = (*PUBLISHED, *INVARIANTS, *CONNECTIONS_AND_RECORDS, *TRANSACTIONS, *SECURITY)
