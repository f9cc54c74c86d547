from typing import Any

import numpy as np
import numpy.typing as npt
import torch

def as_tensor(array: npt.NDArray[Any]) -> torch.Tensor: ...
def as_array(tensor: torch.Tensor) -> npt.NDArray[np.float32]: ...
