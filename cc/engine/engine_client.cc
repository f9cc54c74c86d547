#include "cc/engine/engine_client.h"

#include <utility>

#include "cc/engine/step_loop.h"

namespace pagemill::engine {

EngineClient::~EngineClient() { loop_->CloseClient(number_); }

Status EngineClient::Submit(step::Request request) {
  return loop_->Submit(number_, std::move(request));
}
Status EngineClient::CheckRoom() const { return loop_->CheckRoom(number_); }
void EngineClient::Abort(step::RequestId id) { loop_->Abort(number_, id); }
void EngineClient::Release(step::RequestId id) { loop_->Release(number_, id); }
Status EngineClient::Extend(step::RequestId id, scheduler::InputChunk chunk) {
  return loop_->Extend(number_, id, std::move(chunk));
}
std::vector<RequestOutput> EngineClient::Poll() { return loop_->Take(number_, 0); }
std::vector<RequestOutput> EngineClient::Wait(double timeout_s) {
  return loop_->Take(number_, timeout_s);
}
int EngineClient::output_fd() const { return loop_->output_fd(number_); }

}  // namespace pagemill::engine
