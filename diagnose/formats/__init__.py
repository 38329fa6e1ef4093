"""What other programs write, as rows with samples, and the tables made of them."""

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def data(name: str) -> Any:
    """A file of JSON of this folder, also from the archive that a node is sent."""
    loader: Any = __spec__.loader
    return json.loads(loader.get_data(str(Path(__file__).parent / f"{name}.json")))
