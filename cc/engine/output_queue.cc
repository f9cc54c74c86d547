#include "cc/engine/output_queue.h"

#include <iterator>
#include <utility>

namespace pagemill::engine {
namespace {

// All but what comes with tokens (NewTokens).
void Merge(RequestOutput&& news, RequestOutput* output) {
  if (news.logprobs) {
    if (!output->logprobs) output->logprobs.emplace();
    output->logprobs->insert(output->logprobs->end(),
                             std::make_move_iterator(news.logprobs->begin()),
                             std::make_move_iterator(news.logprobs->end()));
  }
  if (news.prompt_logprobs) output->prompt_logprobs = std::move(news.prompt_logprobs);
  if (news.pooled) output->pooled = std::move(news.pooled);
  // A request that is ended behind its turn does not take the end of the turn back.
  if (news.turn_finished) output->turn_finished = news.turn_finished;
  output->finish_reason = news.finish_reason;
  if (news.stop_token_id) output->stop_token_id = news.stop_token_id;
  output->error = std::move(news.error);
  output->kv_transfer_params = std::move(news.kv_transfer_params);
  output->num_evicted_tokens = news.num_evicted_tokens;
  output->num_draft_steps = news.num_draft_steps;
  output->num_draft_tokens = news.num_draft_tokens;
  output->num_accepted_draft_tokens = news.num_accepted_draft_tokens;
  output->queued_s = news.queued_s;
  output->prefill_s = news.prefill_s;
  output->decode_s = news.decode_s;
  output->weight_versions = std::move(news.weight_versions);
  output->routed_experts = std::move(news.routed_experts);
}

}  // namespace

std::vector<RequestOutput> UnreadOutputs::Expand() && {
  std::vector<RequestOutput> outputs(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.others != kTokensOnly) {
      outputs[i] = std::move(others_[static_cast<size_t>(entry.others)]);
    }
    outputs[i].request_id = entry.request_id;
    outputs[i].num_cached_tokens = entry.num_cached_tokens;
    outputs[i].new_token_ids.reserve(entry.num_tokens);
  }
  for (const Token& token : tokens_) outputs[token.position].new_token_ids.push_back(token.id);
  return outputs;
}

bool OutputQueue::HasTurnEnd(const UnreadPlace& place) const {
  if (place.batch != batch_) return false;
  const int32_t others = unread_.entries_[place.position].others;
  return others != UnreadOutputs::kTokensOnly &&
         unread_.others_[static_cast<size_t>(others)].turn_finished.has_value();
}

void OutputQueue::Push(const NewTokens& news, UnreadPlace* place) {
  if (place->batch != batch_) {
    *place = {batch_, static_cast<uint32_t>(unread_.entries_.size())};
    unread_.entries_.push_back({.request_id = news.request_id});
  }
  UnreadOutputs::Entry& entry = unread_.entries_[place->position];
  PAGEMILL_CHECK(entry.others == UnreadOutputs::kTokensOnly ||
                 !unread_.others_[static_cast<size_t>(entry.others)].finished());
  entry.num_cached_tokens = news.num_cached_tokens;
  entry.num_tokens += static_cast<uint32_t>(news.token_ids.size());
  for (int32_t id : news.token_ids) unread_.tokens_.push_back({place->position, id});
}

void OutputQueue::Push(RequestOutput&& output, UnreadPlace* place) {
  Push(NewTokens{.request_id = output.request_id,
                 .token_ids = output.new_token_ids,
                 .num_cached_tokens = output.num_cached_tokens},
       place);
  output.new_token_ids.clear();
  if (output.finished()) unread_.finished_.push_back(output.request_id);
  UnreadOutputs::Entry& entry = unread_.entries_[place->position];
  if (entry.others == UnreadOutputs::kTokensOnly) {
    entry.others = static_cast<int32_t>(unread_.others_.size());
    unread_.others_.push_back(std::move(output));
    return;
  }
  Merge(std::move(output), &unread_.others_[static_cast<size_t>(entry.others)]);
}

// The next outputs are probably as many: their lists do not grow step by step.
UnreadOutputs OutputQueue::TakeAll() {
  ++batch_;
  UnreadOutputs next;
  next.entries_.reserve(unread_.entries_.size());
  next.tokens_.reserve(unread_.tokens_.size());
  return std::exchange(unread_, std::move(next));
}

}  // namespace pagemill::engine
