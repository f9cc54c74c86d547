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

void OutputQueue::Push(RequestOutput&& output, UnreadPlace* place) {
  if (place->batch == batch_) {
    RequestOutput& unread = outputs_[place->position];
    PAGEMILL_CHECK(!unread.finished());
    Merge(std::move(output), &unread);
    return;
  }
  if (outputs_.empty()) outputs_.reserve(last_size_);
  *place = {batch_, outputs_.size()};
  outputs_.push_back(std::move(output));
}

std::vector<RequestOutput> OutputQueue::TakeAll() {
  ++batch_;
  last_size_ = outputs_.size();
  return std::exchange(outputs_, {});
}

}  // namespace pagemill::engine
