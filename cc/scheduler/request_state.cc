#include "cc/scheduler/request_state.h"

namespace pagemill::scheduler {

void RequestState::GrowPrompt(InputChunk chunk) {
  auto longer = std::make_shared<step::Request>(*request);
  int32_t num_media_tokens = 0;
  for (step::MediaItem& item : chunk.media) {
    item.first_token += prompt_size;
    num_media_tokens += item.num_tokens;
    media_end = item.first_token + item.num_tokens;
  }
  const auto num_tokens = static_cast<int32_t>(chunk.token_ids.size());
  longer->prompt_token_ids.Append(chunk.token_ids);
  longer->media.Append(chunk.media);
  request = std::move(longer);
  prompt_size += num_tokens;
  blocks.GrowPrompt(num_tokens, num_media_tokens);
}

}  // namespace pagemill::scheduler
