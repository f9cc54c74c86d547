"""Answers a conversation of two turns, printing the second answer as it is written.

python chat.py [MODEL]
"""

import sys

from pagemill import LLM


def main(model: str | None = None) -> None:
    with LLM(model, max_model_len=1024) as llm:
        messages = [{"role": "user", "content": "What is the capital of France?"}]
        (output,) = llm.chat(messages, temperature=0, max_tokens=40)
        answer = output.choices[0].text
        print(answer)
        messages += [
            {"role": "assistant", "content": answer},
            {"role": "user", "content": "And what is it known for?"},
        ]
        for piece in llm.stream_chat(messages, temperature=0, max_tokens=60):
            print(piece, end="", flush=True)
        print()


if __name__ == "__main__":
    main(*sys.argv[1:])
