// File: cc/step/request.h
// A request as it enters the engine. Immutable after submission; its progress is the scheduler's. A
// copy shares the tokens and media items.
#ifndef PAGEMILL_CC_STEP_REQUEST_H_
#define PAGEMILL_CC_STEP_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cc/base/field_info.h"
#include "cc/base/strong_id.h"
#include "cc/step/growing_list.h"
#include "cc/step/logits_processor.h"
#include "cc/step/media_item.h"
#include "cc/step/sampling_params.h"
#include "cc/step/token_matcher.h"

namespace pagemill::step {

// Unique among the requests alive in one engine; chosen by the submitter.
using RequestId = StrongId<struct RequestIdTag, uint64_t>;
// A running request's slot in the batch state, in [0, max_num_seqs); reused after it is released.
using RequestIndex = StrongId<struct RequestIndexTag, int32_t>;
// A page of the KV pool; 0 is the null block.
using BlockId = StrongId<struct BlockIdTag, int32_t>;

// One load of a set of adapter weights; 0 = the model as it is. Cached KV is found by it, also in
// files that outlive the process, so an id is never used for another load: Engine::NewAdapterId()
// issues them.
using AdapterId = StrongId<struct AdapterIdTag, uint64_t>;

inline constexpr BlockId kNullBlock{0};
inline constexpr AdapterId kNoAdapter{0};

// Present on a request for a pooled output (embedding) instead of generated tokens. The pooling
// itself is the program's tail.
struct PoolingParams {};

// What KV connectors of two engines tell one another about a request, by way of the client: the
// engine that computed the prompt gives it with the last output, and the client submits it to the
// engine that goes on. Values mean something to the connector only (docs/kv_tiers.md).
using KvTransferParams = std::map<std::string, std::string>;
inline constexpr size_t kMaxKvTransferParams = 32;
inline constexpr size_t kMaxKvTransferParamsBytes = 4096;  // of all keys and values

struct Request {
  RequestId id;
  GrowingList<int32_t> prompt_token_ids;  // not empty
  SamplingParams sampling;                // ignored where `pooling` is set
  std::optional<PoolingParams> pooling;
  // Constrains the output: which tokens may come next. Empty = all may; ignored if `pooling` is
  // set. Of this process: it travels neither as text nor between processes.
  TokenMatcherFactory new_token_matcher;
  // Changes the logits that its tokens are chosen from. Empty = none; likewise otherwise.
  LogitsProcessor logits_processor;
  int32_t priority = 0;    // lower runs earlier; needs the priority policy
  std::string tenant;      // whose share the fair policy charges; empty = the default tenant
  std::string cache_salt;  // separates prefix-cache namespaces; empty = shared
  bool skip_reading_prefix_cache = false;
  // Give the experts that each layer chose for each token (StepResult). The whole prompt is
  // computed, since they are not cached with its KV.
  bool return_routed_experts = false;
  KvTransferParams kv_transfer_params;  // for the connector; ignored if there is none
  AdapterId adapter = kNoAdapter;
  // The first prompt token of the second of two texts that a pooling model reads together; 0 = the
  // prompt is one text. Encoders with token types have another one from here on.
  int32_t second_text_start = 0;
  GrowingList<MediaItem> media;  // in the order of their positions, not overlapping
  // The request does not start before Scheduler::Release(): something it needs is being made, such
  // as its grammar.
  bool starts_held = false;
  // More of the prompt comes by Scheduler::Extend(); nothing is sampled before its last part.
  bool streaming_input = false;
  // In microseconds of the caller's clock (Scheduler::Expire); empty = none. A request that has not
  // started by the first, or not ended by the second, ends with kDeadlineExceeded.
  std::optional<int64_t> start_deadline_us;
  std::optional<int64_t> deadline_us;

  template <typename Visitor>
  static void Visit(Visitor&& visit) {
    using R = Request;
    visit("id", &R::id, Value("unique among the requests alive in one engine"));
    visit("prompt_token_ids", &R::prompt_token_ids, Value("not empty"));
    visit("pooling", &R::pooling, Value("give a pooled output instead of tokens"));
    visit("priority", &R::priority, Value("lower runs earlier; needs the priority policy"));
    visit("tenant", &R::tenant, Value("whose share the fair policy charges"));
    visit("adapter", &R::adapter, Value("0 = the model as it is"));
    visit("second_text_start", &R::second_text_start,
          Value("first prompt token of the second text of a pair; 0 = one text"));
    visit("media", &R::media, Value("in the order of their positions, not overlapping"));
    visit("starts_held", &R::starts_held, Value("does not start before it is released"));
    visit("streaming_input", &R::streaming_input, Value("the rest of the prompt comes later"));
    visit("start_deadline_us", &R::start_deadline_us, Value("it has started by then, or fails"));
    visit("deadline_us", &R::deadline_us, Value("it has ended by then, or fails"));
    visit("cache_salt", &R::cache_salt, Value("separates prefix-cache namespaces"));
    visit("skip_reading_prefix_cache", &R::skip_reading_prefix_cache,
          Value("compute the whole prompt"));
    visit("return_routed_experts", &R::return_routed_experts,
          Value("give the experts that each layer chose for each token"));
    visit("kv_transfer_params", &R::kv_transfer_params,
          Value("for the KV connector, from the engine that computed the prompt"));
    visit("sampling", &R::sampling, Value("ignored if `pooling` is set"));
  }
};

}  // namespace pagemill::step

#endif  // PAGEMILL_CC_STEP_REQUEST_H_
