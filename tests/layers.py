"""The layers of the package, as the contract in pyproject.toml has them."""

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"


def layers() -> list[list[str]]:
    contracts = tomllib.loads(PYPROJECT.read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (contract,) = (contract for contract in contracts if contract["id"] == "layers")
    return [re.findall(r"\w+", layer) for layer in contract["layers"]]


def layers_above(module: str) -> set[str]:
    found = layers()
    own = next(index for index, layer in enumerate(found) if module in layer)
    return {name for layer in found[:own] for name in layer}


def layers_below(module: str) -> set[str]:
    found = layers()
    own = next(index for index, layer in enumerate(found) if module in layer)
    return {name for layer in found[own + 1 :] for name in layer}
