"""A client's session: its events are obeyed in order, while a response may be in progress.

A session of type `realtime` is a conversation: each response is a chat of it so far, so what chats
can do, sessions can. One of type `transcription` writes down what is said. To the limits of the key
each response and each transcription is a request.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import msgspec

from pagemill.inputs.task import Task
from pagemill.server.access.caller import Caller
from pagemill.server.answer import Socket, Talk
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.lifecycle import Phase
from pagemill.server.protocol.decode import explain
from pagemill.server.protocol.realtime import ClientEvent, ConnectRequest
from pagemill.server.protocol.realtime_audio import InputTranscription
from pagemill.server.realtime.audio_parts import audio_item, has_audio, kept_item, shown_item
from pagemill.server.realtime.audio_settings import changed_audio, shown_audio
from pagemill.server.realtime.conversation import Conversation, complete_items
from pagemill.server.realtime.input_audio import InputAudio, TurnBegan, TurnEnded, off_loop
from pagemill.server.realtime.refusals import event_error
from pagemill.server.realtime.responder import Responder
from pagemill.server.realtime.session_room import OwnersRoom
from pagemill.server.realtime.settings import MODALITIES, changed, request_of
from pagemill.server.realtime.sound_buffer import Sound
from pagemill.server.realtime.transcript_events import StreamEvents
from pagemill.server.realtime.transcriptions import (
    Transcriber,
    Transcriptions,
    Turn,
    transcriber_of,
)
from pagemill.server.responses.ids import new_id
from pagemill.server.responses.input import Item
from pagemill.server.state import ServerState

_LOOK_S = 0.5  # how often a session that waits looks at the server's phase, and at its key
_IDLE, _GOING_AWAY = (1000, "idle"), (1001, "the server is shutting down")
_NOT_ALLOWED = (1008, "the API key is not valid any more")
_REALTIME, _TRANSCRIPTION = "realtime", "transcription"
# Clients of the reference system send 16-bit PCM, and say when it ends.
_STREAMED = {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}


class Session(Talk):
    """One connection's conversation, or its transcriptions."""

    def __init__(self, server: ServerState, caller: Caller, wanted: ConnectRequest) -> None:
        """Raises an ApiError if there is no such model for `caller`, or it does not transcribe."""
        self._server = server
        self._caller = caller
        self._model = wanted.model
        self._pipeline = server.models.resolve(wanted.model, caller).model
        self._id = new_id("sess")
        self._settings: dict[str, Any] = {}
        # Without keys nothing says whose a session is.
        owner = caller.key_id or self._id
        self._conversation = Conversation(
            server.config.max_body_bytes, OwnersRoom(server.conversation_room, owner)
        )
        self._responder = Responder(server, caller, self._pipeline, self._conversation, self._say)
        self._last_turn: str | None = None  # of a session that has no conversation
        room = OwnersRoom(server.sound_room, owner)
        self._audio = InputAudio(room, self._pipeline.rendering.media)
        self._turn_id = ""  # of the turn that was begun
        self._transcriber: Transcriber | None = None
        self._transcriptions = Transcriptions(
            server, caller, self._say, self._conversation.write_transcript
        )
        self._socket: Socket | None = None
        converses = Task.GENERATE in self._pipeline.model.tasks
        self._kind = _REALTIME
        if wanted.intent is not None or not converses:
            self._update({"type": _TRANSCRIPTION})

    async def run(self, socket: Socket) -> None:
        """Talks over `socket`; closes it at the end."""
        self._socket = socket
        self._say("session.created", {"session": self._described()})
        code, reason = 1011, "the server failed"
        try:
            code, reason = await self._obey(socket)
        finally:
            await self._responder.stop()
            await self._transcriptions.close()
            self._audio.clear()
            self._conversation.close()
            await socket.close(code, reason)

    async def _obey(self, socket: Socket) -> tuple[int, str]:
        """Reads events until there are no more; returns why it closes the connection."""
        timeout_s = self._server.config.realtime_idle_timeout
        seen = time.monotonic()
        while True:
            is_busy = self._responder.is_busy or not self._transcriptions.are_done
            if not is_busy and self._server.lifecycle.phase is Phase.DRAINING:
                return _GOING_AWAY
            if not socket.is_allowed:
                return _NOT_ALLOWED
            try:
                message = await asyncio.wait_for(socket.receive(), _LOOK_S)
            except TimeoutError:
                if is_busy:
                    seen = time.monotonic()
                elif time.monotonic() - seen > timeout_s:
                    return _IDLE
                continue
            if message is None:
                return 1000, ""
            if not socket.is_allowed:
                return _NOT_ALLOWED
            seen = time.monotonic()
            await socket.writable()
            await self._take(message, socket)

    async def _take(self, message: bytes, socket: Socket) -> None:
        """Obeys one event, or says why not."""
        event_id: str | None = None
        try:
            event = _decoded(message)
            event_id = event.event_id
            await self._dispatch(event, socket)
        except ApiError as error:
            self._say("error", {"error": event_error(error, event_id)})

    async def _dispatch(self, event: ClientEvent, socket: Socket) -> None:
        kind = event.type
        if kind.startswith("input_audio_buffer."):
            self._check_hears("type")
            await self._obey_audio(event, socket)
        elif kind == "session.update":
            if event.model is None:
                self._update(event.session)
            else:
                self._stream(event.model)
            self._say("session.updated", {"session": self._described()})
        elif self._kind == _TRANSCRIPTION:
            raise bad_request(
                f"Events of type {kind[:100]!r} are not for sessions of type `transcription`.",
                "type",
            )
        elif kind == "response.create":
            self._begin_response(event.response, socket)
        elif kind == "response.cancel":
            await self._responder.cancel(event.response_id)
        else:
            self._obey_item(event)

    async def _obey_audio(self, event: ClientEvent, socket: Socket) -> None:
        match event.type:
            case "input_audio_buffer.append":
                async for turn in self._audio.append(event.audio):
                    try:
                        await self._obey_turn(turn, socket)
                    except ApiError as error:
                        self._say("error", {"error": event_error(error, event.event_id)})
                    await asyncio.sleep(0)  # an event may have hundreds of turns
            case "input_audio_buffer.commit" if not event.final:
                pass  # more of the turn comes
            case "input_audio_buffer.commit":
                await self._commit(self._audio.commit(), self._turn_id or new_id("msg"), socket)
            case "input_audio_buffer.clear":
                self._audio.clear()
                self._turn_id = ""
                self._say("input_audio_buffer.cleared", {})
            case _:
                raise _unknown(event)

    def _obey_item(self, event: ClientEvent) -> None:
        conversation = self._conversation
        match event.type:
            case "conversation.item.create":
                sent = None if event.item is None else self._kept(event.item)
                self._say_item(*conversation.create(sent, event.previous_item_id))
            case "conversation.item.retrieve":
                item = shown_item(conversation.get(event.item_id), with_audio=True)
                self._say("conversation.item.retrieved", {"item": item})
            case "conversation.item.delete":
                conversation.delete(event.item_id)
                self._say("conversation.item.deleted", {"item_id": event.item_id})
            case _:
                raise _unknown(event)

    def _update(self, sent: dict[str, Any]) -> None:
        """Changes the settings.

        Raises:
            ApiError: 400: they are not valid, and nothing has changed.
        """
        kind = sent.get("type", self._kind)
        settings = self._settings
        if kind == _REALTIME:
            self._check_kind(kind, Task.GENERATE)
            settings = changed(settings, sent)
            request_of(settings, [])
        elif kind == _TRANSCRIPTION:
            self._check_kind(kind, Task.TRANSCRIBE)
        else:
            raise bad_request("`type` must be `realtime` or `transcription`.", "type")
        if sent.get("audio") is not None:
            self._check_hears("audio", kind)
        audio = changed_audio(self._audio.settings, sent)
        if kind == _TRANSCRIPTION and kind != self._kind and audio.transcription is None:
            audio = msgspec.structs.replace(audio, transcription=InputTranscription())
        transcriber = None
        if audio.transcription is not None:
            transcriber = transcriber_of(
                self._server, self._caller, audio.transcription, self._model
            )
        self._audio.configure(audio)
        self._kind, self._settings, self._transcriber = kind, settings, transcriber

    def _stream(self, model: str) -> None:
        """Transcribes as the reference system does, whose clients name a `model` and no session.

        Raises:
            ApiError: 404: there is no such model; 400: it does not transcribe, or there are items.
        """
        heard = {**_STREAMED, "transcription": {"model": model}}
        self._update({"type": _TRANSCRIPTION, "audio": {"input": heard}})
        self._transcriptions.events = StreamEvents(self._say)

    def _check_kind(self, kind: str, task: Task) -> None:
        """Refuses a type of session that the model is not for, or that comes too late."""
        if task not in self._pipeline.model.tasks:
            what = "converse" if task is Task.GENERATE else "transcribe"
            raise bad_request(
                f"`type`: the model `{self._pipeline.model.name}` does not {what}.", "type"
            )
        if kind != self._kind and self._conversation.items:
            raise bad_request("`type` cannot change once the session has items.", "type")

    def _check_hears(self, param: str, kind: str | None = None) -> None:
        """Refuses audio for a model that takes none in sessions of the type `kind`."""
        kinds = self._pipeline.rendering.media.kinds
        if (kind or self._kind) == _REALTIME and "audio" not in kinds:
            raise bad_request(
                f"The model `{self._pipeline.model.name}` takes no audio: send text.", param
            )

    async def _obey_turn(self, turn: TurnBegan | TurnEnded, socket: Socket) -> None:
        """Says that a turn has begun or is over, and does what the settings say."""
        options = self._audio.settings.turn_detection
        assert options is not None, "turns are found"
        converses = self._kind == _REALTIME
        if isinstance(turn, TurnBegan):
            self._turn_id = new_id("msg")
            found = {"audio_start_ms": turn.at_ms, "item_id": self._turn_id}
            self._say("input_audio_buffer.speech_started", found)
            if converses and options.interrupt_response:
                await self._responder.stop("turn_detected")
            return
        found = {"audio_end_ms": turn.at_ms, "item_id": self._turn_id}
        self._say("input_audio_buffer.speech_stopped", found)
        await self._commit(turn.sound, self._turn_id, socket)
        if converses and options.create_response and not self._responder.is_busy:
            self._begin_response({}, socket)

    async def _commit(self, sound: Sound, item_id: str, socket: Socket) -> None:
        """Makes an item of `sound`, which is transcribed if the settings say so.

        Raises:
            ApiError: 400: the conversation has no room for it; 503: the server shuts down.
        """
        self._turn_id = ""
        try:
            self._server.lifecycle.check_ready()
            await self._transcriptions.room(socket)
            await socket.writable()
            # Without a conversation, an item is shown and not kept: its sound is not needed.
            item, before = audio_item(item_id, b""), self._last_turn
            if self._kind == _REALTIME:
                item = await off_loop(sound.num_bytes, _item_of, item_id, sound)
                item, before = self._conversation.create(item, None)
        except BaseException:
            sound.discard()
            raise
        self._last_turn = item_id
        ids = {"item_id": item_id, "previous_item_id": before}
        self._say("input_audio_buffer.committed", ids)
        self._say_item(item, before)
        if self._transcriber is None:
            sound.discard()
        else:
            self._transcriptions.add(Turn(item_id, sound, self._transcriber), socket)

    def _kept(self, sent: Item) -> Item:
        """The item of a client as the conversation keeps it."""
        if not has_audio(sent):
            return sent
        self._check_hears("item")
        return kept_item(sent, self._audio.settings.format)

    def _begin_response(self, sent: dict[str, Any], socket: Socket) -> None:
        """Begins the response that a client `sent`.

        Raises:
            ApiError: 503: the server shuts down; 400: see `Responder.begin`.
        """
        self._server.lifecycle.check_ready()
        settings = changed(self._settings, sent)
        items = self._conversation.items
        if sent.get("input") is not None:
            items = self._input(sent["input"])
        is_apart = sent.get("conversation") == "none"
        self._responder.begin(settings, items, socket, is_apart=is_apart)

    def _input(self, sent: Any) -> list[Item]:
        """The items of a response's own input; references are to items of the conversation."""
        listed = cast(list[Any], sent) if isinstance(sent, list) else [None]
        items: list[Item] = []
        referenced: set[str] = set()  # each once: so all are no larger than the conversation
        for each in listed:
            if not isinstance(each, dict):
                raise bad_request("`input` must be a list of items.", "input")
            item = cast(Item, each)
            if item.get("type") == "item_reference":
                found = self._conversation.get(str(item.get("id")))
                if found["id"] in referenced:
                    raise bad_request(
                        f"`input` has the item {found['id'][:100]!r} twice: name it once.", "input"
                    )
                referenced.add(found["id"])
                items.append(found)
            else:
                items += complete_items([self._kept(item)], "input")
        return items

    def _described(self) -> dict[str, Any]:
        audio = shown_audio(self._audio.settings)
        if self._kind == _TRANSCRIPTION:
            return {
                "type": _TRANSCRIPTION,
                "object": "realtime.transcription_session",
                "id": self._id,
                "model": self._pipeline.model.name,
                "audio": audio,
            }
        hears = "audio" in self._pipeline.rendering.media.kinds
        return {
            "type": _REALTIME,
            "object": "realtime.session",
            "id": self._id,
            "model": self._pipeline.model.name,
            "output_modalities": MODALITIES,
            "instructions": "",
            "tools": [],
            "tool_choice": "auto",
            "max_output_tokens": "inf",
            **({"audio": audio} if hears else {}),
            **self._settings,
        }

    def _say_item(self, item: Item, before: str | None) -> None:
        """Says that there is an item behind the one with the id `before`."""
        for end in ("added", "done"):
            fields = {"item": shown_item(item), "previous_item_id": before}
            self._say(f"conversation.item.{end}", fields)

    def _say(self, kind: str, fields: dict[str, Any]) -> None:
        event = {"type": kind, "event_id": new_id("event"), **fields}
        if self._socket is not None:
            self._socket.send(msgspec.json.encode(event))


def _item_of(item_id: str, sound: Sound) -> Item:
    return audio_item(item_id, sound.take())


def _decoded(message: bytes) -> ClientEvent:
    try:
        return msgspec.json.decode(message, type=ClientEvent)
    except msgspec.ValidationError as error:
        text, param = explain(error)
        raise bad_request(text, param) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request("An event is a JSON object with a `type`.") from error


def _unknown(event: ClientEvent) -> ApiError:
    return bad_request(f"Events of type {event.type[:100]!r} are not supported.", "type")
