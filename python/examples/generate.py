"""Continues several prompts at once, in this process.

    python generate.py [MODEL]

MODEL is a GGUF file, a folder of safetensors or a name on the hub; default: a small model that is
fetched once.
"""

import sys

from pagemill import LLM, SamplingParams

PROMPTS = ["The capital of France is", "Water boils at", "The opposite of cold is"]


def main(model: str | None = None) -> None:
    with LLM(model, max_model_len=512) as llm:
        sampling = SamplingParams(temperature=0, max_tokens=12)
        for prompt, output in zip(PROMPTS, llm.generate(PROMPTS, sampling), strict=True):
            print(f"{prompt!r} -> {output.choices[0].text!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
