"""Ranks texts by how near their vectors are to that of a query.

    python embeddings.py MODEL

MODEL is one that embeds, such as the folder of sentence-transformers/all-MiniLM-L6-v2.
"""

import sys

from pagemill import LLM

QUERY = "Someone is eating."
TEXTS = ["A man eats bread.", "The stock market fell today.", "It will rain tomorrow."]


def main(model: str) -> None:
    with LLM(model) as llm:
        vectors = llm.embed([QUERY, *TEXTS])  # float32 [texts, width], of length 1
        likeness = vectors[1:] @ vectors[0]
        for index in likeness.argsort()[::-1]:
            print(f"{likeness[index]:.3f} {TEXTS[index]}")


if __name__ == "__main__":
    main(sys.argv[1])
