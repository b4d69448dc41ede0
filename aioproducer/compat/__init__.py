"""Stand-ins for other producers, for a migration by one changed import.

    from aioproducer.compat import AIOKafkaProducer

Signatures, names and errors here are the other library's, so this needs it installed, as the extra `compat` does;
what sends is the `Producer`. Nothing of the rest of the package may depend on this.
"""

from aioproducer.compat.aiokafka.batches import BatchBuilder
from aioproducer.compat.aiokafka.producer import AIOKafkaProducer

__all__ = ["AIOKafkaProducer", "BatchBuilder"]
