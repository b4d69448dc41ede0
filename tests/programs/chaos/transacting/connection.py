"""How a process connects, as one argument: the servers, or a JSON object of options where there are more."""

import json
from collections.abc import Mapping


def connection_text(servers: str, options: Mapping[str, str]) -> str:
    return json.dumps({"bootstrap_servers": servers, **options}) if options else servers


def connection_options(text: str) -> dict[str, str]:
    """Return options of a `Producer`."""
    if not text.startswith("{"):
        return {"bootstrap_servers": text}
    options: dict[str, str] = json.loads(text)
    return options
