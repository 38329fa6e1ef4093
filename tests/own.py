"""The signature of one's own that the README shows.

Tests of signatures beside the shipped ones share it: the catalog is compiled with it once a run.
"""

from pathlib import Path

_README = Path(__file__).parents[1] / "README.md"
README_ENTRY = _README.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
LINE = "[rank3]: token store a not mounted\n"
