// Calls the C ABI in any order and with any values, including NULLs and struct sizes of other
// headers: each call returns a status, and every accepted request ends with exactly one final
// output.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/capi/pagemill.h"
#include "cc/capi/testing/bigram_model.h"
#include "tools/fuzz/byte_reader.h"

namespace {

using pagemill::fuzz::ByteReader;

constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
constexpr double kPatienceSeconds = 60.0;  // limit for expected outputs

// The program, in a file of its own that lives as long as the process.
class ProgramFile {
 public:
  ProgramFile() {
    std::string name = (std::filesystem::temp_directory_path() / "pagemill_fuzzer.XXXXXX").string();
    const int file = mkstemp(name.data());
    PAGEMILL_CHECK(file >= 0);
    path_ = name;
    std::ofstream(path_) << pagemill::capi::BigramModel().ProgramText();
  }
  ~ProgramFile() { std::filesystem::remove(path_); }
  const char* path() const { return path_.c_str(); }

 private:
  std::string path_;
};

int32_t Number(ByteReader* in) {
  switch (in->Below(3)) {
    case 0:
      return static_cast<int32_t>(in->Byte());
    case 1:
      return in->Pick<int32_t>({-1, kMin, kMax, 1 << 16});
    default:
      return static_cast<int32_t>(in->Bits(4));
  }
}

float Real(ByteReader* in) {
  return in->Pick<float>({0.0f, 1.0f, 0.5f, -1.0f, 1e-6f, NAN, INFINITY, -INFINITY, 2.0f});
}

// A logits processor: no token comes twice in a row; fails behind token 7.
pagemill_status ExcludeLastToken(void* /*context*/, const pagemill_logits_row* row) {
  if (row->num_output_tokens == 0) return PAGEMILL_OK;
  const int32_t last = row->output_token_ids[row->num_output_tokens - 1];
  PAGEMILL_CHECK(last >= 0 && static_cast<size_t>(last) < row->vocab_size);
  row->logits[last] = -INFINITY;
  return last == 7 ? PAGEMILL_CANCELLED : PAGEMILL_OK;
}

// The struct's size, or a size that no header had.
size_t StructSize(ByteReader* in, size_t size) {
  const uint8_t choice = in->Byte();
  if (choice < 224) return size;
  return choice < 240 ? choice - size_t{224} : size - 8 * (choice - size_t{240});
}

class Session {
 public:
  Session(const char* program_path, ByteReader* in) : in_(in) {
    pagemill_engine_options options;
    pagemill_engine_options_init(&options, sizeof(options));
    options.program_path = program_path;
    options.num_threads = 1;
    options.max_model_len = 64;
    options.max_num_tokens = 32;
    options.max_num_seqs = 4;
    options.max_waiting_requests = 8;
    options.block_size = 4;
    options.max_pinned_blocks = 4;
    options.max_kv_events = 8;
    if (in_->Below(4) == 0) ChangeOptions(&options);
    const pagemill_status status = pagemill_engine_create(&options, &engine_);
    Check(status);
    PAGEMILL_CHECK((status == PAGEMILL_OK) == (engine_ != nullptr));
  }

  void Run() {
    while (!in_->empty()) Call();
    if (engine_ == nullptr) return;
    Check(pagemill_engine_resume(engine_));
    for (const uint64_t id : unfinished_) Check(pagemill_engine_release(engine_, id));
    for (const uint64_t id : streaming_) Check(pagemill_engine_abort(engine_, id));
    PAGEMILL_CHECK(pagemill_engine_wait_idle(engine_, kPatienceSeconds) == PAGEMILL_OK);
    while (Next(0.0, sizeof(pagemill_output))) {
    }
    PAGEMILL_CHECK(unfinished_.empty());
    pagemill_engine_destroy(engine_);
  }

 private:
  // Sets one field to any value; fields for amounts of memory or threads to a small one.
  void ChangeOptions(pagemill_engine_options* o) {
    const int32_t small = in_->Pick<int32_t>({0, 1, 3, 16, -1, kMin});
    switch (in_->Below(12)) {
      case 0:
        o->struct_size = StructSize(in_, sizeof(*o));
        break;
      case 1:
        o->program_path = in_->Pick<const char*>({nullptr, "", "/dev/null", "/"});
        break;
      case 2:
        o->max_num_tokens = small;
        break;
      case 3:
        o->max_num_seqs = small;
        break;
      case 4:
        o->max_num_logits_rows = small;
        break;
      case 5:
        o->num_blocks = small;
        break;
      case 6:
        o->block_size = Number(in_);
        break;
      case 7:
        o->max_waiting_requests = Number(in_);
        break;
      case 8:
        o->kv_cache_dtype =
            in_->Pick<const char*>({nullptr, "", "fp8", "int4", "int8", "k8v4", "q4_0"});
        break;
      case 9:
        o->scheduling_policy = in_->Pick<const char*>({nullptr, "", "fair", "priority"});
        break;
      case 10:
        o->prefix_caching_hash = in_->Pick<const char*>({nullptr, "", "sha256"});
        o->enable_prefix_caching = small;
        break;
      default:
        o->long_prefill_token_threshold = Number(in_);
    }
  }

  void Call() {
    switch (in_->Below(12)) {
      case 0:
      case 1:
      case 2:
        return Submit();
      case 3:
        return Check(pagemill_engine_abort(engine_, in_->Below(16)));
      case 4:
      case 5:
        Next(in_->Pick<double>({0.0, 1e-4, -1.0, NAN, -INFINITY}),
             StructSize(in_, sizeof(pagemill_output)));
        return;
      case 6:
        return Stats();
      case 7:
        return Check(pagemill_engine_reset_prefix_cache(engine_));
      case 8:
        return Check(pagemill_engine_wait_idle(engine_, in_->Pick<double>({0.0, -1.0, NAN})));
      case 9:
        return Extend();
      case 10:
        return Pause();
      default:
        return Rest();
    }
  }

  void Submit() {
    std::vector<int32_t> prompt(in_->Below(70));
    for (int32_t& token : prompt) token = static_cast<int32_t>(in_->Below(56)) - 1;
    std::vector<int32_t> stops(in_->Below(3), static_cast<int32_t>(in_->Below(54)));
    pagemill_sampling_params sampling;
    pagemill_sampling_params_init(&sampling, sizeof(sampling));
    sampling.max_tokens = static_cast<int32_t>(in_->Below(24)) - 1;
    sampling.temperature = Real(in_);
    sampling.stop_token_ids = stops.data();
    sampling.num_stop_token_ids = stops.size();
    if (in_->Below(4) == 0) ChangeSampling(&sampling);
    const std::string name = in_->Bytes(in_->Below(4));
    pagemill_request request;
    pagemill_request_init(&request, sizeof(request));
    request.request_id = in_->Below(16);
    request.prompt_token_ids = prompt.data();
    request.num_prompt_tokens = prompt.size();
    request.sampling = in_->Below(8) == 0 ? nullptr : &sampling;
    request.cache_salt = name.c_str();
    if (request.request_id % 4 == 3) request.logits_processor = ExcludeLastToken;
    if (in_->Below(4) == 0) ChangeRequest(&request, name.c_str());
    const pagemill_status status = pagemill_engine_submit_request(engine_, &request);
    Check(status);
    if (status != PAGEMILL_OK) return;
    unfinished_.insert(request.request_id);
    if (request.streaming_input != 0) streaming_.insert(request.request_id);
  }

  void ChangeSampling(pagemill_sampling_params* s) {
    switch (in_->Below(8)) {
      case 7:
        s->logprobs = Number(in_);
        s->prompt_logprobs = Number(in_);
        s->logprobs_mode = Number(in_);
        break;
      case 0:
        s->struct_size = StructSize(in_, sizeof(*s));
        break;
      case 1:
        s->top_k = Number(in_);
        break;
      case 2:
        s->top_p = Real(in_);
        s->min_p = Real(in_);
        break;
      case 3:
        s->presence_penalty = Real(in_);
        s->frequency_penalty = Real(in_);
        s->repetition_penalty = Real(in_);
        break;
      case 4:
        s->min_tokens = Number(in_);
        s->repetition_max_pattern = Number(in_);
        s->repetition_min_count = Number(in_);
        break;
      case 5:
        s->max_tokens = Number(in_);
        break;
      default:
        s->stop_token_ids = nullptr;
        s->num_stop_token_ids = in_->Pick<size_t>({1, SIZE_MAX, 0});
    }
  }

  void ChangeRequest(pagemill_request* r, const char* name) {
    switch (in_->Below(8)) {
      case 0:
        r->struct_size = StructSize(in_, sizeof(*r));
        break;
      case 1:
        r->prompt_token_ids = nullptr;
        break;
      case 2:
        r->num_prompt_tokens = SIZE_MAX / in_->Pick<size_t>({1, 2, 4, 8});
        break;
      case 3:
        r->priority = Number(in_);
        r->tenant = name;
        break;
      case 4:
        r->streaming_input = 1;
        break;
      case 5:
        r->starts_held = 1;
        break;
      case 6:
        r->start_timeout_s = in_->Pick<double>({1e-4, -1.0, NAN, INFINITY});
        r->timeout_s = in_->Pick<double>({0.0, 1e-3, -1.0, NAN, INFINITY});
        break;
      default:
        r->skip_reading_prefix_cache = Number(in_);
    }
  }

  void Extend() {
    std::vector<int32_t> tokens(in_->Below(20));
    for (int32_t& token : tokens) token = static_cast<int32_t>(in_->Below(56)) - 1;
    const size_t count = in_->Below(8) == 0 ? SIZE_MAX / 4 : tokens.size();
    const auto part = static_cast<int32_t>(in_->Below(4)) - 1;
    Check(pagemill_engine_extend(engine_, in_->Below(16), tokens.data(), count, part));
  }

  void Pause() {
    switch (in_->Below(5)) {
      case 0:
        return Check(pagemill_engine_pause(engine_, static_cast<int32_t>(in_->Below(5)) - 1));
      case 1:
        return Check(pagemill_engine_wait_paused(engine_, in_->Pick<double>({0.0, -1.0, NAN})));
      case 2:
        return Check(pagemill_engine_preempt_and_reset_prefix_cache(engine_));
      case 3:
        return Check(pagemill_engine_release(engine_, in_->Below(16)));
      default:
        return Check(pagemill_engine_resume(engine_));
    }
  }

  // Reads one output; false if there is none.
  bool Next(double timeout_s, size_t struct_size) {
    pagemill_output output;
    pagemill_output_init(&output, sizeof(output));
    output.struct_size = struct_size;
    const pagemill_status status = pagemill_engine_next(engine_, timeout_s, &output);
    Check(status);
    if (status != PAGEMILL_OK) return false;
    PAGEMILL_CHECK(unfinished_.contains(output.request_id));
    PAGEMILL_CHECK(output.finish_reason >= PAGEMILL_NOT_FINISHED);
    PAGEMILL_CHECK(output.finish_reason <= PAGEMILL_FINISH_REPETITION);
    for (size_t i = 0; i < output.num_tokens; ++i) {
      PAGEMILL_CHECK(output.token_ids[i] >= 0 &&
                     output.token_ids[i] < pagemill::capi::BigramModel::kVocab);
    }
    if (output.finish_reason != PAGEMILL_NOT_FINISHED) {
      unfinished_.erase(unfinished_.find(output.request_id));
    }
    return true;
  }

  void Stats() {
    pagemill_stats stats;
    pagemill_stats_init(&stats, sizeof(stats));
    stats.struct_size = StructSize(in_, sizeof(stats));
    const pagemill_status status = pagemill_engine_stats(engine_, &stats);
    Check(status);
    if (status == PAGEMILL_OK) PAGEMILL_CHECK(stats.num_used_blocks <= stats.num_blocks);
  }

  // Pins, events, sessions, sleep and weights.
  void Prefixes() {
    const int32_t prompt[] = {1, 2, 3, 4, 5, 6, 7, 8};
    pagemill_request like;
    pagemill_request_init(&like, sizeof(like));
    like.prompt_token_ids = prompt;
    like.num_prompt_tokens = in_->Below(9);
    uint64_t pin = in_->Below(4);
    int32_t number = 0;
    size_t count = 0;
    pagemill_kv_events events;
    pagemill_kv_events_init(&events, sizeof(events));
    const double timeout = in_->Pick<double>({1.0, 0.0, -1.0, NAN});
    const char* path = in_->Pick<const char*>({nullptr, "", "/", "/dev/null"});
    switch (in_->Below(8)) {
      case 0:
        return Check(pagemill_engine_pin_prefix(engine_, &like, &pin, &number));
      case 1:
        return Check(pagemill_engine_unpin_prefix(engine_, pin));
      case 2:
        return Check(pagemill_engine_kv_events(engine_, pin, &events));
      case 3:
        return Check(pagemill_engine_restore_session(engine_, path, &like, nullptr, in_->Below(2),
                                                     &count, &number));
      case 4:
        return Check(pagemill_engine_save_session(engine_, "/", &like, &number));
      case 5:
        return Check(pagemill_engine_output_fd(engine_, &number));
      case 6:
        return Check(pagemill_engine_update_weights(engine_, path, timeout));
      default:
        Check(pagemill_engine_sleep(engine_, number, timeout));
        return Check(pagemill_engine_wake(engine_, kPatienceSeconds));
    }
  }

  void Rest() {
    if (in_->Below(2) == 0) return Prefixes();
    if (in_->Below(8) == 0) return Check(pagemill_engine_drain(engine_));
    PAGEMILL_CHECK(pagemill_engine_next(engine_, 0, nullptr) == PAGEMILL_INVALID_ARGUMENT);
    PAGEMILL_CHECK(pagemill_engine_submit_request(engine_, nullptr) == PAGEMILL_INVALID_ARGUMENT);
    PAGEMILL_CHECK(pagemill_engine_stats(engine_, nullptr) == PAGEMILL_INVALID_ARGUMENT);
  }

  // An error has a code of the vocabulary and a message, and is never kInternal.
  static void Check(pagemill_status status) {
    PAGEMILL_CHECK(status >= PAGEMILL_OK && status <= PAGEMILL_DATA_LOSS);
    PAGEMILL_CHECK(status != PAGEMILL_INTERNAL);
    if (status != PAGEMILL_OK) PAGEMILL_CHECK(pagemill_last_error()[0] != '\0');
  }

  ByteReader* in_;
  pagemill_engine* engine_ = nullptr;
  // An ended id may be reused before its last output was returned.
  std::multiset<uint64_t> unfinished_;
  std::set<uint64_t> streaming_;  // ids that were submitted as streaming
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ProgramFile program;
  ByteReader in(data, size);
  Session(program.path(), &in).Run();
  return 0;
}
