"""Has the model write JSON that follows a schema, and one of several words.

python structured_output.py [MODEL]
"""

import json
import sys

from pagemill import LLM
from pagemill.structured import grammar

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "hobbies": {"type": "array", "items": {"enum": ["chess", "rowing"]}, "maxItems": 2},
    },
    "required": ["name", "age", "hobbies"],
    "additionalProperties": False,
}


def main(model: str | None = None) -> None:
    with LLM(model, max_model_len=1024) as llm:
        invent = [{"role": "user", "content": "Invent a person, as JSON."}]
        (output,) = llm.chat(invent, grammar=grammar.json_schema(PERSON), max_tokens=200)
        print(json.loads(output.choices[0].text))

        judge = [{"role": "user", "content": "Is 'I loved it' good or bad?"}]
        (output,) = llm.chat(judge, grammar=grammar.choice(["good", "bad"]), temperature=0)
        print(output.choices[0].text)


if __name__ == "__main__":
    main(*sys.argv[1:])
