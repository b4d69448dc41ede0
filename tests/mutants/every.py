"""All mutants, in the order in which they are tried."""

from typing import Final

from tests.mutants.ends_and_edges import ENDS_AND_EDGES
from tests.mutants.listed import LISTED
from tests.mutants.mutant import Mutant
from tests.mutants.news_of_clusters import NEWS_OF_CLUSTERS
from tests.mutants.once_unseen import ONCE_UNSEEN
from tests.mutants.own_core import OWN_CORE
from tests.mutants.own_native import OWN_NATIVE
from tests.mutants.own_shell import OWN_SHELL
from tests.mutants.own_transactions import OWN_TRANSACTIONS
from tests.mutants.slow_but_right import SLOW_BUT_RIGHT
from tests.mutants.times_and_looks import TIMES_AND_LOOKS
from tests.mutants.unseen_at_zero import UNSEEN_AT_ZERO
from tests.mutants.unseen_in_corners import UNSEEN_IN_CORNERS
from tests.mutants.unseen_in_counts import UNSEEN_IN_COUNTS
from tests.mutants.unseen_in_endings import UNSEEN_IN_ENDINGS
from tests.mutants.unseen_in_pace import UNSEEN_IN_PACE
from tests.mutants.unseen_in_transactions import UNSEEN_IN_TRANSACTIONS
from tests.mutants.unseen_in_waits import UNSEEN_IN_WAITS
from tests.mutants.waiting_and_memory import WAITING_AND_MEMORY

MUTANTS: Final[tuple[Mutant, ...]] = (
    *LISTED,
    *OWN_CORE,
    *OWN_SHELL,
    *OWN_NATIVE,
    *OWN_TRANSACTIONS,
    *ONCE_UNSEEN,
    *UNSEEN_IN_TRANSACTIONS,
    *UNSEEN_IN_PACE,
    *WAITING_AND_MEMORY,
    *ENDS_AND_EDGES,
    *TIMES_AND_LOOKS,
    *NEWS_OF_CLUSTERS,
    *UNSEEN_IN_CORNERS,
    *UNSEEN_IN_COUNTS,
    *UNSEEN_IN_WAITS,
    *UNSEEN_AT_ZERO,
    *SLOW_BUT_RIGHT,
    *UNSEEN_IN_ENDINGS,
)
