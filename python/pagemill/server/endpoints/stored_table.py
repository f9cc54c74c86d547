"""Routes of what the server stores: batches, files, conversations and responses."""

from __future__ import annotations

from pagemill.inputs.task import Task
from pagemill.server.access.caller import Scope
from pagemill.server.endpoints.endpoint import Endpoint, Transport
from pagemill.server.error_shapes import ANTHROPIC

_GENERATE = (Task.GENERATE,)


def _conversation(
    name: str, method: str, path: str, handler: str, request: str, response: str
) -> Endpoint:
    """A route of `/v1/conversations`."""
    return Endpoint(
        name=name,
        method=method,
        path=f"/v1/conversations{path}",
        handler=f"conversations:{handler}",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        transport=Transport.PATH_AND_JSON if method == "POST" else Transport.PATH,
        request=f"conversations:{request}",
        response=f"conversations:{response}",
    )


def _message_batch(
    name: str,
    method: str,
    path: str,
    handler: str,
    *,
    transport: Transport = Transport.PATH,
    request: str = "message_batches:MessageBatchName",
    response: str = "message_batches:MessageBatch",
    media_type: str = "application/json",
) -> Endpoint:
    """A route of `/v1/messages/batches`."""
    return Endpoint(
        name=name,
        method=method,
        path=f"/v1/messages/batches{path}",
        handler=f"message_batches:{handler}",
        scope=Scope.INFERENCE,
        transport=transport,
        request=request,
        response=response,
        media_type=media_type,
        errors=ANTHROPIC,
        statuses=() if method == "GET" else (507,),
    )


STORED_ENDPOINTS = (
    Endpoint(
        name="batch",
        method="GET",
        path="/v1/batches/{batch_id}",
        handler="batches:retrieve",
        scope=Scope.INFERENCE,
        request="batch:BatchName",
        response="batch:Batch",
    ),
    Endpoint(
        name="batch_cancel",
        method="POST",
        path="/v1/batches/{batch_id}/cancel",
        handler="batches:cancel",
        scope=Scope.INFERENCE,
        request="batch:BatchName",
        response="batch:Batch",
        statuses=(507,),
    ),
    Endpoint(
        name="batches",
        method="GET",
        path="/v1/batches",
        handler="batches:list_batches",
        scope=Scope.INFERENCE,
        request="batch:ListBatchesRequest",
        response="batch:BatchList",
    ),
    Endpoint(
        name="batches_create",
        method="POST",
        path="/v1/batches",
        handler="batches:create",
        scope=Scope.INFERENCE,
        transport=Transport.JSON,
        request="batch:CreateBatchRequest",
        response="batch:Batch",
        statuses=(507,),
    ),
    _conversation(
        "conversation", "GET", "/{conversation_id}", "retrieve", "ConversationName", "Conversation"
    ),
    _conversation("conversation_create", "POST", "", "create", "CreateRequest", "Conversation"),
    _conversation(
        "conversation_delete",
        "DELETE",
        "/{conversation_id}",
        "delete",
        "ConversationName",
        "DeletedConversation",
    ),
    _conversation(
        "conversation_item",
        "GET",
        "/{conversation_id}/items/{item_id}",
        "retrieve_item",
        "ItemName",
        "Item",
    ),
    _conversation(
        "conversation_item_delete",
        "DELETE",
        "/{conversation_id}/items/{item_id}",
        "delete_item",
        "ItemName",
        "Conversation",
    ),
    _conversation(
        "conversation_items",
        "GET",
        "/{conversation_id}/items",
        "list_items",
        "ItemsRequest",
        "ItemPage",
    ),
    _conversation(
        "conversation_items_add",
        "POST",
        "/{conversation_id}/items",
        "add_items",
        "AddItemsRequest",
        "ItemPage",
    ),
    _conversation(
        "conversation_update",
        "POST",
        "/{conversation_id}",
        "update",
        "UpdateRequest",
        "Conversation",
    ),
    Endpoint(
        name="file",
        method="GET",
        path="/v1/files/{file_id}",
        handler="files:retrieve",
        scope=Scope.INFERENCE,
        request="file:FileName",
        response="file:FileObject",
    ),
    Endpoint(
        name="file_content",
        method="GET",
        path="/v1/files/{file_id}/content",
        handler="files:content",
        scope=Scope.INFERENCE,
        request="file:FileName",
        response="file:CONTENT",
        media_type="application/octet-stream",
    ),
    Endpoint(
        name="file_delete",
        method="DELETE",
        path="/v1/files/{file_id}",
        handler="files:delete",
        scope=Scope.INFERENCE,
        request="file:FileName",
        response="file:DeletedFile",
        statuses=(409, 507),
    ),
    Endpoint(
        name="file_upload",
        method="POST",
        path="/v1/files",
        handler="files:upload",
        scope=Scope.INFERENCE,
        transport=Transport.FORM,
        request="file:UploadRequest",
        response="file:FileObject",
        statuses=(507,),
    ),
    Endpoint(
        name="files",
        method="GET",
        path="/v1/files",
        handler="files:list_files",
        scope=Scope.INFERENCE,
        request="file:ListFilesRequest",
        response="file:FileList",
    ),
    _message_batch("message_batch", "GET", "/{message_batch_id}", "retrieve"),
    _message_batch("message_batch_cancel", "POST", "/{message_batch_id}/cancel", "cancel"),
    _message_batch(
        "message_batch_delete",
        "DELETE",
        "/{message_batch_id}",
        "delete",
        response="message_batches:DeletedMessageBatch",
    ),
    _message_batch(
        "message_batch_results",
        "GET",
        "/{message_batch_id}/results",
        "read_results",
        response="file:CONTENT",
        media_type="application/x-jsonl",
    ),
    _message_batch(
        "message_batches",
        "GET",
        "",
        "list_batches",
        request="message_batches:ListMessageBatchesRequest",
        response="message_batches:MessageBatchList",
    ),
    _message_batch(
        "message_batches_create",
        "POST",
        "",
        "create",
        transport=Transport.JSON,
        request="message_batches:CreateMessageBatchRequest",
    ),
    Endpoint(
        name="response",
        method="GET",
        path="/v1/responses/{response_id}",
        handler="responses:retrieve",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        request="response_store:RetrieveRequest",
        response="responses:Response",
        event="response_events:ResponseEvent",
    ),
    Endpoint(
        name="response_cancel",
        method="POST",
        path="/v1/responses/{response_id}/cancel",
        handler="responses:cancel",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        request="response_store:StoredResponse",
        response="responses:Response",
    ),
    Endpoint(
        name="response_delete",
        method="DELETE",
        path="/v1/responses/{response_id}",
        handler="responses:delete",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        request="response_store:StoredResponse",
        response="response_store:DeletedResponse",
    ),
    Endpoint(
        name="response_input_items",
        method="GET",
        path="/v1/responses/{response_id}/input_items",
        handler="responses:list_input_items",
        scope=Scope.INFERENCE,
        tasks=_GENERATE,
        request="response_store:InputItemsRequest",
        response="response_store:InputItems",
    ),
)
