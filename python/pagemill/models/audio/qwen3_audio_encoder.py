"""The encoder of audio of Qwen3-Omni and Qwen3-ASR: convolutions of chunks of log-mel frames, and
Whisper's layers on windows of several chunks.

Weights: those of mel_grid_convolutions.py, `layers` (whisper_encoder.py, with a bias of `k_proj`)
and `ln_post`; and two linear layers, whose names models know.
"""

from __future__ import annotations

import numpy as np

from pagemill import ops
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.audio.log_mel import log_mel
from pagemill.models.audio.mel_grid_convolutions import MelGridConvolutions
from pagemill.models.audio.whisper_encoder import MOST_VECTORS, WhisperEncoder, sinusoids
from pagemill.models.base import Config, EncoderInputs, MediaTraits, ModelConfigError
from pagemill.models.config_keys import activation, positive_int
from pagemill.ops.trace import Tensor

# That a step encodes together. A token has values of 64 frequencies and 480 channels, so that
# products have thousands of rows in one window already.
_STEP_WINDOWS = 2


class Qwen3AudioEncoder:
    """One encoder for a language model with `width` features. The last chunk of audio is filled up
    with zeros; audio shorter than a chunk only if `fills_chunks`."""

    def __init__(self, config: Config, width: int, *, fills_chunks: bool) -> None:
        self._layers = WhisperEncoder(config, key_bias=True)
        self._fills_chunks = fills_chunks
        self._chunk = 2 * positive_int(config, "n_window")  # frames
        self._chunks = positive_int(config, "n_window_infer") // self._chunk  # of a window
        self._width = width
        if positive_int(config, "output_dim", width) != width:
            raise ModelConfigError(
                f"audio_config has the output_dim {config['output_dim']}; the language model has"
                f" {width} features"
            )
        self._activation = activation(config, "activation_function", "gelu")
        self._convolutions = MelGridConvolutions(
            self._layers.bins,
            positive_int(config, "downsample_hidden_size"),
            self._layers.hidden_size,
        )
        self._most = self._chunks * self._convolutions.vectors(self._chunk)  # of a window
        if not 0 < self._most <= MOST_VECTORS:
            raise ModelConfigError(
                "n_window_infer of audio_config must be at least twice its n_window, and at most"
                f" {MOST_VECTORS} vectors"
            )

    def traits(self, placeholder: int) -> MediaTraits:
        """Those of audio of any length."""
        return MediaTraits(
            rows=1,
            channels=self._convolutions.channels,
            tokens=1,
            width=self._width,
            placeholders={"audio": placeholder},
            any_size=True,
            most_tokens=self._most,
            step_rows=_STEP_WINDOWS * self._most,
        )

    def items(self, samples: np.ndarray) -> list[MediaFeatures]:
        """Samples [n] of at least two frames as an item for each window."""
        mel = log_mel(samples, self._layers.bins)
        frames = mel.shape[1]
        chunk = self._chunk if self._fills_chunks else min(frames, self._chunk)
        window = self._chunks * chunk
        return [self._item(mel[:, at : at + window], chunk) for at in range(0, frames, window)]

    def embeddings(
        self, tower: Weights, projector: Weights, names: tuple[str, str], inputs: EncoderInputs
    ) -> Tensor:
        """A vector for each token, behind the two linear layers `names` of `projector`: [T,
        width]."""
        hidden = self._layers.hidden_size
        x = self._convolutions.output(tower, inputs.media.rows)
        waves = sinusoids(self._convolutions.vectors(self._chunk), hidden)
        table = tower.constant("positions", np.tile(waves, (self._chunks, 1)).tolist())
        x = self._layers.layered(tower, ops.add(x, ops.embedding(inputs.positions, table)))
        x = self._layers.normalized(tower, x, "ln_post")
        x = linear(projector, names[0], x, (hidden,), bias=True)
        x = ops.activation(x, self._activation)
        return linear(projector, names[1], x, (self._width,), bias=True)

    def _item(self, mel: np.ndarray, chunk: int) -> MediaFeatures:
        """The frames of a window [bins, n]; those that fill up its last chunk have no tokens."""
        whole, rest = divmod(mel.shape[1], chunk)
        vectors = self._convolutions.vectors
        tokens = whole * vectors(chunk) + vectors(rest)
        filled = np.pad(mel, ((0, 0), (0, -rest % chunk)))
        rows = self._convolutions.features(filled, chunk)[:tokens]
        return MediaFeatures(rows, tokens)
