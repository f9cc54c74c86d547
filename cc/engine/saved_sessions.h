// File: cc/engine/saved_sessions.h
// Conversations that outlive the process: their tokens and KV in a file
// (kv_transfer/session_file.h). Between two steps the engine's thread takes or frees the blocks;
// reading, writing and copying are done by the caller's thread, beside the steps.
//
//   SavedSessions sessions(pages, layout, run_between_steps);
//   PAGEMILL_ASSIGN_OR_RETURN(int32_t num_tokens, sessions.Save(path, like));
//   PAGEMILL_ASSIGN_OR_RETURN(RestoredSession session, sessions.Restore(path, like));
//
// Thread safety: all methods, if that of `run_between_steps` allows it.
#ifndef PAGEMILL_CC_ENGINE_SAVED_SESSIONS_H_
#define PAGEMILL_CC_ENGINE_SAVED_SESSIONS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/held_prefixes.h"
#include "cc/kv_transfer/session_file.h"
#include "cc/step/page_store.h"
#include "cc/step/request.h"

namespace pagemill::engine {

struct RestoredSession {
  std::vector<int32_t> token_ids;  // all that were saved
  int32_t num_cached_tokens = 0;   // leading ones whose KV is in the cache now
};

class SavedSessions {
 public:
  // Runs the function while no step is in flight and waits for it; kUnavailable, and nothing runs,
  // after the shutdown.
  using Function = std::function<void(kv_cache::HeldPrefixes*)>;
  using RunBetweenSteps = std::function<Status(Function)>;

  // What pages are, and of which weights: computed while a prefix is held, which keeps weights from
  // being updated. Not OK: it cannot be known, and sessions are neither saved nor restored.
  using Layout = std::function<StatusOr<kv_transfer::SessionLayout>()>;

  // `pages` outlives this object.
  SavedSessions(step::PageStore* pages, Layout layout, RunBetweenSteps run)
      : pages_(pages), layout_(std::move(layout)), run_(std::move(run)) {}

  // The prompt of `like` is the session's tokens; its salt and adapter count, too. Returns how many
  // leading tokens' KV is in the file, which replaces one that is there. kNotFound if none is in
  // the cache; errors of the layout and of WriteSession().
  StatusOr<int32_t> Save(const std::string& path, step::Request like);
  // `like` has the salt and the adapter of Save(). kNotFound without a file, kDataLoss if it is
  // damaged, kFailedPrecondition if it is of another model or layout (or weights were updated
  // meanwhile), kResourceExhausted if the cache has no room; errors of the layout.
  StatusOr<RestoredSession> Restore(const std::string& path, step::Request like);

 private:
  // Writes the session of a prefix that is held.
  Status Write(const std::string& path, std::span<const int32_t> token_ids,
               const kv_cache::HeldPrefix& held);
  // Copies blocks into pages; returns the first one that the file does not have whole.
  std::optional<kv_cache::BlockHash> Copy(const kv_transfer::SessionReader& reader,
                                          const kv_cache::HeldPrefix& held);

  step::PageStore* const pages_;
  const Layout layout_;
  const RunBetweenSteps run_;
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_SAVED_SESSIONS_H_
