"""Block formats are expanded as the `gguf` package expands them."""

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize as gguf_dequantize

from pagemill.tensor.dtypes import BLOCK_DTYPES, DTYPES
from pagemill.weights.dequantize import dequantize

FORMATS = sorted(BLOCK_DTYPES)


@pytest.mark.parametrize("dtype", FORMATS)
def test_random_blocks(dtype: str):
    # Any bytes are a block; 301 of them hold scales of every kind, infinities and NaN included.
    rng = np.random.default_rng(3)
    data = rng.integers(0, 256, (301, DTYPES[dtype].block_bytes), dtype=np.uint8)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = gguf_dequantize(data, gguf.GGMLQuantizationType[dtype.upper()])
        actual = dequantize(dtype, data)
    assert actual.dtype == np.float32 and actual.shape == (301 * DTYPES[dtype].block_elements,)
    np.testing.assert_array_equal(actual, expected.reshape(-1))


def test_unknown_format():
    with pytest.raises(ValueError, match="q8_k is not a block format; known: iq1_m, iq1_s"):
        dequantize("q8_k", np.zeros(292, np.uint8))
