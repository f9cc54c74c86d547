"""The encoder of audio of Qwen3-Omni: that of Qwen3-ASR, whose embeddings are nothing behind the
first layer, where those of images are added to the results of several (qwen3_vl_vision.py).

Weights: `audio_tower.` (qwen3_audio_encoder.py) with `proj1` and `proj2`; all may be behind
`model.`, and behind `thinker.` (omni_thinker.py).
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.models.audio.log_mel import HOP
from pagemill.models.audio.qwen3_audio_encoder import Qwen3AudioEncoder
from pagemill.models.base import Config, EncoderInputs, MediaPart, MediaTraits
from pagemill.models.config_keys import Defaults, inner_config
from pagemill.models.multimodal.decoder_part import parts_weights
from pagemill.models.multimodal.omni_thinker import thinker_weights
from pagemill.ops.trace import Tensor

_LEAST_SAMPLES = 2 * HOP
# Those of the configuration's class: published checkpoints may leave some out.
_ENCODER = {
    "num_mel_bins": 128,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "d_model": 1280,
    "n_window": 50,
    "n_window_infer": 800,
    "downsample_hidden_size": 480,
}


class Qwen3OmniAudioEncoder:
    """That of one thinker with `hidden` features. Its embeddings have `width` elements: those, and
    zeros for each of the layers that images have others for."""

    def __init__(self, thinker: Config, placeholder: int, hidden: int, width: int) -> None:
        audio = Defaults(inner_config(thinker, "audio_config"), _ENCODER)
        self._encoder = Qwen3AudioEncoder(audio, hidden, fills_chunks=False)
        self._parts = width // hidden
        self.traits: MediaTraits = replace(self._encoder.traits(placeholder), width=width)

    def layout(self, audio: PreparedMedia) -> list[MediaPart]:
        """Samples [samples] as an item for each window."""
        samples = audio.values
        if samples.ndim != 1 or len(samples) < _LEAST_SAMPLES:
            raise ValueError(
                f"audio of this model must be [samples], at least {_LEAST_SAMPLES} of them, got"
                f" {list(samples.shape)}"
            )
        return [*self._encoder.items(samples)]

    def features(self, audio: PreparedMedia) -> MediaFeatures:
        """Audio of one window."""
        (item,) = self._encoder.items(audio.values)
        return item

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        thinker = parts_weights(thinker_weights(weights), "audio_tower.conv2d1.weight")
        tower = thinker.within("audio_tower.")
        x = self._encoder.embeddings(tower, tower, ("proj1", "proj2"), inputs)
        return ops.concat(x, *[ops.scale(x, 0.0)] * (self._parts - 1)) if self._parts > 1 else x
