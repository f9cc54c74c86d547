// File: cc/engine/output_queue.h
// Outputs that the client has not read yet, at most one per request: news of a request that has one
// already are merged into it. So a slow consumer costs memory per request and token, never per
// step.
//
//   OutputQueue queue;
//   UnreadPlace place;  // one for each request, kept by the caller
//   queue.Push(std::move(output), &place);
//   std::vector<RequestOutput> outputs = queue.TakeAll();
//
// Cost of Push(): O(news), without a search; memory is allocated once for all outputs that are taken
// together, if they are no more than the last time. Thread safety: none; the engine guards it.
#ifndef PAGEMILL_CC_ENGINE_OUTPUT_QUEUE_H_
#define PAGEMILL_CC_ENGINE_OUTPUT_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/engine/request_output.h"

namespace pagemill::engine {

// Where the unread output of a request is in its queue, if there is one.
struct UnreadPlace {
  uint64_t batch = 0;  // number of the outputs that are taken together, from 1
  size_t position = 0;
};

class OutputQueue {
 public:
  bool empty() const { return outputs_.empty(); }
  size_t size() const { return outputs_.size(); }

  // True if the end of a turn of the request with this place is among them.
  bool HasTurnEnd(const UnreadPlace& place) const {
    return place.batch == batch_ && outputs_[place.position].turn_finished.has_value();
  }

  // Nothing comes after an output with a finish_reason, and no new token of the next turn after one
  // with turn_finished that was not taken. `place` is the request's.
  void Push(RequestOutput&& output, UnreadPlace* place);
  // In the order in which their requests came to have unread news.
  std::vector<RequestOutput> TakeAll();

 private:
  std::vector<RequestOutput> outputs_;
  uint64_t batch_ = 1;    // of `outputs_`
  size_t last_size_ = 0;  // of the batch before
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_OUTPUT_QUEUE_H_
