#include "cc/step/fake_model.h"

#include <algorithm>
#include <span>

#include "cc/base/endian.h"
#include "cc/base/xxh3.h"

namespace pagemill::step {
namespace {

constexpr size_t kSlotBytes = 12;  // a token and a fingerprint

uint64_t HashTokens(std::span<const int32_t> tokens) {
  std::vector<uint8_t> bytes(tokens.size() * 4);
  for (size_t i = 0; i < tokens.size(); ++i) {
    StoreLittle32(static_cast<uint32_t>(tokens[i]), bytes.data() + 4 * i);
  }
  return Xxh3_128(bytes.data(), bytes.size()).low;
}

int32_t NextToken(std::span<const int32_t> context, int32_t vocab_size) {
  return static_cast<int32_t>(HashTokens(context) % static_cast<uint64_t>(vocab_size));
}

Status Broken(const ScheduledRequest& entry, const std::string& what) {
  return Internal("plan entry of slot " + std::to_string(entry.index.value()) + ": " + what);
}

}  // namespace

FakeModel::FakeModel(const Options& options)
    : options_(options),
      slots_(options.max_num_seqs),
      kv_(static_cast<size_t>(options.num_blocks) * options.block_size) {}

size_t FakeModel::page_bytes(GroupId) const {
  return kSlotBytes * static_cast<size_t>(options_.block_size);
}

Status FakeModel::Read(GroupId, BlockId block, std::span<std::byte> to) const {
  const Entry* entry = &kv_[static_cast<size_t>(block.value()) * options_.block_size];
  for (size_t i = 0; i < to.size(); i += kSlotBytes, ++entry) {
    StoreLittle32(static_cast<uint32_t>(entry->token), &to[i]);
    StoreLittle64(entry->fingerprint, &to[i + 4]);
  }
  return OkStatus();
}

Status FakeModel::Write(GroupId, BlockId block, std::span<const std::byte> from) {
  Entry* entry = &kv_[static_cast<size_t>(block.value()) * options_.block_size];
  for (size_t i = 0; i < from.size(); i += kSlotBytes, ++entry) {
    *entry = {static_cast<int32_t>(LoadLittle32(&from[i])), LoadLittle64(&from[i + 4])};
  }
  return OkStatus();
}

StatusOr<StepResult> FakeModel::Run(const StepPlan& plan) {
  PAGEMILL_RETURN_IF_ERROR(CheckTotals(plan));
  for (RequestIndex index : plan.released) {
    if (index.value() < 0 || index.value() >= options_.max_num_seqs ||
        slots_[index.value()].request == nullptr) {
      return Internal("released slot " + std::to_string(index.value()) + " holds no request");
    }
    slots_[index.value()] = Slot();
  }
  PAGEMILL_RETURN_IF_ERROR(Encode(plan));
  PAGEMILL_ASSIGN_OR_RETURN(const StepPlan exact, Resolve(plan));
  StepResult result;
  result.step_id = plan.step_id;
  for (const ScheduledRequest& entry : exact.scheduled) {
    Slot* slot = &slots_[entry.index.value()];
    PAGEMILL_RETURN_IF_ERROR(Start(entry, slot));
    PAGEMILL_RETURN_IF_ERROR(Append(entry, slot));
    PAGEMILL_RETURN_IF_ERROR(CheckMedia(entry, *slot));
    PAGEMILL_RETURN_IF_ERROR(WriteTokens(entry, slot));
  }
  PAGEMILL_RETURN_IF_ERROR(CheckAdapters());
  PAGEMILL_RETURN_IF_ERROR(CheckCommonPrefix(exact));
  // Answers only after all writes: whatever one entry spoils for another one shows.
  for (size_t i = 0; i < exact.scheduled.size(); ++i) {
    const ScheduledRequest& entry = exact.scheduled[i];
    RequestResult answer;
    PAGEMILL_RETURN_IF_ERROR(Answer(entry, &slots_[entry.index.value()], &answer));
    answer.num_missing_drafts = plan.scheduled[i].num_tokens() - entry.num_tokens();
    result.results.push_back(std::move(answer));
  }
  return result;
}

StatusOr<StepPlan> FakeModel::Resolve(const StepPlan& plan) const {
  StepPlan exact = plan;
  for (ScheduledRequest& entry : exact.scheduled) {
    if (entry.index.value() < 0 || entry.index.value() >= options_.max_num_seqs) {
      return Broken(entry, "no such slot");
    }
    PAGEMILL_RETURN_IF_ERROR(ResolveEntry(&entry));
  }
  return exact;
}

Status FakeModel::ResolveEntry(ScheduledRequest* entry) const {
  const Slot& slot = slots_[entry->index.value()];
  if (!entry->token_ids.empty() && entry->token_ids.back() == kPlaceholderTokenId) {
    if (slot.last_sampled < 0 || entry->start != nullptr || entry->token_ids.size() != 1 ||
        slot.num_computed_tokens + 1 != slot.num_known_tokens) {
      return Broken(*entry, "a placeholder where no token was sampled");
    }
    const int32_t behind = entry->num_computed_tokens - slot.num_computed_tokens;
    if (behind < 0 || (behind > 0 && options_.max_draft_tokens == 0)) {
      return Broken(*entry, "num_computed_tokens is no upper bound");
    }
    entry->num_computed_tokens = slot.num_computed_tokens;
    entry->token_ids.back() = slot.last_sampled;
  }
  std::vector<int32_t>& drafts = entry->draft_token_ids;
  if (drafts.empty() || drafts[0] != kPlaceholderTokenId) return OkStatus();
  drafts.resize(std::min(drafts.size(), slot.proposed.size()));
  if (slot.last_sampled % 4 == 0) drafts.resize(drafts.size() / 2);
  std::copy_n(slot.proposed.begin(), drafts.size(), drafts.begin());
  return OkStatus();
}

// Checks the first group, whose blocks this model knows.
Status FakeModel::CheckCommonPrefix(const StepPlan& plan) const {
  if (plan.num_common_prefix_blocks.empty()) return OkStatus();
  const int32_t count = plan.num_common_prefix_blocks[0];
  const auto common =
      std::span(slots_[plan.scheduled[0].index.value()].blocks).first(static_cast<size_t>(count));
  for (const ScheduledRequest& entry : plan.scheduled) {
    const std::vector<BlockId>& blocks = slots_[entry.index.value()].blocks;
    if (blocks.size() < common.size() ||
        !std::equal(common.begin(), common.end(), blocks.begin())) {
      return Broken(entry, "does not have the common prefix");
    }
    if (entry.num_computed_tokens < count * options_.block_size) {
      return Broken(entry, "has not computed the common prefix");
    }
  }
  return OkStatus();
}

void FakeModel::Restart() {
  std::fill(slots_.begin(), slots_.end(), Slot());
  std::fill(kv_.begin(), kv_.end(), Entry());
  encoded_.clear();
}

void FakeModel::Skip(const StepPlan& plan) {
  for (RequestIndex index : plan.released) slots_[index.value()] = Slot();
  for (const std::string& content_id : plan.released_media) encoded_.erase(content_id);
  for (const ScheduledRequest& entry : plan.scheduled) {
    if (entry.start != nullptr) slots_[entry.index.value()].request = entry.start;
  }
}

Status FakeModel::CheckTotals(const StepPlan& plan) const {
  int32_t tokens = 0, rows = 0;
  std::vector<bool> seen(options_.max_num_seqs, false);
  for (const ScheduledRequest& entry : plan.scheduled) {
    tokens += entry.num_tokens();
    if (entry.prompt_logprobs) {
      rows += entry.num_tokens();
    } else if (entry.sample) {
      rows += 1 + static_cast<int32_t>(entry.draft_token_ids.size());
    }
    if (entry.num_tokens() == 0) return Broken(entry, "runs no tokens");
    const size_t at = static_cast<size_t>(entry.index.value());
    if (at < seen.size() && seen[at]) return Broken(entry, "scheduled twice");
    if (at < seen.size()) seen[at] = true;
  }
  if (tokens != plan.total_num_tokens) return Internal("total_num_tokens is not the sum");
  if (tokens > options_.max_num_tokens) return Internal("the plan exceeds the token limit");
  if (rows > options_.max_num_logits_rows) return Internal("the plan exceeds the logits row limit");
  return OkStatus();
}

FakeModel::Entry* FakeModel::At(const Slot& slot, int32_t position) {
  const BlockId block = slot.blocks[position / options_.block_size];
  return &kv_[block.value() * options_.block_size + position % options_.block_size];
}

uint64_t FakeModel::Fingerprint(const Slot& slot, int32_t position, int32_t token) {
  uint64_t h = position == 0 ? ContentBefore(*slot.request) : At(slot, position - 1)->fingerprint;
  h ^= MediaAt(*slot.request, position);
  // The finalizer of splitmix64, by Sebastiano Vigna.
  h += (static_cast<uint64_t>(token) + 1) * 0x9E3779B97F4A7C15u;
  h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
  h = (h ^ (h >> 27)) * 0x94D049BB133111EBu;
  return h ^ (h >> 31);
}

Status FakeModel::Start(const ScheduledRequest& entry, Slot* slot) {
  if (entry.start == nullptr) {
    if (slot->request == nullptr) return Broken(entry, "runs in a slot that was never started");
    return OkStatus();
  }
  if (slot->request != nullptr) return Broken(entry, "starts in a slot that was not released");
  *slot = Slot();
  slot->request = entry.start;
  slot->num_computed_tokens = entry.num_computed_tokens;
  slot->num_known_tokens = static_cast<int32_t>(entry.start->prompt_token_ids.size() +
                                                entry.resumed_output_token_ids.size());
  return OkStatus();
}

Status FakeModel::Append(const ScheduledRequest& entry, Slot* slot) {
  if (entry.new_block_ids.size() > 1) return Broken(entry, "more KV groups than the model has");
  for (const std::vector<BlockId>& group : entry.new_block_ids) {
    for (BlockId block : group) {
      if (block.value() <= 0 || block.value() >= options_.num_blocks) {
        return Broken(entry, "no such block: " + std::to_string(block.value()));
      }
      slot->blocks.push_back(block);
    }
  }
  return OkStatus();
}

Status FakeModel::WriteTokens(const ScheduledRequest& entry, Slot* slot) {
  if (entry.num_computed_tokens != slot->num_computed_tokens) {
    return Broken(entry, "num_computed_tokens is not where the slot stands");
  }
  const int32_t end = slot->num_computed_tokens + entry.num_tokens();
  const auto capacity = static_cast<int32_t>(slot->blocks.size()) * options_.block_size;
  if (end > capacity) return Broken(entry, "tokens beyond the block table");
  const auto num_drafts = static_cast<int32_t>(entry.draft_token_ids.size());
  if (end - num_drafts > slot->num_known_tokens) return Broken(entry, "tokens beyond those known");
  if (num_drafts > 0 && (!entry.sample || entry.prompt_logprobs || entry.token_ids.empty())) {
    return Broken(entry, "drafts that nothing is sampled behind");
  }
  const auto prompt_size = static_cast<int32_t>(slot->request->prompt_token_ids.size());
  if (!options_.chunked_prefill && end < prompt_size) return Broken(entry, "the prompt is cut");
  for (int32_t position = slot->num_computed_tokens; position < end; ++position) {
    const int32_t i = position - slot->num_computed_tokens;
    const auto count = static_cast<int32_t>(entry.token_ids.size());
    const int32_t token = i < count ? entry.token_ids[i] : entry.draft_token_ids[i - count];
    *At(*slot, position) = {token, Fingerprint(*slot, position, token)};
  }
  slot->num_computed_tokens = end;
  return OkStatus();
}

Status FakeModel::ReadContext(const Slot& slot, std::vector<int32_t>* context) {
  context->clear();
  for (int32_t position = 0; position < slot.num_computed_tokens; ++position) {
    const Entry& entry = *At(slot, position);
    if (entry.token < 0) return Internal("a context token was never written");
    if (entry.fingerprint != Fingerprint(slot, position, entry.token)) {
      return Internal("the token at position " + std::to_string(position) +
                      " was computed behind another context");
    }
    context->push_back(entry.token);
  }
  return OkStatus();
}

Status FakeModel::Answer(const ScheduledRequest& entry, Slot* slot, RequestResult* result) {
  result->index = entry.index;
  const auto num_drafts = static_cast<int32_t>(entry.draft_token_ids.size());
  const bool complete = slot->num_computed_tokens - num_drafts == slot->num_known_tokens;
  const Request& request = *slot->request;
  if (!entry.sample && !entry.prompt_logprobs && !request.pooling &&
      !request.return_routed_experts) {
    return OkStatus();
  }
  std::vector<int32_t> context;
  PAGEMILL_RETURN_IF_ERROR(ReadContext(*slot, &context));
  const std::span<const int32_t> tokens(context);
  if (entry.prompt_logprobs) {
    const std::span<const int32_t> prompt = request.prompt_token_ids;
    const size_t end = std::min(tokens.size(), prompt.size() - 1);
    for (size_t i = static_cast<size_t>(entry.num_computed_tokens); i < end; ++i) {
      result->prompt_logprobs.push_back(
          Logprobs(tokens.first(i + 1), prompt[i + 1], request.sampling.prompt_logprobs));
    }
  }
  if (request.pooling && options_.token_rows) {
    result->pooled = TokenRows(tokens, static_cast<size_t>(entry.num_computed_tokens));
  } else if (request.pooling && complete) {
    result->pooled = Pool(tokens);
  }
  if (entry.sample) {
    if (!complete) return Broken(entry, "samples before the last known token");
    Sample(entry, context, slot, result);
  }
  if (request.return_routed_experts) {  // without those of drafts that were not accepted
    const auto first = static_cast<ptrdiff_t>(entry.num_computed_tokens) * kRoutedExpertsPerToken;
    std::vector<uint16_t> all =
        RoutedExperts(context, static_cast<size_t>(slot->num_computed_tokens));
    result->routed_experts.assign(all.begin() + first, all.end());
  }
  return OkStatus();
}

void FakeModel::Sample(const ScheduledRequest& entry, std::vector<int32_t> context, Slot* slot,
                       RequestResult* result) const {
  const SamplingParams& sampling = slot->request->sampling;
  context.resize(context.size() - entry.draft_token_ids.size());
  for (size_t i = 0;; ++i) {
    const int32_t token = NextToken(context, options_.vocab_size);
    result->sampled_token_ids.push_back(token);
    if (sampling.logprobs != SamplingParams::kNoLogprobs) {
      result->logprobs.push_back(Logprobs(context, token, sampling.logprobs));
    }
    context.push_back(token);
    if (i == entry.draft_token_ids.size() || entry.draft_token_ids[i] != token) break;
  }
  slot->last_sampled = context.back();
  slot->num_known_tokens = static_cast<int32_t>(context.size());
  slot->num_computed_tokens = slot->num_known_tokens - 1;
  if (options_.max_draft_tokens > 0) Propose(std::move(context), &result->draft_token_ids);
  slot->proposed = result->draft_token_ids;
}

void FakeModel::Propose(std::vector<int32_t> context, std::vector<int32_t>* drafts) const {
  for (int32_t i = 0; i < options_.max_draft_tokens; ++i) {
    context.push_back(NextToken(context, options_.vocab_size));
    const bool wrong = context.back() % 3 == 0;
    drafts->push_back(wrong ? (context.back() + 1) % options_.vocab_size : context.back());
  }
}

std::vector<int32_t> FakeModel::Continue(std::span<const int32_t> prompt, size_t count,
                                         int32_t vocab_size) {
  std::vector<int32_t> tokens(prompt.begin(), prompt.end());
  for (size_t i = 0; i < count; ++i) tokens.push_back(NextToken(tokens, vocab_size));
  return {tokens.begin() + static_cast<ptrdiff_t>(prompt.size()), tokens.end()};
}

std::vector<float> FakeModel::Pool(std::span<const int32_t> prompt) {
  std::vector<float> pooled(kPooledSize);
  const uint64_t hash = HashTokens(prompt);
  for (int32_t i = 0; i < kPooledSize; ++i) {
    pooled[i] = static_cast<float>((hash >> (16 * i)) & 0xFFFF) / 65536.0f;
  }
  return pooled;
}

std::vector<float> FakeModel::TokenRows(std::span<const int32_t> prompt, size_t first) {
  std::vector<float> rows;
  for (size_t i = first; i < prompt.size(); ++i) {
    const std::vector<float> row = Pool(prompt.first(i + 1));
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

std::vector<uint16_t> FakeModel::RoutedExperts(std::span<const int32_t> context, size_t count) {
  std::vector<uint16_t> experts;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t hash = HashTokens(context.first(i + 1));
    for (int32_t k = 0; k < kRoutedExpertsPerToken; ++k) {
      experts.push_back(static_cast<uint16_t>(hash >> (8 * k)));
    }
  }
  return experts;
}

TokenLogprobs FakeModel::Logprobs(std::span<const int32_t> context, int32_t token_id,
                                  int32_t num_top) {
  const uint64_t hash = HashTokens(context);
  TokenLogprobs entry;
  entry.token_id = token_id;
  entry.logprob = -static_cast<float>(hash % 1000) / 1000.0f;
  entry.rank = 1 + static_cast<int32_t>(hash % 7);
  for (int32_t i = 0; i < num_top; ++i) {
    entry.top.emplace_back(i, -0.5f * static_cast<float>(i + 1));
  }
  return entry;
}

}  // namespace pagemill::step
