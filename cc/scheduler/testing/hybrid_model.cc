#include "cc/scheduler/testing/hybrid_model.h"

#include <algorithm>
#include <string>

#include "cc/base/endian.h"
#include "cc/base/xxh3.h"

namespace pagemill::scheduler {
namespace {

using step::FakeModel;
using step::StateCheckpoints;

uint64_t Mix(uint64_t a, uint64_t b) {
  uint8_t bytes[16];
  StoreLittle64(a, bytes);
  StoreLittle64(b, bytes + 8);
  return Xxh3_128(bytes, sizeof(bytes)).low;
}

uint64_t HashOf(const std::string& text) { return Xxh3_128(text.data(), text.size()).low; }

// What stands at a position besides the token: an item of media, or nothing.
uint64_t MediaAt(const step::Request& request, int32_t position) {
  for (const step::MediaItem& item : request.media) {
    const int32_t offset = position - item.first_token;
    if (offset >= 0 && offset < item.num_tokens) return HashOf(item.content_id);
  }
  return 0;
}

Status Broken(const std::string& kind, int32_t token, const char* what) {
  return Internal("group \"" + kind + "\", token " + std::to_string(token) + ": " + what);
}

FakeModel::Options ModelOptions(const SchedulerOptions& options) {
  FakeModel::Options made;
  made.num_blocks = options.kv_cache.num_blocks;
  made.block_size = options.kv_cache.block_size;
  made.max_num_seqs = options.max_num_seqs;
  made.vocab_size = options.vocab_size;
  made.max_num_tokens = options.max_num_tokens;
  made.max_num_logits_rows = options.max_num_logits_rows;
  made.chunked_prefill = options.chunked_prefill;
  made.max_draft_tokens = options.max_draft_tokens;
  made.token_rows = options.token_rows;
  made.max_encoder_tokens = options.max_encoder_tokens;
  made.encoder_cache_tokens = options.EncoderCacheTokens();
  made.chunked_media_input = options.chunked_media_input;
  made.max_adapters = options.max_adapters;
  return made;
}

}  // namespace

HybridModel::HybridModel(const SchedulerOptions& options)
    : model_(ModelOptions(options)),
      groups_(options.kv_cache.groups),
      slots_(static_cast<size_t>(options.max_num_seqs)),
      pages_(static_cast<size_t>(options.kv_cache.num_blocks)) {
  for (step::KvGroupOptions& group : groups_) {
    if (group.block_size == 0) group.block_size = options.kv_cache.block_size;
  }
}

StatusOr<step::StepResult> HybridModel::Run(const step::StepPlan& plan) {
  PAGEMILL_ASSIGN_OR_RETURN(const step::StepPlan exact, model_.Resolve(plan));
  for (const step::ScheduledRequest& entry : exact.scheduled) {
    Slot* slot = &slots_[entry.index.value()];
    Start(entry, slot);
    PAGEMILL_RETURN_IF_ERROR(RunEntry(entry, slot));
  }
  step::StepPlan plain = plan;
  for (step::ScheduledRequest& entry : plain.scheduled) {
    if (entry.new_block_ids.size() > 1) entry.new_block_ids.resize(1);
  }
  PAGEMILL_ASSIGN_OR_RETURN(step::StepResult result, model_.Run(plain));
  for (const step::RequestResult& answer : result.results) {
    std::vector<int32_t>& context = slots_[answer.index.value()].context;
    context.insert(context.end(), answer.sampled_token_ids.begin(), answer.sampled_token_ids.end());
  }
  return result;
}

void HybridModel::Skip(const step::StepPlan& plan) {
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    Start(entry, &slots_[entry.index.value()]);
  }
  model_.Skip(plan);
}

void HybridModel::Start(const step::ScheduledRequest& entry, Slot* slot) const {
  if (entry.start != nullptr) {
    *slot = Slot();
    slot->request = entry.start;
    slot->context = entry.start->prompt_token_ids.ToVector();
    slot->context.insert(slot->context.end(), entry.resumed_output_token_ids.begin(),
                         entry.resumed_output_token_ids.end());
    const auto adapter = static_cast<uint64_t>(entry.start->adapter.value());
    slot->prints = {Mix(HashOf(entry.start->cache_salt), adapter)};
    slot->tables.resize(groups_.size());
  }
  for (size_t g = 0; g < entry.new_block_ids.size(); ++g) {
    slot->tables[g].insert(slot->tables[g].end(), entry.new_block_ids[g].begin(),
                           entry.new_block_ids[g].end());
  }
}

Status HybridModel::RunEntry(const step::ScheduledRequest& entry, Slot* slot) {
  const int32_t begin = entry.num_computed_tokens;
  const int32_t end = begin + entry.num_tokens();
  std::vector<int32_t> tokens = slot->context;
  if (!entry.draft_token_ids.empty()) {
    tokens.insert(tokens.end(), entry.draft_token_ids.begin(), entry.draft_token_ids.end());
  }
  if (end > static_cast<int32_t>(tokens.size())) {
    return Internal("the plan runs tokens that are not known");
  }
  // Those of drafts of an earlier step may be wrong.
  const size_t known = std::min(slot->prints.size(), static_cast<size_t>(begin) + 1);
  slot->prints.resize(known);
  for (size_t i = known - 1; i < static_cast<size_t>(end); ++i) {
    const uint64_t media = MediaAt(*slot->request, static_cast<int32_t>(i));
    slot->prints.push_back(Mix(slot->prints.back(), static_cast<uint64_t>(tokens[i]) ^ media));
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    PAGEMILL_RETURN_IF_ERROR(IsState(g) ? RunState(*slot, g, {begin, end})
                                        : RunTokens(*slot, g, {begin, end}));
  }
  return OkStatus();
}

int32_t HybridModel::FirstToken(size_t group, int32_t position) const {
  const step::KvGroupOptions& g = groups_[group];
  if (g.kind == "sliding_window") return std::max(0, position - g.window_tokens + 1);
  if (g.kind == "chunked_local") return position / g.window_tokens * g.window_tokens;
  return 0;
}

Status HybridModel::RunTokens(const Slot& slot, size_t group, Tokens step) {
  const step::KvGroupOptions& g = groups_[group];
  for (int32_t i = FirstToken(group, step.begin); i < step.end; ++i) {
    Page* page = PageAt(slot, group, i / g.block_size);
    if (page == nullptr) return Broken(g.kind, i, "the block table has no page for it");
    uint64_t* print = &page->prints[static_cast<size_t>(i % g.block_size)];
    const uint64_t wanted = slot.prints[static_cast<size_t>(i) + 1];
    if (i >= step.begin) {
      *print = wanted;
    } else if (*print != wanted) {
      return Broken(g.kind, i, "its page has something else");
    }
  }
  return OkStatus();
}

// Reads the state before the step; writes those at the boundaries that have pages, and those that
// the next step may begin with.
Status HybridModel::RunState(const Slot& slot, size_t group, Tokens step) {
  const step::KvGroupOptions& g = groups_[group];
  if (step.begin > 0) {
    const Page* page = StateAfter(slot, group, step.begin);
    if (page == nullptr) return Broken(g.kind, step.begin, "no state before it");
    if (page->prints[0] != slot.prints[static_cast<size_t>(step.begin)]) {
      return Broken(g.kind, step.begin, "the state before it is another one");
    }
  }
  const int32_t first_kept = step.end - std::max(1, g.recent_states) + 1;
  for (int32_t tokens = step.begin + 1; tokens <= step.end; ++tokens) {
    const bool kept = tokens >= first_kept;
    Page* page =
        kept ? StateAfter(slot, group, tokens) : StateAtBoundary(slot, group, tokens);
    if (page == nullptr && kept) return Broken(g.kind, tokens, "no page for the state");
    if (page != nullptr) page->prints[0] = slot.prints[static_cast<size_t>(tokens)];
  }
  return OkStatus();
}

HybridModel::Page* HybridModel::StateAtBoundary(const Slot& slot, size_t group, int32_t tokens) {
  const step::KvGroupOptions& g = groups_[group];
  if (tokens % g.block_size != 0 || g.checkpoints == StateCheckpoints::kNone) return nullptr;
  return PageAt(slot, group, g.recent_states + tokens / g.block_size - 1);
}

HybridModel::Page* HybridModel::StateAfter(const Slot& slot, size_t group, int32_t tokens) {
  const step::KvGroupOptions& g = groups_[group];
  if (Page* page = StateAtBoundary(slot, group, tokens)) return page;
  if (g.recent_states > 0) return PageAt(slot, group, tokens % g.recent_states);
  const bool one = g.checkpoints == StateCheckpoints::kNone;
  return PageAt(slot, group, one ? 0 : (tokens - 1) / g.block_size);
}

HybridModel::Page* HybridModel::PageAt(const Slot& slot, size_t group, int32_t entry) {
  const std::vector<step::BlockId>& table = slot.tables[group];
  if (static_cast<size_t>(entry) >= table.size()) return nullptr;
  const step::BlockId id = table[static_cast<size_t>(entry)];
  if (id == step::kNullBlock) return nullptr;
  Page* page = &pages_[static_cast<size_t>(id.value())];
  if (page->group != group || page->prints.empty()) {
    page->group = group;
    page->prints.assign(static_cast<size_t>(groups_[group].block_size), 0);
  }
  return page;
}

// The group's prints, and for group 0 the page of the FakeModel.
size_t HybridModel::page_bytes(step::GroupId group) const {
  const auto at = static_cast<size_t>(group.value());
  const size_t own = 8 * static_cast<size_t>(groups_[at].block_size);
  return own + (at == 0 ? model_.page_bytes(group) : 0);
}

Status HybridModel::Read(step::GroupId group, step::BlockId block, std::span<std::byte> to) const {
  const auto at = static_cast<size_t>(group.value());
  const Page& page = pages_[static_cast<size_t>(block.value())];
  const auto size = static_cast<size_t>(groups_[at].block_size);
  for (size_t i = 0; i < size; ++i) {
    const bool there = page.group == at && !page.prints.empty();
    StoreLittle64(there ? page.prints[i] : 0, &to[8 * i]);
  }
  return at == 0 ? model_.Read(group, block, to.subspan(8 * size)) : OkStatus();
}

Status HybridModel::Write(step::GroupId group, step::BlockId block,
                          std::span<const std::byte> from) {
  const auto at = static_cast<size_t>(group.value());
  Page* page = &pages_[static_cast<size_t>(block.value())];
  const auto size = static_cast<size_t>(groups_[at].block_size);
  page->group = at;
  page->prints.resize(size);
  for (size_t i = 0; i < size; ++i) page->prints[i] = LoadLittle64(&from[8 * i]);
  return at == 0 ? model_.Write(group, block, from.subspan(8 * size)) : OkStatus();
}

}  // namespace pagemill::scheduler
