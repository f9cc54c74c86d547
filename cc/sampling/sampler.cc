#include "cc/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_set>
#include <utility>

#include "cc/ops/sample/row_draw.h"
#include "cc/sampling/copy_allowed.h"
#include "cc/sampling/penalties.h"
#include "cc/sampling/rejection_sampler.h"
#include "cc/step/token_mask.h"

namespace pagemill::sampling {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();
constexpr float kLowestTemperature =
    0.01f;  // smaller temperatures that are not greedy are raised to this
// Tokens with a bias, and tokens that min_tokens exclude, that Adjust() lists for a row at most. A
// row with more is the host's, as are penalties that may turn logits into infinities.
constexpr size_t kMaxBiases = 1024;
constexpr float kLeastRepetition = 1e-3f, kMostRepetition = 1e3f;

// The tokens that min_tokens exclude at first, sorted and distinct.
std::vector<int32_t> EndsOf(const step::SamplingParams& params) {
  if (params.min_tokens == 0) return {};
  std::vector<int32_t> ends = params.eos_token_ids;
  ends.insert(ends.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
  std::ranges::sort(ends);
  const auto rest = std::ranges::unique(ends);
  ends.erase(rest.begin(), rest.end());
  return ends;
}

// The biases of tokens, each once: those that a token has are added.
std::vector<std::pair<int32_t, float>> BiasesOf(const step::SamplingParams& params) {
  std::vector<std::pair<int32_t, float>> biases = params.logit_bias;
  std::ranges::stable_sort(biases, {}, &std::pair<int32_t, float>::first);
  size_t size = 0;
  for (const auto& [id, bias] : biases) {
    if (size > 0 && biases[size - 1].first == id) {
      biases[size - 1].second += bias;
    } else {
      biases[size++] = {id, bias};
    }
  }
  biases.resize(size);
  return biases;
}

// Excludes the tokens in front of `begin` if those from there on, the timestamps, have together a
// larger probability than each of them. Source: Radford et al., "Robust Speech Recognition via
// Large-Scale Weak Supervision", ApplyTimestampRules of its code.
void PreferTimestamps(const ops::RowPasses& passes, std::span<float> logits, size_t begin,
                      std::span<ops::Candidate> storage) {
  const std::span<float> text = logits.first(begin), timestamps = logits.subspan(begin);
  const ops::MaxEntry timestamp = ops::ArgMax(passes, timestamps);
  if (text.empty() || timestamp.token_id < 0) return;
  const double together = ops::LogSumExp(passes, timestamps, timestamp.logit, storage);
  if (together > ops::ArgMax(passes, text).logit) std::ranges::fill(text, kExcluded);
}

Status NotFinite() {
  return Internal(
      "the model's logits are not finite; the weights or a kernel are at fault "
      "(`pagemill doctor` shows the kernels in use)");
}

Status NoTokenAllowed() {
  return InvalidArgument(
      "no token may come next under the request's output constraint or logits processor; relax "
      "it, or check that the vocabulary can spell what it requires");
}

// Checks what a request's processor made of logits.
Status CheckProcessed(std::span<const float> logits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto bad = std::ranges::find_if(logits, [](float v) { return !(v < kInfinity); });
  if (bad == logits.end()) return OkStatus();
  return Internal("the request's logits processor gave token " +
                  std::to_string(bad - logits.begin()) +
                  " a logit that is NaN or infinite; only -inf may be, which excludes a token");
}

}  // namespace

bool ScoresSuffice(const step::SamplingParams& params, bool of_prompt) {
  const int32_t wanted = of_prompt ? params.prompt_logprobs : params.logprobs;
  if (wanted == step::SamplingParams::kNoLogprobs) return true;
  if (wanted == step::SamplingParams::kAllLogprobs || wanted > ops::kMaxScoredTop) return false;
  if (of_prompt) return !params.reports_logits();
  return params.logprobs_mode == step::SamplingParams::kRawLogprobs &&
         params.logprob_token_ids.empty();
}

Status CheckScored(const ops::RowMaximum& found, const ops::TokenScores& scores) {
  return found.usable() && !std::isnan(scores.logprob) ? OkStatus() : NotFinite();
}

step::TokenLogprobs LogprobsOf(int32_t token_id, const ops::TokenScores& scores, int32_t wanted,
                               int32_t vocab_size) {
  step::TokenLogprobs out = {
      .token_id = token_id, .logprob = scores.logprob, .rank = scores.rank};
  const auto num_top = static_cast<size_t>(std::min(wanted, vocab_size));
  out.top.reserve(num_top);
  for (size_t i = 0; i < num_top; ++i) {
    out.top.emplace_back(scores.top_ids[i], scores.top_logprobs[i]);
  }
  return out;
}

ops::DrawParams DrawParamsOf(const step::SamplingParams& params) {
  return {.temperature = std::max(params.temperature, kLowestTemperature),
          .min_weight = params.min_p,
          .top_k = params.top_k,
          .top_p = params.top_p};
}

ops::RowDraw RowDrawOf(const step::SamplingParams& params, int32_t num_outputs) {
  if (params.greedy()) return {};
  ops::RowDraw draw = {.temperature = std::max(params.temperature, kLowestTemperature),
                       .min_p = params.min_p,
                       .top_p = params.top_p,
                       .top_k = params.top_k,
                       .position = num_outputs};
  draw.SetSeed(params.seed);
  return draw;
}

struct Sampler::Slot {
  std::shared_ptr<const step::Request> request;  // null: the slot is free
  int32_t num_outputs = 0;                       // tokens sampled so far
  int32_t first_found = kNever;                  // NeedsOnlyToken() from so many outputs on
  int32_t first_adjusted = kNever;               // NeedsOnlyAdjustedToken(), likewise
  bool masked = false;                           // rows may have masks
  bool penalized = false;                        // penalties.active(), near what each step reads
  std::vector<int32_t> ends;  // tokens that min_tokens exclude, sorted and distinct
  std::vector<std::pair<int32_t, float>> biases;  // a token once
  Penalties penalties;
  bool marked = false;                    // tokens are drawn with the watermark
  std::vector<int32_t> outputs;           // if the request is marked() or processed()
  std::unordered_set<uint64_t> contexts;  // of the tokens that were drawn with the watermark

  static constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
  bool BelowMinTokens() const { return num_outputs < request->sampling.min_tokens; }
  bool AlwaysChangesLogits() const {
    return !biases.empty() || penalized || request->sampling.has_timestamps() || processed();
  }
  bool processed() const { return static_cast<bool>(request->logits_processor); }
  bool ChangesLogits() const { return BelowMinTokens() || AlwaysChangesLogits(); }
  int32_t FirstAdjusted(int32_t vocab_size) const {
    const step::SamplingParams& params = request->sampling;
    if (!ScoresSuffice(params, /*of_prompt=*/false) || params.has_timestamps()) return kNever;
    if (processed() || marked) return kNever;
    if (biases.size() > kMaxBiases) return kNever;
    const float repetition = params.repetition_penalty;
    if (repetition < kLeastRepetition || repetition > kMostRepetition) return kNever;
    // min_tokens do not apply if they exclude all tokens that a mask allows.
    const bool may_exclude_all = masked || ends.size() >= static_cast<size_t>(vocab_size);
    return may_exclude_all || ends.size() > kMaxBiases ? params.min_tokens : 0;
  }
};

// A row after steps that change logits, and its maximum (token -1: no token is allowed).
struct Sampler::Processed {
  std::span<const float> logits;
  ops::MaxEntry max;
};

struct Sampler::Scratch {
  std::vector<float> logits;               // [vocab], a row that masks or penalties change
  std::vector<float> changed;              // [vocab], by a processor; empty before the first
  std::vector<float> kept;                 // [vocab], Keep()'s; empty before the first
  std::vector<ops::Candidate> candidates;  // [vocab]
};

Sampler::Sampler(const SamplerOptions& options, device::ThreadPool* pool)
    : options_(options), pool_(pool), passes_(ops::ChooseRowPasses(options.capabilities)) {
  slots_.resize(static_cast<size_t>(options.max_num_seqs));
  scratch_.resize(static_cast<size_t>(pool->num_threads()));
  for (Scratch& s : scratch_) {
    s.logits.resize(static_cast<size_t>(options.vocab_size));
    s.candidates.resize(static_cast<size_t>(options.vocab_size));
  }
}

Sampler::~Sampler() = default;

void Sampler::Start(step::RequestIndex index, std::shared_ptr<const step::Request> request,
                    std::span<const int32_t> output_token_ids, bool masked) {
  Slot& slot = slots_[index.value()];
  slot.request = std::move(request);
  slot.masked = masked;
  slot.ends = EndsOf(slot.request->sampling);
  slot.biases = BiasesOf(slot.request->sampling);
  slot.penalties.Start(*slot.request, options_.vocab_size);
  slot.penalized = slot.penalties.active();
  const step::SamplingParams& params = slot.request->sampling;
  slot.marked = options_.watermark.has_value() && params.watermarking && !params.greedy();
  slot.num_outputs = 0;
  slot.outputs.clear();
  slot.contexts.clear();
  for (int32_t id : output_token_ids) AddOutput(slot, id);
  const bool needs_logits = params.logprobs != step::SamplingParams::kNoLogprobs ||
                            slot.AlwaysChangesLogits() || slot.marked;
  slot.first_found = needs_logits ? Slot::kNever : params.min_tokens;
  slot.first_adjusted = slot.FirstAdjusted(options_.vocab_size);
}

void Sampler::Release(step::RequestIndex index) { slots_[index.value()] = Slot(); }

void Sampler::AddOutput(Slot& slot, int32_t token_id) {
  if (slot.marked && options_.watermark->HasContext(slot.outputs.size())) {
    slot.contexts.insert(options_.watermark->ContextOf(slot.outputs));
  }
  if (slot.marked || slot.processed()) slot.outputs.push_back(token_id);
  slot.penalties.AddOutput(token_id);
  ++slot.num_outputs;
}

bool Sampler::NeedsOnlyToken(step::RequestIndex index) const {
  const Slot& slot = slots_[index.value()];
  PAGEMILL_CHECK(slot.request != nullptr);
  return slot.num_outputs >= slot.first_found;
}

bool Sampler::NeedsOnlyAdjustedToken(step::RequestIndex index) const {
  const Slot& slot = slots_[index.value()];
  PAGEMILL_CHECK(slot.request != nullptr);
  return slot.num_outputs >= slot.first_adjusted;
}

bool Sampler::ChangesLogits(step::RequestIndex index) const {
  const Slot& slot = slots_[index.value()];
  PAGEMILL_CHECK(slot.request != nullptr);
  return slot.ChangesLogits();
}

void Sampler::Adjust(step::RequestIndex index, const AdjustedRow& row, StepAdjustments* to) {
  Slot& slot = slots_[index.value()];
  const step::SamplingParams& params = slot.request->sampling;
  std::span<const int32_t> ends;
  if (row.num_outputs < params.min_tokens) ends = slot.ends;
  for (int32_t id : ends) to->biases.push_back({row.row, id, kExcluded});
  for (const auto& [id, bias] : slot.biases) {
    if (!std::ranges::binary_search(ends, id)) to->biases.push_back({row.row, id, bias});
  }
  if (!slot.penalized) return;
  if (row.num_drafts == 0) {
    slot.penalties.CountUpTo(row.num_outputs, index.value(), row.input, to);
  }
  ops::RowPenalties& penalties =
      to->penalties.emplace_back(slot.penalties.OfRow(row.row, index.value()));
  penalties.first_draft = row.input + 1 - row.num_drafts;
  penalties.num_drafts = row.num_drafts;
}

Status Sampler::TakeFound(step::RequestIndex index, const ops::RowMaximum& found) {
  PAGEMILL_CHECK(NeedsOnlyAdjustedToken(index));
  Slot& slot = slots_[index.value()];
  if (!found.usable()) {
    // Invalid logits are +inf.
    return slot.masked && found.logit == kExcluded ? NoTokenAllowed() : NotFinite();
  }
  if (slot.penalized) slot.penalties.AddOutput(found.column);
  ++slot.num_outputs;
  return OkStatus();
}

void Sampler::Run(std::span<const LogitsRow> rows, std::span<RowOutput> outputs) {
  PAGEMILL_CHECK(rows.size() == outputs.size());
  // Rows of one request depend on each other (a sampled token counts at once), so a unit of work is
  // all rows of a request.
  std::vector<size_t> starts;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i == 0 || rows[i].index != rows[i - 1].index) starts.push_back(i);
  }
  pool_->ParallelFor(static_cast<int64_t>(starts.size()), /*grain=*/1,
                     [&](int64_t begin, int64_t end, int worker) {
                       for (int64_t s = begin; s < end; ++s) {
                         const size_t next = static_cast<size_t>(s) + 1;
                         const size_t stop = next < starts.size() ? starts[next] : rows.size();
                         size_t i = starts[s];
                         while (i < stop && RunRow(rows[i], scratch_[worker], outputs[i])) ++i;
                       }
                     });
}

std::span<const float> Sampler::LogitsOf(const LogitsRow& row) const {
  return {row.logits, static_cast<size_t>(options_.vocab_size)};
}

// The row's logits as the request's processor changes them.
StatusOr<std::span<const float>> Sampler::CallProcessor(const LogitsRow& row,
                                                        Scratch& scratch) const {
  const Slot& slot = slots_[row.index.value()];
  const std::span<const float> logits = LogitsOf(row);
  if (!slot.processed()) return logits;
  scratch.changed.assign(logits.begin(), logits.end());
  const step::Request& request = *slot.request;
  PAGEMILL_RETURN_IF_ERROR(request.logits_processor(
      {.prompt_token_ids = request.prompt_token_ids, .output_token_ids = slot.outputs},
      scratch.changed));
  PAGEMILL_RETURN_IF_ERROR(CheckProcessed(scratch.changed));
  return std::span<const float>(scratch.changed);
}

StatusOr<Sampler::Processed> Sampler::Process(const LogitsRow& row, Scratch& scratch) const {
  const Slot& slot = slots_[row.index.value()];
  PAGEMILL_CHECK(row.mask.empty() ||
                 (slot.masked && row.mask.size() == step::NumMaskWords(options_.vocab_size)));
  const step::SamplingParams& params = slot.request->sampling;
  const std::span<float> logits(scratch.logits);
  PAGEMILL_ASSIGN_OR_RETURN(const std::span<const float> given, CallProcessor(row, scratch));
  CopyAllowed(given, row.mask, logits);
  if (slot.BelowMinTokens()) {
    for (int32_t id : slot.ends) logits[id] = kExcluded;
  }
  for (const auto& [id, bias] : slot.biases) logits[id] += bias;
  slot.penalties.Apply(logits);
  if (params.has_timestamps()) {
    PreferTimestamps(passes_, logits, static_cast<size_t>(params.timestamp_begin),
                     scratch.candidates);
  }
  ops::MaxEntry max = ops::ArgMax(passes_, logits);
  // If everything was excluded, use the allowed token with the largest original logit.
  if (max.token_id < 0) {
    CopyAllowed(given, row.mask, logits);
    max = ops::ArgMax(passes_, logits);
  }
  return Processed{logits, max};
}

int32_t Sampler::Draw(const LogitsRow& row, const Processed& processed, Scratch& scratch) const {
  const Slot& slot = slots_[row.index.value()];
  const step::SamplingParams& params = slot.request->sampling;
  const auto uniform = [&](Purpose purpose) {
    return UniformOf(params.seed, slot.num_outputs, purpose);
  };
  const ops::DrawParams draw = ops::DrawParamsOf(RowDrawOf(params, slot.num_outputs));
  const std::span<ops::Candidate> storage(scratch.candidates);
  if (slot.marked && options_.watermark->HasContext(slot.outputs.size())) {
    const uint64_t context = options_.watermark->ContextOf(slot.outputs);
    if (!slot.contexts.contains(context)) {
      return options_.watermark->Draw(
          ops::WeighKept(passes_, processed.logits, processed.max, draw, storage), context);
    }
  }
  if (row.draft_token_id < 0 || row.draft_probabilities == nullptr) {
    return ops::DrawToken(passes_, processed.logits, processed.max, draw, storage);
  }
  PAGEMILL_CHECK(row.draft_token_id < options_.vocab_size);
  const DrawnDraft draft{
      .token_id = row.draft_token_id,
      .probabilities = {row.draft_probabilities, static_cast<size_t>(options_.vocab_size)}};
  return VerifyDraft(
      ops::WeighKept(passes_, processed.logits, processed.max, draw, storage), draft,
      {.acceptance = uniform(Purpose::kAcceptance), .residual = uniform(Purpose::kResidual)});
}

// The logits that a token is drawn from: divided by the temperature, -inf if min-p, top-k or top-p
// excludes the token. A greedy request has neither.
Sampler::Processed Sampler::Keep(const step::SamplingParams& params, const Processed& processed,
                                 Scratch& scratch) const {
  if (params.greedy()) return processed;
  const ops::DrawParams draw = DrawParamsOf(params);
  const ops::KeptTokens kept =
      ops::WeighKept(passes_, processed.logits, processed.max, draw, scratch.candidates);
  scratch.kept.assign(processed.logits.size(), kExcluded);
  for (const ops::Candidate& token : kept.tokens) {
    scratch.kept[token.token_id] = processed.logits[token.token_id] / draw.temperature;
  }
  return {scratch.kept, {processed.max.token_id, processed.max.logit / draw.temperature}};
}

// What the row's request wants to know of `token_id` and others in the logits that it wants to know
// them of.
step::TokenLogprobs Sampler::Report(const LogitsRow& row, const Processed& reported,
                                    int32_t token_id, Scratch& scratch) const {
  const step::SamplingParams& params = slots_[row.index.value()].request->sampling;
  const std::span<const float> logits = reported.logits;
  const std::span<ops::Candidate> storage(scratch.candidates);
  const bool of_prompt = row.prompt_token_id >= 0;
  const double subtracted =
      params.reports_logits() ? 0.0 : ops::LogSumExp(passes_, logits, reported.max.logit, storage);
  const auto value = [&](float logit) { return static_cast<float>(double{logit} - subtracted); };
  step::TokenLogprobs out;
  out.token_id = token_id;
  out.logprob = value(logits[token_id]);
  out.rank = ops::RankOf(passes_, logits, logits[token_id]);
  if (!of_prompt && !params.logprob_token_ids.empty()) {
    out.top.reserve(params.logprob_token_ids.size());
    for (int32_t id : params.logprob_token_ids) out.top.emplace_back(id, value(logits[id]));
    return out;
  }
  int32_t wanted = of_prompt ? params.prompt_logprobs : params.logprobs;
  if (wanted == step::SamplingParams::kAllLogprobs) wanted = options_.vocab_size;
  if (wanted <= 0) return out;
  const auto top = ops::TopEntries(passes_, logits, wanted, storage);
  out.top.reserve(top.size());
  for (const ops::Candidate& c : top) out.top.emplace_back(c.token_id, value(c.logit));
  return out;
}

// Returns true if the request's next row continues the sampled token.
bool Sampler::RunRow(const LogitsRow& row, Scratch& scratch, RowOutput& output) {
  Slot& slot = slots_[row.index.value()];
  PAGEMILL_CHECK(slot.request != nullptr);
  const step::SamplingParams& params = slot.request->sampling;
  const ops::MaxEntry raw_max = ops::ArgMax(passes_, LogitsOf(row));
  if (raw_max.token_id < 0) {
    output.failure = NotFinite();
    return false;
  }
  Processed reported = {LogitsOf(row), raw_max};
  const bool prompt_row = row.prompt_token_id >= 0;
  const int32_t wanted = prompt_row ? params.prompt_logprobs : params.logprobs;
  const bool reports = wanted != step::SamplingParams::kNoLogprobs;
  if (prompt_row) {
    output.token_id = row.prompt_token_id;
  } else {
    Processed processed = reported;
    if (!row.mask.empty() || slot.ChangesLogits()) {
      StatusOr<Processed> changed = Process(row, scratch);
      if (!changed.ok()) {
        output.failure = changed.status();
        return false;
      }
      processed = *changed;
    }
    if (processed.max.token_id < 0) {
      output.failure = NoTokenAllowed();
      return false;
    }
    output.token_id = params.greedy() ? processed.max.token_id : Draw(row, processed, scratch);
    AddOutput(slot, output.token_id);
    if (reports && params.reports_processed()) reported = Keep(params, processed, scratch);
  }
  if (reports) {
    output.has_logprobs = true;
    output.logprobs = Report(row, reported, output.token_id, scratch);
  }
  return row.draft_token_id < 0 || output.token_id == row.draft_token_id;
}

void Sampler::CheckIntegrity() const {
  for (const Slot& slot : slots_) {
    PAGEMILL_CHECK(slot.num_outputs >= 0);
    PAGEMILL_CHECK(slot.request != nullptr || slot.num_outputs == 0);
  }
}

}  // namespace pagemill::sampling
