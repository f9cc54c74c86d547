// File: cc/engine/output_queue.h
// Outputs that the client has not read yet, at most one per request: news of a request that has one
// already are merged into it. So a slow consumer costs memory per request and token, never per
// step.
//
//   OutputQueue queue;
//   UnreadPlace place;  // one for each request, kept by the caller
//   queue.Push(NewTokens{.request_id = id, .token_ids = tokens}, &place);
//   queue.Push(std::move(output), &place);
//   UnreadOutputs unread = queue.TakeAll();
//   std::vector<RequestOutput> outputs = std::move(unread).Expand();  // by the reader's thread
//
// Most news are tokens and nothing else. The queue keeps them in a compact form, which the reader
// expands: lists and outputs that one thread allocates and another frees cost the writer several
// times what the news themselves do, since their memory moves between the caches of two cores.
//
// Cost of Push(): O(news), without a search. Thread safety: none; the engine guards it.
#ifndef PAGEMILL_CC_ENGINE_OUTPUT_QUEUE_H_
#define PAGEMILL_CC_ENGINE_OUTPUT_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/engine/request_output.h"
#include "cc/step/request.h"

namespace pagemill::engine {

// The next tokens of a request, without anything else that an output may have.
struct NewTokens {
  step::RequestId request_id;
  std::span<const int32_t> token_ids;
  int32_t num_cached_tokens = 0;  // RequestOutput's
};

// Where the unread output of a request is in its queue, if there is one.
struct UnreadPlace {
  uint64_t batch = 0;  // number of the outputs that are taken together, from 1
  uint32_t position = 0;
};

// Outputs that are taken together.
class UnreadOutputs {
 public:
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  // Requests whose last output is among them.
  const std::vector<step::RequestId>& finished() const { return finished_; }
  // In the order in which their requests came to have unread news.
  std::vector<RequestOutput> Expand() &&;

 private:
  friend class OutputQueue;
  static constexpr int32_t kTokensOnly = -1;
  struct Entry {
    step::RequestId request_id;
    int32_t num_cached_tokens = 0;
    uint32_t num_tokens = 0;
    int32_t others = kTokensOnly;  // position in `others_` of what it has besides tokens
  };
  struct Token {
    uint32_t position;  // of the request's entry
    int32_t id;
  };
  std::vector<Entry> entries_;
  std::vector<Token> tokens_;
  std::vector<RequestOutput> others_;  // without tokens
  std::vector<step::RequestId> finished_;
};

class OutputQueue {
 public:
  bool empty() const { return unread_.empty(); }
  size_t size() const { return unread_.size(); }

  // True if the end of a turn of the request with this place is among them.
  bool HasTurnEnd(const UnreadPlace& place) const;

  // Nothing comes after an output with a finish_reason, and no new token of the next turn after one
  // with turn_finished that was not taken. `place` is the request's.
  void Push(const NewTokens& news, UnreadPlace* place);
  void Push(RequestOutput&& output, UnreadPlace* place);
  UnreadOutputs TakeAll();

 private:
  UnreadOutputs unread_;
  uint64_t batch_ = 1;  // of `unread_`
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_OUTPUT_QUEUE_H_
