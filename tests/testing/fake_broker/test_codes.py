"""The embedded cluster's own numbers of error codes are Kafka's, as the producer's table has them."""

import ast
from pathlib import Path

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.testing.fake_broker.wire import codes

MODEL = Path(codes.__file__).parents[1]
CODES = {name: value for name, value in vars(codes).items() if isinstance(value, int)}


def test_codes_are_those_of_the_producers_table() -> None:
    """The two tables are written independently and compared here."""
    assert {ErrorCode[name]: value for name, value in CODES.items()} == {
        ErrorCode[name]: ErrorCode[name] for name in CODES
    }


def test_no_other_file_of_the_model_writes_codes_down() -> None:
    files = [path for path in MODEL.rglob("*.py") if path.name != "codes.py"]
    assigned = {
        (path.name, target.id)
        for path in files
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }

    assert len(files) > 40
    assert [(file, name) for file, name in sorted(assigned) if name.lstrip("_") in ErrorCode.__members__] == []
