// File: cc/engine/engine_client.h
// One of several clients of an engine: it has request ids, outputs and a descriptor of its own, and
// learns nothing of the requests of others. A front end with several event loops opens a client for
// each; a host with one uses the methods of Engine, which are those of the client that the engine
// opens itself.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<EngineClient> client, engine->NewClient());
//   PAGEMILL_RETURN_IF_ERROR(client->Submit(std::move(request)));
//   for (const RequestOutput& output : client->Wait(/*timeout_s=*/1.0)) ...
//
// What concerns all requests (pause, drain, statistics, sessions) is the engine's.
//
// Ownership: the engine outlives its clients. The destructor aborts the client's requests; no other
// call may run then.
//
// Thread safety: all methods are thread-safe, but each output is handed out once, so one consumer
// is usual. Submit(), CheckRoom(), Abort() and Release() never wait for a step; Poll() never waits
// at all; Extend() waits until the engine is between two steps.
#ifndef PAGEMILL_CC_ENGINE_ENGINE_CLIENT_H_
#define PAGEMILL_CC_ENGINE_ENGINE_CLIENT_H_

#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/engine/client_outputs.h"
#include "cc/engine/request_output.h"
#include "cc/scheduler/input_chunk.h"
#include "cc/step/request.h"

namespace pagemill::engine {

class StepLoop;

class EngineClient {
 public:
  EngineClient(StepLoop* loop, ClientNumber number) : loop_(loop), number_(number) {}
  ~EngineClient();
  EngineClient(const EngineClient&) = delete;
  EngineClient& operator=(const EngineClient&) = delete;

  // Accepts the request or says why not; a refused request has no outputs. Its id is unique among
  // the client's own, and below 2^48.
  // kInvalidArgument: it can never run here. kResourceExhausted: too many wait, or are unread by
  // this client. kUnavailable: draining, asleep or shut down. kFailedPrecondition: the id is in use
  // (until its last output has been read). kUnimplemented: it has a token matcher, and the runner
  // samples without masks.
  Status Submit(step::Request request);
  // The status with which Submit() would refuse any request now, before the host prepares one: it
  // is draining, asleep or shut down, or its queue is full. OK promises nothing: others submit, too.
  Status CheckRoom() const;
  // Ends the request with finish_reason kAbort. Unknown and finished ids are ignored.
  void Abort(step::RequestId id);
  // Lets a request start that was submitted with `starts_held`. Other ids are ignored.
  void Release(step::RequestId id);
  // Appends input to a request with `streaming_input`. kNotFound,
  // kFailedPrecondition, kInvalidArgument: as Scheduler::Extend(). kFailedPrecondition, too, while
  // the end of its last turn has not been read. kUnavailable: shut down.
  Status Extend(step::RequestId id, scheduler::InputChunk chunk);

  // Outputs that wait to be read, at most one per request, those that wait longest first.
  std::vector<RequestOutput> Poll();
  // Like Poll(), but waits up to `timeout_s` seconds for the first output. Returns at once, with
  // what is there, after Engine::Shutdown().
  std::vector<RequestOutput> Wait(double timeout_s);
  // A descriptor that is readable while outputs wait (for epoll, asyncio); owned by the client. -1
  // on platforms that have none.
  int output_fd() const;

 private:
  StepLoop* const loop_;
  const ClientNumber number_;
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_ENGINE_CLIENT_H_
