"""Files of text, and PDF files, in chats, responses and messages, sent with the request or stored
before."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pagemill.render.errors import RenderError
from pagemill.render.pdf.testing.pdfs import pdf_of
from pagemill.render.pdf.wire import PdfText
from pagemill.render.stop import Stop
from pagemill.server import pdf_files
from pagemill.server.testing.batch_service import Service, key, service
from pagemill.server.testing.fake_server import FakeServer
from pagemill.server.text_files import MAX_FILES

NOTES = "name,size\né,1\n"
DATA = base64.b64encode(NOTES.encode()).decode()
PAGES = pdf_of("First page", "Second page")
PAGES_TEXT = "First page\n\nSecond page"
PDF = base64.b64encode(PAGES).decode()
DAMAGED = base64.b64encode(b"%PDF-1.7 ...").decode()
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Callable[[Service], Awaitable[None]]], None]:
    def run_service(body: Callable[[Service], Awaitable[None]]) -> None:
        async def main() -> None:
            async with service(tmp_path, num_workers=0) as client:
                await body(client)

        asyncio.run(main())

    return run_service


async def post(client: Service, path: str, status: int = 200, **fields: Any) -> Any:
    response = await client.request("POST", path, json=fields)
    assert response.status_code == status, response.text
    return response.json()


def shown(server: FakeServer) -> Any:
    """What the model was given as the contents of the last request's messages."""
    return [message["content"] for message in server.renderer.rendered[-1].messages]


def chat_of(**file: Any) -> dict[str, Any]:
    parts = [{"type": "text", "text": "Sum up:"}, {"type": "file", "file": file}]
    return {"messages": [{"role": "user", "content": parts}], "max_tokens": 2}


def response_of(**file: Any) -> dict[str, Any]:
    parts = [{"type": "input_text", "text": "Sum up:"}, {"type": "input_file", **file}]
    return {"input": [{"role": "user", "content": parts}], "max_output_tokens": 16}


def texts(*parts: str) -> list[Any]:
    return [[{"type": "text", "text": part} for part in parts]]


@pytest.mark.parametrize("url", ["", "data:text/csv;base64,"])
def test_files_in_requests(run: Any, url: str) -> None:
    async def body(client: Service) -> None:
        wanted = texts("Sum up:", f"a.csv\n{NOTES}")
        file = {"filename": "a.csv", "file_data": url + DATA}
        for path, fields in (
            (CHAT, chat_of(**file)),
            (f"{CHAT}/render", chat_of(**file)),
            (RESPONSES, response_of(**file)),
            (f"{RESPONSES}/render", response_of(**file)),
        ):
            client.server.renderer.rendered.clear()
            await post(client, path, **fields)
            assert shown(client.server) == wanted, path
        await post(client, "/tokenize", messages=chat_of(**file)["messages"])
        assert shown(client.server) == wanted
        several = chat_of(**file)
        several["messages"] = [several["messages"]] * 2
        await post(client, f"{CHAT}/batch", **several)
        assert shown(client.server) == wanted
        several["messages"] = [[{"role": "user", "content": "a"}], chat_of()["messages"]]
        refused = await post(client, f"{CHAT}/batch", 400, **several)
        assert refused["error"]["message"].startswith("Conversation 1: `messages[0].content[1]")
        await post(client, CHAT, **chat_of(file_data=url + DATA))
        assert shown(client.server) == texts("Sum up:", NOTES)

    run(body)


def test_stored_files(run: Any) -> None:
    async def body(client: Service) -> None:
        file = await client.upload(NOTES.encode(), purpose="user_data")
        assert file["purpose"] == "user_data"
        listed = await client.get("/v1/files?purpose=user_data")
        assert [each["id"] for each in listed["data"]] == [file["id"]]
        wanted = texts("Sum up:", f"{file['filename']}\n{NOTES}")
        for path, fields in (
            (CHAT, chat_of(file_id=file["id"])),
            (RESPONSES, response_of(file_id=file["id"])),
        ):
            await post(client, path, **fields)
            assert shown(client.server) == wanted
        refused = await client.create(file["id"], 400)
        assert refused["error"]["param"] == "input_file_id"
        await post(client, CHAT, 404, **chat_of(file_id="file-absent"))

    run(body)


def test_stored_files_have_the_bytes_of_a_body(run: Any) -> None:
    async def body(client: Service) -> None:
        most = client.server.state.config.max_body_bytes
        file = await client.upload(b"a" * (most + 1), purpose="user_data")
        refused = await post(client, CHAT, 400, **chat_of(file_id=file["id"]))
        assert "--max-body-bytes" in refused["error"]["message"]
        file = await client.upload(b"a" * 200, purpose="user_data")
        fields = chat_of(file_id=file["id"])
        fields["messages"] = [fields["messages"]] * (most // 200 + 1)
        refused = await post(client, f"{CHAT}/batch", 400, **fields)
        assert "--max-body-bytes" in refused["error"]["message"]

    run(body)


def test_stored_files_that_cannot_fit_are_not_kept(run: Any) -> None:
    async def body(client: Service) -> None:
        file = await client.upload(b"a" * 100, purpose="user_data")
        fields = chat_of(file_id=file["id"])
        await post(client, CHAT, **fields)
        client.server.renderer.rendered.clear()
        parts = fields["messages"][0]["content"]
        parts += [parts[1]] * 2
        refused = await post(client, CHAT, 400, **fields)
        assert "maximum context length is 256 tokens" in refused["error"]["message"]
        assert client.server.renderer.rendered == []

    run(body)


def test_files_of_a_request_are_bounded(run: Any) -> None:
    async def body(client: Service) -> None:
        fields = chat_of(file_data="")
        part = fields["messages"][0]["content"][1]
        fields["messages"] = [{"role": "user", "content": [part] * (MAX_FILES + 1)}]
        refused = await post(client, CHAT, 400, **fields)
        assert f"more than {MAX_FILES} files" in refused["error"]["message"]
        assert refused["error"]["param"] == "messages"

    run(body)


def test_files_are_of_their_key(tmp_path: Path) -> None:
    async def main() -> None:
        async with service(tmp_path, keys=[key("web"), key("app")], num_workers=0) as client:
            file = await client.upload(NOTES.encode(), purpose="user_data")
            await post(client, CHAT, 200, **chat_of(file_id=file["id"]))
            await post(client.of("app"), CHAT, 404, **chat_of(file_id=file["id"]))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ({"file_data": DAMAGED}, "it is damaged"),
        ({"file_data": f"data:application/pdf;base64,{DAMAGED}"}, "it is damaged"),
        ({"file_data": base64.b64encode(b"\xff\xfe").decode()}, "no text in UTF-8"),
        ({"file_data": base64.b64encode(b"a\0b").decode()}, "no text in UTF-8"),
        ({"file_data": "?"}, "does not hold base64"),
        ({"file_data": 5}, "must be a string"),
        ({"file_data": DATA, "filename": 5}, "must be a string"),
        ({"file_url": "http://a/b.txt"}, "nothing is fetched"),
        ({"file_data": DATA, "file_id": "file-a"}, "either"),
        ({}, "either"),
    ],
)
def test_files_that_are_refused(run: Any, file: dict[str, Any], sentence: str) -> None:
    async def body(client: Service) -> None:
        for path, fields, param in (
            (CHAT, chat_of(**file), "messages"),
            (RESPONSES, response_of(**file), "input"),
        ):
            error = (await post(client, path, 400, **fields))["error"]
            assert sentence in error["message"] and error["param"] == param, error

    run(body)


def test_pdf_files(run: Any) -> None:
    async def body(client: Service) -> None:
        file = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
        stored = await client.upload(PAGES, purpose="user_data")
        for name, sent in (("a.pdf", file), (stored["filename"], {"file_id": stored["id"]})):
            for path, fields in ((CHAT, chat_of(**sent)), (RESPONSES, response_of(**sent))):
                client.server.renderer.rendered.clear()
                await post(client, path, **fields)
                assert shown(client.server) == texts("Sum up:", f"{name}\n{PAGES_TEXT}")

    run(body)


def test_pdf_files_that_cannot_fit_are_not_kept(run: Any) -> None:
    async def body(client: Service) -> None:
        data = base64.b64encode(pdf_of("a" * 150)).decode()
        fields = chat_of(file_data=data)
        await post(client, CHAT, **fields)
        client.server.renderer.rendered.clear()
        fields["messages"][0]["content"] *= 2
        refused = await post(client, CHAT, 400, **fields)
        assert "maximum context length is 256 tokens" in refused["error"]["message"]
        assert client.server.renderer.rendered == []

    run(body)


def test_pdf_files_of_a_request_have_a_time_together(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed: list[float] = []

    def read_pages(data: bytes, max_cpu_s: float, stop: Stop) -> PdfText:
        allowed.append(max_cpu_s)
        return PdfText("a", 25.0)

    async def body(client: Service) -> None:
        monkeypatch.setattr(pdf_files, "read_pages", read_pages)
        fields = chat_of(file_data=PDF)
        part = fields["messages"][0]["content"][1]
        for path in (CHAT, f"{CHAT}/render"):
            fields["messages"] = [{"role": "user", "content": [part] * 3}]
            await post(client, path, **fields)
            assert allowed == [60, 35, 10]  # each request has its own
            allowed.clear()
        fields["messages"] = [{"role": "user", "content": [part] * 4}]
        refused = await post(client, CHAT, 400, **fields)
        assert "more than 60 s of processor time" in refused["error"]["message"]
        assert len(allowed) == 3

    run(body)


def test_few_pdf_files_wait(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf_files, "MAX_WAITING", 1)

    async def body(client: Service) -> None:
        begun, ends = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def read_pages(data: bytes, max_cpu_s: float, stop: Stop) -> PdfText:
            loop.call_soon_threadsafe(begun.set)
            assert ends.wait(60)
            return PdfText("a", 1.0)

        monkeypatch.setattr(pdf_files, "read_pages", read_pages)
        first = asyncio.create_task(post(client, CHAT, **chat_of(file_data=PDF)))
        await begun.wait()
        refused = await post(client, CHAT, 429, **chat_of(file_data=PDF))
        assert "wait for their PDF files" in refused["error"]["message"]
        await post(client, CHAT, **chat_of(file_data=DATA))  # others go on
        ends.set()
        await first
        await post(client, CHAT, **chat_of(file_data=PDF))

    run(body)


class SlowPdfs:
    """In place of `read_pages`: reads until it is stopped, or ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Semaphore(0)
        self.stopped = threading.Event()
        self.ends = threading.Event()
        monkeypatch.setattr(pdf_files, "read_pages", self._read)

    async def has_begun(self) -> None:
        """Waits until one more is being read."""
        while not self.begun.acquire(blocking=False):
            await asyncio.sleep(0.001)

    def _read(self, data: bytes, max_cpu_s: float, stop: Stop) -> PdfText:
        self.begun.release()
        while not stop.is_set():
            if self.ends.wait(0.001):
                return PdfText("a", 1.0)
        self.stopped.set()
        raise RenderError("its reader ended")


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_pdf_files_are_read_until_the_deadline(
    run: Any, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    document = {"type": "document", "source": {"type": "base64", "data": PDF}}
    fields = {
        CHAT: chat_of(file_data=PDF),
        MESSAGES: {"messages": [{"role": "user", "content": [document]}], "max_tokens": 2},
        RESPONSES: response_of(file_data=PDF),
    }[path]

    async def body(client: Service) -> None:
        slow = SlowPdfs(monkeypatch)
        refused = await post(client, path, 504, timeout=0.5, **fields)
        assert "`timeout`" in refused["error"]["message"]
        began = slow.begun.acquire(blocking=False)  # False: the machine was too slow for that
        assert slow.stopped.is_set() == began

    run(body)


def test_a_client_that_leaves_ends_its_pdf_files(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(client: Service) -> None:
        slow = SlowPdfs(monkeypatch)
        gone = asyncio.create_task(post(client, CHAT, **chat_of(file_data=PDF)))
        await slow.has_begun()
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        while not slow.stopped.is_set():
            await asyncio.sleep(0.001)

    run(body)


def test_pdf_files_of_one_tenant_do_not_hold_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pdf_files, "MAX_WAITING", 8)
    monkeypatch.setattr(pdf_files, "_PROCESSES", 2)

    async def main() -> None:
        keys = [key("a", tenant="a"), key("b", tenant="b")]
        async with service(tmp_path, keys=keys, num_workers=0) as client:
            slow = SlowPdfs(monkeypatch)
            a, b = client.of("a"), client.of("b")
            sent = [asyncio.create_task(posted(a)) for _ in range(8)]
            await slow.has_begun()
            await slow.has_begun()
            other = asyncio.create_task(posted(b))
            await slow.has_begun()  # the third is b's: two threads are all that a gets
            await asyncio.wait(sent, return_when=asyncio.FIRST_COMPLETED)
            slow.ends.set()
            assert await other == 200
            answers = await asyncio.gather(*sent)
            assert sorted(answers) == [200] * 7 + [429]

    asyncio.run(main())


async def posted(client: Service) -> int:
    """The status of a chat with a PDF file."""
    response = await client.request("POST", CHAT, json=chat_of(file_data=PDF))
    return response.status_code


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (CHAT, {"top_logprobs": 2}),
        (CHAT, {"tools": [{"type": "function"}]}),
        (f"{CHAT}/batch", {"top_logprobs": 2}),
        (f"{CHAT}/render", {"top_logprobs": 2}),
        (MESSAGES, {"tools": [{"name": "a"}]}),
        (f"{MESSAGES}/count_tokens", {"tools": [{"name": "a"}]}),
        (f"{RESPONSES}/input_tokens", {"tools": [{"type": "function", "name": 5}]}),
        (RESPONSES, {"tools": [{"type": "function"}]}),
        (RESPONSES, {"text": {"format": {"type": "xml"}}}),
        ("/tokenize", {"continue_final_message": True}),
    ],
)
def test_the_rest_of_a_request_is_checked_before_its_files(
    run: Any, monkeypatch: pytest.MonkeyPatch, path: str, wrong: dict[str, Any]
) -> None:
    def read_pages(*_: object) -> PdfText:
        raise AssertionError("a file was read")

    document = {"type": "document", "source": {"type": "base64", "data": PDF}}
    messages = chat_of(file_data=PDF)["messages"]
    of_messages = {"messages": [{"role": "user", "content": [document]}], "max_tokens": 2}
    fields = {
        RESPONSES: response_of(file_data=PDF),
        MESSAGES: of_messages,
        f"{MESSAGES}/count_tokens": of_messages,
        f"{RESPONSES}/input_tokens": response_of(file_data=PDF),
        f"{CHAT}/batch": {"messages": [messages]},
    }.get(path, {"messages": messages})

    async def body(client: Service) -> None:
        monkeypatch.setattr(pdf_files, "read_pages", read_pages)
        await post(client, path, 400, **{**fields, **wrong})

    run(body)


def test_documents(run: Any) -> None:
    async def body(client: Service) -> None:
        async def ask(status: int, **source: Any) -> Any:
            block = {"type": "document", "title": "a.csv", "source": source}
            message = {"role": "user", "content": [block]}
            return await post(client, MESSAGES, status, messages=[message], max_tokens=2)

        await ask(200, type="base64", media_type="text/plain", data=DATA)
        assert shown(client.server) == [f"a.csv\n{NOTES}"]
        await ask(200, type="content", content=[{"type": "text", "text": "a"}])
        assert shown(client.server) == ["a.csv\na"]
        await ask(200, type="content", content="b")
        assert shown(client.server) == ["a.csv\nb"]
        await ask(200, type="base64", media_type="application/pdf", data=PDF)
        assert shown(client.server) == [f"a.csv\n{PAGES_TEXT}"]
        refused = await ask(400, type="base64", media_type="application/pdf", data=DAMAGED)
        assert "content[0].source`: it is damaged" in refused["error"]["message"]
        refused = await ask(400, type="url", url="http://a/b.pdf")
        assert "nothing is fetched" in refused["error"]["message"]

    run(body)


def test_documents_of_tools(run: Any) -> None:
    async def body(client: Service) -> None:
        document = {"type": "document", "source": {"type": "base64", "data": PDF}}
        result = {"type": "tool_result", "tool_use_id": "a", "content": [document] * 2}
        call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
        conversation = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
        for path in (MESSAGES, f"{MESSAGES}/render", f"{MESSAGES}/count_tokens"):
            client.server.renderer.rendered.clear()
            await post(client, path, messages=conversation, max_tokens=2)
            assert shown(client.server)[-1] == f"{PAGES_TEXT}\n{PAGES_TEXT}", path
        document["source"]["data"] = DAMAGED
        refused = await post(client, MESSAGES, 400, messages=conversation, max_tokens=2)
        assert "`messages[2].content[0].content[0].source`: it is" in refused["error"]["message"]

    run(body)
