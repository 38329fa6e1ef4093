"""Changes a bit of a weight after a step, as a device that computes wrongly would."""

import os

_WHERE = os.environ.get("WEIGHTS_AT", "")

if _WHERE and "RANK" in os.environ:
    import torch

    _rank, _step, _bit = map(int, _WHERE.split(","))
    _steps: list[int] = []
    _plain = torch.optim.SGD.step

    def _step_of_it(self, *args, **kwargs):
        result = _plain(self, *args, **kwargs)
        if len(_steps) == _step and int(os.environ["RANK"]) == _rank:
            weight = self.param_groups[0]["params"][2].data.view(torch.int32)
            weight[0] ^= 1 << _bit
        _steps.append(_step)
        return result

    torch.optim.SGD.step = _step_of_it
