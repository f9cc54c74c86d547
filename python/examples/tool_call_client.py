"""Has the model call a function, and answer with what it returned, with OpenAI's client.

pagemill serve &
python tool_call_client.py [URL]
"""

import json
import sys
from typing import Any

from openai import OpenAI

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Returns the weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 20}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
]


def get_weather(city: str) -> dict[str, Any]:
    """A stand-in for a real service."""
    return {"city": city, "degrees": 21, "sky": "clear"}


def main(url: str = "http://127.0.0.1:8000") -> None:
    client = OpenAI(base_url=f"{url}/v1", api_key="none")
    model = client.models.list().data[0].id
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
    # "required" holds small models to a call; large ones decide with "auto".
    asked = client.chat.completions.create(
        model=model, messages=messages, tools=TOOLS, tool_choice="required", temperature=0
    )
    message = asked.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls or []:
        assert call.type == "function"
        result = get_weather(**json.loads(call.function.arguments))
        print(f"{call.function.name}({call.function.arguments}) -> {result}")
        messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
    answered = client.chat.completions.create(
        model=model, messages=messages, tools=TOOLS, tool_choice="none", max_tokens=80
    )
    print(answered.choices[0].message.content)


if __name__ == "__main__":
    main(*sys.argv[1:])
