"""The offline interface with the real models."""

import copy
import importlib.metadata
import io
import math
import os
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pagemill
from pagemill.config import ConfigError
from pagemill.engine.llm import LLM
from pagemill.engine.outputs import EngineError, TokenLogprobs
from pagemill.engine.progress_bar import ProgressBar
from pagemill.engine.sampling import SamplingParams
from pagemill.inputs.io_processor import GROUP
from pagemill.inputs.task import Pooled
from pagemill.render.errors import RenderError

SMOLLM2 = os.environ.get("PAGEMILL_TEST_SMOLLM2_GGUF", "")
MINILM = os.environ.get("PAGEMILL_TEST_MINILM_DIR", "")

needs_smollm2 = pytest.mark.skipif(not SMOLLM2, reason="PAGEMILL_TEST_SMOLLM2_GGUF is not set")
needs_minilm = pytest.mark.skipif(not MINILM, reason="PAGEMILL_TEST_MINILM_DIR is not set")
GREEDY = SamplingParams(temperature=0.0, max_tokens=8)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with pagemill.LLM(SMOLLM2, max_model_len=256, max_num_seqs=4, max_num_queued_reqs=4) as loaded:
        yield loaded


@needs_smollm2
def test_generate_takes_text_ids_and_lists(llm: LLM) -> None:
    text = "The capital of France is"
    (one,) = llm.generate(text, GREEDY)
    assert "Paris" in one.choices[0].text
    assert one.choices[0].finish_reason == "length"
    (by_ids,) = llm.generate(one.prompt_token_ids, GREEDY)
    assert by_ids.choices == one.choices
    # More than the engine's queue holds; order is the prompts'.
    prompts = [text, one.prompt_token_ids, "Once upon a time"] * 10
    many = llm.generate(prompts, GREEDY)
    assert [o.choices[0].text for o in many[:2]] == [one.choices[0].text] * 2
    assert len(many) == 30
    assert many[2].choices[0].text == many[29].choices[0].text != one.choices[0].text


@needs_smollm2
def test_chat(llm: LLM) -> None:
    question = [{"role": "user", "content": "What is the capital of France?"}]
    (one,) = llm.chat(question, temperature=0.0)
    assert "Paris" in one.choices[0].text
    assert one.choices[0].finish_reason == "stop"
    several = llm.chat([question, question], temperature=0.0)
    assert [o.choices[0].text for o in several] == [one.choices[0].text] * 2


@needs_smollm2
def test_what_a_chat_template_writes_beside_messages(llm: LLM) -> None:
    question = [{"role": "user", "content": "What is the capital of France?"}]

    def prompt(**more: Any) -> str:
        (output,) = llm.chat(question, max_tokens=1, **more)
        return llm.renderer.decode(output.prompt_token_ids, skip_special_tokens=False)

    plain = prompt()
    tool = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
    assert "look_up" in prompt(tools=[tool]) and "look_up" not in plain
    assert plain == prompt(add_generation_prompt=False) + "<|im_start|>assistant\n"
    with pytest.raises(RenderError, match="chat_template_kwargs may not set messages"):
        prompt(chat_template_kwargs={"messages": []})
    begun = [*question, {"role": "assistant", "content": "The capital of France is"}]
    (rest,) = llm.chat(begun, GREEDY, add_generation_prompt=False, continue_final_message=True)
    assert rest.choices[0].text.startswith(" Paris")
    with pytest.raises(RenderError, match="exclude each other"):
        llm.chat(begun, GREEDY, continue_final_message=True)
    streamed = "".join(llm.stream_chat(question, GREEDY, tools=[tool]))
    assert streamed == llm.chat(question, GREEDY, tools=[tool])[0].choices[0].text


@needs_smollm2
def test_streams_are_the_same_texts_in_pieces(llm: LLM) -> None:
    prompt = "The capital of France is"
    pieces = list(llm.stream(prompt, GREEDY))
    assert len(pieces) > 1
    (whole,) = llm.generate(prompt, GREEDY)
    assert "".join(pieces) == whole.choices[0].text
    question = [{"role": "user", "content": "What is the capital of France?"}]
    (answer,) = llm.chat(question, temperature=0.0, stop=("Paris",))
    streamed = "".join(llm.stream_chat(question, temperature=0.0, stop=("Paris",)))
    assert streamed == answer.choices[0].text
    with pytest.raises(EngineError, match="`n` must be 1"):
        llm.stream(prompt, n=2, temperature=1.0)
    left = llm.stream(prompt, temperature=0.0, max_tokens=200)
    next(left)
    left.close()
    (again,) = llm.generate(prompt, GREEDY)
    assert again.choices == whole.choices
    assert llm.stats().num_running == 0


@needs_smollm2
def test_n_stop_and_logprobs(llm: LLM) -> None:
    (out,) = llm.generate("1, 2, 3,", n=3, seed=5, max_tokens=20, stop=("5",), logprobs=2)
    for choice in out.choices:
        assert "5" not in choice.text
        assert choice.logprobs is not None
        assert len(choice.logprobs) == len(choice.token_ids)
        assert (choice.finish_reason, choice.stop_reason) in (("stop", "5"), ("length", None))
    assert any(choice.stop_reason == "5" for choice in out.choices)
    (scored,) = llm.generate("one two three", max_tokens=1, prompt_logprobs=1)
    assert scored.prompt_logprobs is not None
    assert len(scored.prompt_logprobs) == len(scored.prompt_token_ids) - 1


@needs_smollm2
def test_what_is_reported_of_tokens(llm: LLM) -> None:
    fields: dict[str, Any] = {"temperature": 0.5, "top_k": 3, "top_p": 1.0}
    fields |= {"max_tokens": 1, "seed": 1}

    def report(model: LLM = llm, **more: Any) -> TokenLogprobs:
        (out,) = model.generate("The capital of France is", **fields, **more)
        reports = out.choices[0].logprobs
        assert reports is not None
        return reports[0]

    raw = report(logprobs=5)
    logits = report(logprobs=5, logprobs_mode="raw_logits")
    shift = logits.logprob - raw.logprob
    assert [token for token, _ in logits.top] == [token for token, _ in raw.top]
    assert [v for _, v in logits.top] == pytest.approx([v + shift for _, v in raw.top], abs=1e-4)
    processed = report(logprobs=5, logprobs_mode="processed_logprobs")
    values = [value for _, value in processed.top]
    assert sum(math.exp(value) for value in values[:3]) == pytest.approx(1, abs=1e-5)
    assert values[3:] == [-math.inf] * 2
    assert values[0] - values[1] == pytest.approx(2 * (raw.top[0][1] - raw.top[1][1]), abs=1e-4)
    wanted = [raw.top[2], raw.top[0]]
    chosen = report(logprob_token_ids=[token for token, _ in wanted])
    assert chosen.token_id == raw.token_id == processed.token_id
    assert [token for token, _ in chosen.top] == [token for token, _ in wanted]
    assert [v for _, v in chosen.top] == pytest.approx([v for _, v in wanted], abs=1e-5)
    with pytest.raises(EngineError, match="logprob_token_ids"):
        report(logprob_token_ids=[10**6])
    with LLM(SMOLLM2, max_model_len=256, max_num_seqs=1, logprobs_mode="processed_logits") as other:
        ((_, own),) = report(other, logprobs=1).top
        assert own == pytest.approx(2 * logits.top[0][1], abs=1e-3)


@needs_smollm2
def test_each_prompt_has_its_sampling(llm: LLM) -> None:
    prompts = ["The capital of France is", "Once upon a time", "One, two, three,"]
    own = [
        SamplingParams(temperature=0.0, max_tokens=3, logprobs=1),
        SamplingParams(seed=7, max_tokens=5, n=3),
        SamplingParams(temperature=0.0, max_tokens=4, stop=(" five",)),
    ]
    together = llm.generate(prompts, own)
    alone = [llm.generate(prompt, each)[0] for prompt, each in zip(prompts, own, strict=True)]
    assert [len(output.choices) for output in together] == [1, 3, 1]
    for one, other in zip(together, alone, strict=True):
        assert one.prompt_token_ids == other.prompt_token_ids
        assert [c.token_ids for c in one.choices] == [c.token_ids for c in other.choices]
        assert [c.text for c in one.choices] == [c.text for c in other.choices]
    first, _, last = together
    assert first.choices[0].logprobs is not None and last.choices[0].logprobs is None
    assert last.choices[0].stop_reason == " five"

    ids = llm.enqueue(prompts[:2], own[:2])
    assert [len(o.choices[0].token_ids) for o in llm.wait_for_completion(ids)] == [3, 5]
    chats = [[{"role": "user", "content": "Hi"}]] * 2
    answers = llm.chat(chats, own[:2])
    assert [len(answer.choices) for answer in answers] == [1, 3]
    with pytest.raises(EngineError, match="2 entries for 3 prompts: give one for each"):
        llm.generate(prompts, own[:2])
    with pytest.raises(EngineError, match=r"`temperature`|temperature is -1"):
        llm.generate(prompts, [*own[:2], SamplingParams(temperature=-1.0)])
    with pytest.raises(TypeError, match="not both"):
        llm.generate(prompts, own, max_tokens=3)


@needs_smollm2
def test_prompts_and_fields_as_programs_have_them(llm: LLM) -> None:
    text = "The capital of France is"
    (wanted,) = llm.generate(text, GREEDY)
    ids = wanted.prompt_token_ids
    for prompt in (np.asarray(ids), {"prompt": text}, {"prompt_token_ids": ids}):
        assert llm.generate(prompt, GREEDY) == [wanted]  # pyright: ignore[reportArgumentType]
        assert llm.generate([prompt, text], GREEDY) == [wanted, wanted]  # pyright: ignore[reportArgumentType]
    (same,) = llm.generate(text, temperature=np.float32(0), max_tokens=np.int64(8))
    assert same.choices == wanted.choices
    (stopped,) = llm.generate(text, temperature=0, stop=" Paris")
    assert stopped.choices[0].stop_reason == " Paris"


@needs_smollm2
def test_outputs_are_pickled_and_copied(llm: LLM) -> None:
    (output,) = llm.generate("The", temperature=0.0, max_tokens=2, logprobs=2, prompt_logprobs=0)
    for again in (pickle.loads(pickle.dumps(output)), copy.deepcopy(output)):
        assert repr(again) == repr(output)
        assert again.choices[0].logprobs[0].top == output.choices[0].logprobs[0].top
    assert "TokenLogprobs(token_id=" in repr(output)


@needs_smollm2
def test_a_forked_process_is_refused(llm: LLM) -> None:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            llm.generate("a", GREEDY)
        except EngineError as error:
            status = 0 if "forked after the model was loaded" in error.message else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert llm.generate("a", GREEDY)


@needs_smollm2
def test_an_output_that_repeats_itself_ends(llm: LLM) -> None:
    (out,) = llm.generate(
        "one",
        temperature=0.0,
        max_tokens=50,
        logit_bias={5000: 100.0},
        repetition_detection=pagemill.RepetitionDetectionParams(max_pattern_size=3, min_count=4),
    )
    (choice,) = out.choices
    assert choice.token_ids == [5000] * 4
    assert (choice.finish_reason, choice.stop_reason) == ("repetition", "repetition_detected")


@needs_smollm2
def test_refusals_leave_the_engine_usable(llm: LLM) -> None:
    with pytest.raises(EngineError, match="256"):
        llm.generate(["fine", "word " * 400])
    with pytest.raises(EngineError, match="temperature"):
        llm.generate("x", temperature=-1.0)
    with pytest.raises(TypeError, match="not both"):
        llm.generate("x", GREEDY, max_tokens=3)
    with pytest.raises(TypeError, match="`sampling` is a SamplingParams, not a dict"):
        llm.generate("a", {"max_tokens": 4})  # pyright: ignore[reportArgumentType]
    with pytest.raises(EngineError, match="`messages` is a list of"):
        llm.chat("x")  # pyright: ignore[reportArgumentType]
    with pytest.raises(EngineError, match="texts or lists of token ids, not int"):
        llm.generate(5)  # pyright: ignore[reportArgumentType]
    for prompts, words in (
        (["a", 5], r"`prompts\[1\]` is int; a prompt is a text or a list"),
        (["a", [1, "b"]], r"`prompts\[1\]` holds str"),
        ([[1.5]], r"`prompts\[0\]` holds float"),
        (b"abc", "not bytes"),
        ({"prompt": "a", "multi_modal_data": {}}, "media are arguments: images"),
    ):
        with pytest.raises(EngineError, match=words) as caught:
            llm.generate(prompts)  # pyright: ignore[reportArgumentType]
        assert caught.value.code == "INVALID_ARGUMENT"
    for fields, words in (
        ({"temperature": "hot"}, "`temperature` is 'hot': expected `float | null`, got `str`"),
        ({"max_tokens": "3"}, "`max_tokens` is '3': expected `int"),
        ({"seed": 1.5}, "`seed` is 1.5: expected `int"),
        ({"stop": 3}, "`stop` is 3: expected `array`"),
        ({"logit_bias": {"a": 1}}, "`logit_bias` is .*: expected `int`, got `str`"),
    ):
        with pytest.raises(EngineError, match=words):
            llm.generate("a", **fields)
    with pytest.raises(EngineError):
        llm.embed("x")
    assert len(llm.generate("Still there?", GREEDY)) == 1


def test_unknown_options_are_refused_before_anything_is_loaded() -> None:
    with pytest.raises(ConfigError, match="max-model-len"):
        LLM("nowhere", max_model_length=5)


@needs_minilm
def test_embed() -> None:
    path = Path(MINILM)
    with LLM(str(path.parent if path.is_file() else path)) as llm:
        texts = ["someone is eating food", "a man eats bread", "the stock market fell today"]
        vectors = llm.embed(texts)
        assert vectors.shape == (3, 384) and vectors.dtype == np.float32
        assert vectors[0] @ vectors[1] > 0.5 > 0.2 > vectors[0] @ vectors[2]
        with pytest.raises(EngineError):
            llm.embed("word " * 1000)
        with pytest.raises(EngineError, match="io_processor_plugin"):
            llm.encode_data({})


class _Pairs:
    """A plugin that compares two texts."""

    def __init__(self, pooled: Pooled) -> None:
        assert pooled.width == 384

    def parse_data(self, data: Any) -> list[str]:
        return [data["a"], data["b"]]

    def pre_process(self, parsed: list[str], request_id: str) -> list[str]:
        return parsed

    def post_process(self, parsed: list[str], rows: Sequence[np.ndarray], request_id: str) -> Any:
        return {"texts": parsed, "likeness": float(rows[0] @ rows[1])}


@needs_minilm
def test_a_plugin_reads_data(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = importlib.metadata.EntryPoint("pairs", f"{__name__}:_Pairs", GROUP)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry])
    path = Path(MINILM)
    folder = str(path.parent if path.is_file() else path)
    with LLM(folder, io_processor_plugin="pairs") as llm:
        answer = llm.encode_data({"a": "a man eats bread", "b": "a man eats bread"})
        assert answer["texts"] == ["a man eats bread"] * 2
        assert answer["likeness"] == pytest.approx(1, abs=1e-5)


def test_progress_bar_is_for_terminals() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, drawn in ((io.StringIO(), False), (Terminal(), True)):
        bar = ProgressBar(2, stream)
        bar.add(tokens=5, finished=True)
        bar.add(tokens=5, finished=True)
        bar.close()
        assert ("2/2" in stream.getvalue()) == drawn
