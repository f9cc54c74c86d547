#include "cc/engine/output_queue.h"

#include <iterator>
#include <utility>

namespace pagemill::engine {
namespace {

template <typename T>
void AppendTo(std::vector<T>* target, std::vector<T>&& more) {
  target->insert(target->end(), std::make_move_iterator(more.begin()),
                 std::make_move_iterator(more.end()));
}

void Merge(RequestOutput&& news, RequestOutput* output) {
  AppendTo(&output->new_token_ids, std::move(news.new_token_ids));
  if (news.logprobs) {
    if (!output->logprobs) output->logprobs.emplace();
    AppendTo(&*output->logprobs, std::move(*news.logprobs));
  }
  if (news.prompt_logprobs) output->prompt_logprobs = std::move(news.prompt_logprobs);
  if (news.pooled) output->pooled = std::move(news.pooled);
  // A request that is ended behind its turn does not take the end of the turn back.
  if (news.turn_finished) output->turn_finished = news.turn_finished;
  output->finish_reason = news.finish_reason;
  if (news.stop_token_id) output->stop_token_id = news.stop_token_id;
  output->error = std::move(news.error);
  output->kv_transfer_params = std::move(news.kv_transfer_params);
  output->num_cached_tokens = news.num_cached_tokens;
  output->num_evicted_tokens = news.num_evicted_tokens;
  output->num_draft_tokens = news.num_draft_tokens;
  output->num_accepted_draft_tokens = news.num_accepted_draft_tokens;
  output->queued_s = news.queued_s;
  output->prefill_s = news.prefill_s;
  output->decode_s = news.decode_s;
}

}  // namespace

void OutputQueue::Push(RequestOutput output) {
  const auto [found, added] = positions_.emplace(output.request_id, outputs_.size());
  if (added) {
    outputs_.push_back(std::move(output));
    return;
  }
  PAGEMILL_CHECK(!outputs_[found->second].finished());
  Merge(std::move(output), &outputs_[found->second]);
}

bool OutputQueue::HasTurnEnd(step::RequestId id) const {
  const auto found = positions_.find(id);
  return found != positions_.end() && outputs_[found->second].turn_finished.has_value();
}

std::vector<RequestOutput> OutputQueue::TakeAll() {
  positions_.clear();
  return std::exchange(outputs_, {});
}

}  // namespace pagemill::engine
