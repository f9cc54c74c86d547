#include "cc/engine/output_queue.h"

#include <poll.h>

#include <map>
#include <utility>
#include <vector>

#include "cc/engine/output_event.h"
#include "gtest/gtest.h"

namespace pagemill::engine {
namespace {

using step::FinishReason;
using step::RequestId;

RequestOutput News(uint64_t id, std::vector<int32_t> tokens) {
  RequestOutput output;
  output.request_id = RequestId(id);
  output.new_token_ids = std::move(tokens);
  return output;
}

// A queue with the places of requests.
class Queue : public OutputQueue {
 public:
  void Push(RequestOutput output) {
    UnreadPlace* place = &places_[output.request_id];
    OutputQueue::Push(std::move(output), place);
  }
  void PushTokens(uint64_t id, std::vector<int32_t> tokens) {
    OutputQueue::Push({.request_id = RequestId(id), .token_ids = tokens}, &places_[RequestId(id)]);
  }
  std::vector<RequestOutput> TakeAll() { return OutputQueue::TakeAll().Expand(); }
  bool HasTurnEnd(RequestId id) { return OutputQueue::HasTurnEnd(places_[id]); }

 private:
  std::map<RequestId, UnreadPlace> places_;
};

TEST(OutputQueue, MergesPerRequestAndKeepsTheOrder) {
  Queue queue;
  EXPECT_TRUE(queue.empty());
  RequestOutput first = News(2, {1});
  first.prompt_logprobs.emplace(3);
  first.logprobs.emplace(1);
  first.num_cached_tokens = 16;
  queue.Push(std::move(first));
  queue.Push(News(1, {5}));
  RequestOutput last = News(2, {2, 3});
  last.logprobs.emplace(2);
  last.num_cached_tokens = 16;
  last.finish_reason = FinishReason::kStop;
  last.stop_token_id = 3;
  last.decode_s = 1.5;
  last.num_evicted_tokens = 16;
  last.num_draft_steps = 2;
  last.num_draft_tokens = 4;
  last.num_accepted_draft_tokens = 3;
  queue.Push(std::move(last));

  EXPECT_EQ(queue.size(), 2u);
  const std::vector<RequestOutput> outputs = queue.TakeAll();
  EXPECT_TRUE(queue.empty());
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].request_id, RequestId(2));
  EXPECT_EQ(outputs[0].new_token_ids, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(outputs[0].logprobs->size(), 3u);
  EXPECT_EQ(outputs[0].prompt_logprobs->size(), 3u);
  EXPECT_EQ(outputs[0].finish_reason, FinishReason::kStop);
  EXPECT_EQ(outputs[0].stop_token_id, 3);
  EXPECT_EQ(outputs[0].num_cached_tokens, 16);
  EXPECT_EQ(outputs[0].decode_s, 1.5);
  EXPECT_EQ(outputs[0].num_evicted_tokens, 16);
  EXPECT_EQ(outputs[0].num_draft_steps, 2);
  EXPECT_EQ(outputs[0].num_draft_tokens, 4);
  EXPECT_EQ(outputs[0].num_accepted_draft_tokens, 3);
  EXPECT_EQ(outputs[1].request_id, RequestId(1));
  EXPECT_FALSE(outputs[1].finished());
  EXPECT_FALSE(outputs[1].logprobs.has_value());
  queue.Push(News(1, {6}));
  EXPECT_EQ(queue.TakeAll()[0].new_token_ids, std::vector<int32_t>{6});
}

TEST(OutputQueue, TokensAloneAreMergedWithOtherNews) {
  Queue queue;
  queue.PushTokens(1, {4});
  queue.PushTokens(2, {5});
  queue.PushTokens(1, {6, 7});
  RequestOutput last = News(1, {8});
  last.finish_reason = FinishReason::kStop;
  queue.Push(std::move(last));
  RequestOutput scored = News(2, {9});
  scored.logprobs.emplace(1);
  queue.Push(std::move(scored));
  queue.PushTokens(2, {10});
  const std::vector<RequestOutput> outputs = queue.TakeAll();
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].request_id, RequestId(1));
  EXPECT_EQ(outputs[0].new_token_ids, (std::vector<int32_t>{4, 6, 7, 8}));
  EXPECT_EQ(outputs[0].finish_reason, FinishReason::kStop);
  EXPECT_EQ(outputs[1].new_token_ids, (std::vector<int32_t>{5, 9, 10}));
  EXPECT_EQ(outputs[1].logprobs->size(), 1u);
  queue.PushTokens(2, {11});
  EXPECT_EQ(queue.TakeAll()[0].new_token_ids, std::vector<int32_t>{11});
}

TEST(OutputQueue, AnAbortDoesNotTakeTokensAway) {
  Queue queue;
  queue.Push(News(1, {5}));
  RequestOutput abort = News(1, {});
  abort.finish_reason = FinishReason::kAbort;
  queue.Push(std::move(abort));
  const std::vector<RequestOutput> outputs = queue.TakeAll();
  EXPECT_EQ(outputs[0].new_token_ids, std::vector<int32_t>{5});
  EXPECT_EQ(outputs[0].finish_reason, FinishReason::kAbort);
}

TEST(OutputQueue, AnAbortDoesNotTakeTheEndOfATurnAway) {
  Queue queue;
  RequestOutput end = News(1, {5});
  end.turn_finished = FinishReason::kStop;
  end.stop_token_id = 5;
  queue.Push(std::move(end));
  RequestOutput abort = News(1, {});
  abort.finish_reason = FinishReason::kAbort;
  queue.Push(std::move(abort));
  const std::vector<RequestOutput> outputs = queue.TakeAll();
  EXPECT_EQ(outputs[0].turn_finished, FinishReason::kStop);
  EXPECT_EQ(outputs[0].stop_token_id, 5);
  EXPECT_EQ(outputs[0].finish_reason, FinishReason::kAbort);
}

TEST(OutputQueue, KnowsTheEndOfATurnUntilItIsTaken) {
  Queue queue;
  queue.Push(News(1, {5}));
  EXPECT_FALSE(queue.HasTurnEnd(RequestId(1)));
  RequestOutput end = News(1, {6});
  end.turn_finished = FinishReason::kLength;
  queue.Push(std::move(end));
  EXPECT_TRUE(queue.HasTurnEnd(RequestId(1)));
  EXPECT_FALSE(queue.HasTurnEnd(RequestId(2)));
  EXPECT_EQ(queue.TakeAll()[0].new_token_ids, (std::vector<int32_t>{5, 6}));
  EXPECT_FALSE(queue.HasTurnEnd(RequestId(1)));
}

TEST(OutputEvent, IsReadableWhileSet) {
  OutputEvent event;
  if (event.fd() < 0) GTEST_SKIP() << "this system has no eventfd";
  const auto readable = [&event] {
    pollfd descriptor{event.fd(), POLLIN, 0};
    return poll(&descriptor, 1, 0) == 1;
  };
  EXPECT_FALSE(readable());
  event.Set();
  event.Set();
  EXPECT_TRUE(readable());
  event.Clear();
  EXPECT_FALSE(readable());
  event.Clear();
}

}  // namespace
}  // namespace pagemill::engine
