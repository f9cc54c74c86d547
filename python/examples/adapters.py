"""Answers one prompt with a model as it is, and with a LoRA adapter.

    python adapters.py MODEL ADAPTER

ADAPTER is a folder in the format of PEFT, trained for MODEL.
"""

import sys

from pagemill import LLM

PROMPT = "The capital of France is"


def main(model: str, adapter: str) -> None:
    with LLM(model, max_model_len=512, lora_modules=[f"mine={adapter}"]) as llm:
        for name in ("", "mine"):
            (output,) = llm.generate(PROMPT, adapter=name, temperature=0, max_tokens=12)
            print(f"{name or 'the model'}: {output.choices[0].text!r}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
