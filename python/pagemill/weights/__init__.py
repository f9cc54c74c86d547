"""Model weights on disk: GGUF files and safetensors directories, mapped rather than copied."""

from pagemill.weights.errors import MissingTensorError, WeightsError
from pagemill.weights.gguf import GgufFile
from pagemill.weights.location import TensorLocation
from pagemill.weights.source import ModelSource

__all__ = ["GgufFile", "MissingTensorError", "ModelSource", "TensorLocation", "WeightsError"]
