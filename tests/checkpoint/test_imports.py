import os
import pickle
import re
import subprocess
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from diagnose.checkpoint.contents import DamagedError, check_imports
from diagnose.checkpoint.find import inspect
from tests.checkpoint.make.base import torch_file, write


class Runs:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], self.call[1:]


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize(
    ("call", "name"),
    [
        ((os.system, "touch x"), "system"),
        ((subprocess.Popen, "x"), "Popen"),
        ((eval, "1"), "eval"),
        ((exec, "1"), "exec"),
    ],
)
def test_what_runs_code_is_named(call: Any, name: str, protocol: int) -> None:
    data = pickle.dumps({"state": [Runs(*call)]}, protocol)
    with pytest.raises(DamagedError, match=f"{re.escape(name)}, which no checkpoint needs"):
        check_imports(data)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_plain_states_pass(protocol: int) -> None:
    state = OrderedDict(os="linux", cos="x", note="c os\nsystem, subprocess, eval", step=1)
    check_imports(pickle.dumps([state, {1}, Path("a"), getattr, bytearray(b"cos\n")], protocol))


def test_a_torch_file_that_runs_a_command(tmp_path: Path) -> None:
    data = pickle.dumps(Runs(os.system, f"touch {tmp_path}/hacked"), 2)
    write(tmp_path / "model.pt", torch_file(pickled=data), 1.0)
    found = inspect([str(tmp_path)]).checkpoints[0]
    assert found.state == "corrupt"
    assert "loading it may run code" in found.reasons[0]
    assert not (tmp_path / "hacked").exists()
