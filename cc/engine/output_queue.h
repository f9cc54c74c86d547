// File: cc/engine/output_queue.h
// Outputs that the client has not read yet, at most one per request: news of a request that has one
// already are merged into it. So a slow consumer costs memory per request and token, never per
// step.
//
//   OutputQueue queue;
//   queue.Push(std::move(output));
//   std::vector<RequestOutput> outputs = queue.TakeAll();
//
// Thread safety: none; the engine guards it.
#ifndef PAGEMILL_CC_ENGINE_OUTPUT_QUEUE_H_
#define PAGEMILL_CC_ENGINE_OUTPUT_QUEUE_H_

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "cc/engine/request_output.h"
#include "cc/step/request.h"

namespace pagemill::engine {

class OutputQueue {
 public:
  bool empty() const { return outputs_.empty(); }
  size_t size() const { return outputs_.size(); }

  // True if the end of a turn of this request is among them.
  bool HasTurnEnd(step::RequestId id) const;

  // Nothing comes after an output with a finish_reason, and no new token of the next turn after one
  // with turn_finished that was not taken.
  void Push(RequestOutput output);
  // In the order in which their requests came to have unread news.
  std::vector<RequestOutput> TakeAll();

 private:
  std::vector<RequestOutput> outputs_;
  std::unordered_map<step::RequestId, size_t> positions_;  // in outputs_
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_OUTPUT_QUEUE_H_
