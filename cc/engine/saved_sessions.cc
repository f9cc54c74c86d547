#include "cc/engine/saved_sessions.h"

namespace pagemill::engine {

using kv_cache::HeldPrefix;
using kv_cache::HeldPrefixes;

StatusOr<int32_t> SavedSessions::Save(const std::string& path, step::Request like) {
  std::optional<StatusOr<HeldPrefix>> held;
  PAGEMILL_RETURN_IF_ERROR(
      run_([&](HeldPrefixes* prefixes) { held = prefixes->HoldCached(like); }));
  PAGEMILL_RETURN_IF_ERROR(held->status());
  const HeldPrefix& prefix = **held;
  const Status written = Write(path, like.prompt_token_ids, prefix);
  PAGEMILL_RETURN_IF_ERROR(run_([&](HeldPrefixes* prefixes) { prefixes->End(prefix.id); }));
  PAGEMILL_RETURN_IF_ERROR(written);
  return prefix.end_token;
}

Status SavedSessions::Write(const std::string& path, std::span<const int32_t> token_ids,
                            const HeldPrefix& held) {
  PAGEMILL_ASSIGN_OR_RETURN(const kv_transfer::SessionLayout layout, layout_());
  return kv_transfer::WriteSession(path, layout, token_ids, held.end_token, held.contents, *pages_);
}

std::optional<kv_cache::BlockHash> SavedSessions::Copy(const kv_transfer::SessionReader& reader,
                                                       const HeldPrefix& held) {
  std::vector<std::byte> bytes;
  for (const kv_cache::BlockContent& content : held.contents) {
    bytes.resize(pages_->page_bytes(content.group));
    if (!reader.Read({content.hash, content.group}, bytes).ok() ||
        !pages_->Write(content.group, content.block, bytes).ok()) {
      return content.hash;
    }
  }
  return std::nullopt;
}

StatusOr<RestoredSession> SavedSessions::Restore(const std::string& path, step::Request like) {
  PAGEMILL_ASSIGN_OR_RETURN(const kv_transfer::SessionLayout layout, layout_());
  PAGEMILL_ASSIGN_OR_RETURN(const kv_transfer::SessionReader reader,
                            kv_transfer::SessionReader::Open(path, layout));
  // States are saved at the end of what was cached only.
  const auto first = reader.token_ids().begin();
  like.prompt_token_ids = std::vector<int32_t>(first, first + reader.num_cached_tokens());
  std::optional<StatusOr<HeldPrefix>> held;
  PAGEMILL_RETURN_IF_ERROR(
      run_([&](HeldPrefixes* prefixes) { held = prefixes->HoldMissing(like); }));
  PAGEMILL_RETURN_IF_ERROR(held->status());
  const StatusOr<kv_transfer::SessionLayout> now = layout_();
  const bool same_weights = now.ok() && now->fingerprint == layout.fingerprint;
  std::optional<kv_cache::BlockHash> missing;
  if (same_weights) {
    missing = Copy(reader, **held);
  } else if (!(*held)->contents.empty()) {
    missing = (*held)->contents.front().hash;
  }
  RestoredSession session{reader.token_ids()};
  PAGEMILL_RETURN_IF_ERROR(run_([&](HeldPrefixes* prefixes) {
    session.num_cached_tokens = prefixes->End((*held)->id, missing);
  }));
  PAGEMILL_RETURN_IF_ERROR(now.status());
  if (same_weights) return session;
  return FailedPrecondition("the session is of other weights than those that the engine has now");
}

}  // namespace pagemill::engine
