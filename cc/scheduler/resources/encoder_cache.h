// File: cc/scheduler/resources/encoder_cache.h
// Which encoder outputs the runner has, which requests need them, and what may be encoded in a
// step. Sizes are in embeddings, one for each placeholder token of a MediaItem.
//
//   EncoderCache cache(options);
//   cache.StartStep();                                        // a new budget
//   n = cache.Fit(request, held, {begin, n, most});           // all-or-nothing items
//   cache.Take(request, begin, begin + n, &held, &entry->media_to_encode);
//   cache.Advance(request, num_computed_tokens, &held);       // with the result of a good step
//   cache.Release(request, &held, /*usable=*/true);           // it ends, or is preempted
//   cache.TakeReleased(&plan->released_media);                // with the next plan
//
// An item is encoded whole (its attention goes both ways) in the step whose tokens need it first,
// and kept while a request that needs it has not computed all its placeholders; `held` are the
// indices of those items, kept by the caller for each request. Afterwards it stays until room is
// needed: equal content ids share one output. What was unreferenced first is evicted first.
//
// References are held only for tokens that are planned and not computed, and what is cut in the
// middle can always go on. So no request waits for an output that only it could free: an item
// that is no larger than budget and cache gets its turn.
//
// Thread safety: none. Cost: O(items of the request), O(log items) for each one taken or released.
#ifndef PAGEMILL_CC_SCHEDULER_RESOURCES_ENCODER_CACHE_H_
#define PAGEMILL_CC_SCHEDULER_RESOURCES_ENCODER_CACHE_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cc/base/status.h"
#include "cc/step/request.h"

namespace pagemill::scheduler {

class EncoderCache {
 public:
  struct Options {
    int32_t max_encoder_tokens = 0;    // embeddings encoded in one step
    int32_t encoder_cache_tokens = 0;  // embeddings kept
    bool chunked_media_input = true;   // false: a step does not end inside an item's placeholders
  };
  // Tokens of a request that might run in this step.
  struct Range {
    int32_t begin = 0;
    int32_t num_tokens = 0;
    int32_t most = 0;  // to which num_tokens may be raised where an item must not be cut
  };
  using Held = std::vector<int32_t>;  // indices into Request::media

  explicit EncoderCache(const Options& options) : options_(options) {}

  void StartStep() {
    budget_ = options_.max_encoder_tokens;
    closed_ = false;
  }
  // No request gets a further item in this step: one that has to wait for budget or room is not to
  // be overtaken for ever by smaller ones.
  void Close() { closed_ = true; }
  // How many tokens of the range may run: up to just before the first item that cannot be encoded
  // in this step. Without chunked_media_input the range is also cut to before an item that it does
  // not cover to its end, or raised to cover one that it starts with or in.
  int32_t Fit(const step::Request& request, const Held& held, const Range& range) const;
  // References what tokens [begin, end) need, and appends the indices of those items that are to be
  // encoded. Only after Fit() allowed these tokens.
  void Take(const step::Request& request, int32_t begin, int32_t end, Held* held,
            std::vector<int32_t>* media_to_encode);
  // Releases the items whose placeholders are all among the first `num_computed_tokens`. Those
  // that were needed for some of these tokens do exist.
  void Advance(const step::Request& request, int32_t num_computed_tokens, Held* held);
  // Releases all. Not `usable`: they may never have been encoded, because the request failed. The
  // same goes for items of steps whose results are not known. They are dropped as soon as no
  // request holds them, and no other request gets them.
  void Release(const step::Request& request, Held* held, bool usable);
  // Drops all items that no request refers to.
  void EvictUnreferenced();
  // Moves out the content ids that were evicted since the last call.
  void TakeReleased(std::vector<std::string>* released);

  int64_t num_used_tokens() const { return used_; }              // embeddings kept
  int64_t num_referenced_tokens() const { return referenced_; }  // of those, needed by requests
  int64_t max_tokens() const { return options_.encoder_cache_tokens; }
  uint64_t num_queries() const { return num_queries_; }  // items that Take() looked up
  uint64_t num_hits() const { return num_hits_; }        // of those, found

  struct Holder {
    const step::Request* request;
    const Held* held;
  };
  // Sizes, and reference counts against `holders`. O(items).
  Status CheckIntegrity(std::span<const Holder> holders) const;

 private:
  struct Item {
    int32_t size = 0;
    int32_t num_references = 0;
    bool encoded = false;  // a step that needed it went well
    bool usable = true;
    uint64_t order = 0;  // key in `unreferenced_`, if no request refers to it
  };
  using Items = std::unordered_map<std::string, Item>;

  bool Needs(const step::Request& request, size_t index, int32_t begin, int32_t end,
             const Held& held) const;
  bool Reference(const std::string& content_id);
  void Allocate(const step::MediaItem& item);
  void Unreference(const std::string& content_id, bool usable);
  void Evict(Items::iterator item);

  const Options options_;
  int64_t budget_ = 0;  // left in this step
  bool closed_ = false;
  int64_t used_ = 0;
  int64_t referenced_ = 0;
  uint64_t num_orders_ = 0;
  uint64_t num_queries_ = 0;
  uint64_t num_hits_ = 0;
  Items items_;
  std::map<uint64_t, std::string> unreferenced_;  // by when they became so
  std::vector<std::string> released_;
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_RESOURCES_ENCODER_CACHE_H_
