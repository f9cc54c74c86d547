"""Asks a model about an image.

    python images.py MODEL IMAGE

MODEL is one that takes images (docs/images.md lists them); needs the extra `pagemill[images]`.
"""

import sys

from pagemill import LLM
from PIL import Image


def main(model: str, path: str) -> None:
    with LLM(model, max_model_len=4096) as llm, Image.open(path) as image:
        content = [
            {"type": "image", "image": image},
            {"type": "text", "text": "What is in this picture?"},
        ]
        (output,) = llm.chat([{"role": "user", "content": content}], max_tokens=100)
        print(output.choices[0].text)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
