"""Checks the cell in a folder: `python -m tests.programs.chaos.checker FOLDER`; writes FOLDER/verdict.json."""

import json
import sys
from pathlib import Path

from tests.programs.chaos.checker.cell_check import check_cell


def main() -> int:
    """0 if nothing was violated, 1 otherwise."""
    folder = Path(sys.argv[1])
    verdict = check_cell(folder)
    (folder / "verdict.json").write_text(json.dumps(verdict.as_json(), indent=1), "utf-8")
    for line in verdict.lines():
        print(line)
    return 0 if verdict.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
