// A runner of the host's own through the C ABI, and what needs one: log probabilities, pooling,
// pins, events, sessions and tiers, whose KV the fake model checks.
#include <sys/select.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "cc/capi/pagemill.h"
#include "cc/capi/testing/fake_host_runner.h"
#include "cc/step/fake_model.h"
#include "gtest/gtest.h"

namespace {

using pagemill::capi::FakeHostRunner;
using pagemill::step::FakeModel;

std::vector<int32_t> Prompt(int count, int first = 1) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < count; ++i) prompt.push_back((first + 7 * i) % FakeHostRunner::kVocab);
  return prompt;
}

class CapiRunnerTest : public testing::Test {
 protected:
  struct Answer {
    std::vector<int32_t> tokens;
    std::vector<float> logprobs;
    std::vector<pagemill_token_value> top;  // of all tokens
    std::vector<int32_t> prompt_logprob_tokens;
    std::vector<float> pooled;
    std::string error;
    int32_t finish_reason = 0;
    int32_t num_cached_tokens = 0;
  };

  CapiRunnerTest() {
    pagemill_engine_options_init(&options_, sizeof(options_));
    FakeHostRunner::Configure(&options_);
    options_.runner = host_.runner();
    pagemill_sampling_params_init(&sampling_, sizeof(sampling_));
    sampling_.temperature = 0.0f;
    sampling_.max_tokens = 12;
    pagemill_request_init(&request_, sizeof(request_));
    request_.sampling = &sampling_;
  }
  ~CapiRunnerTest() override { pagemill_engine_destroy(engine_); }

  void Create() {
    ASSERT_EQ(pagemill_engine_create(&options_, &engine_), PAGEMILL_OK) << pagemill_last_error();
  }
  // Another process: its pages are empty.
  void Recreate() {
    pagemill_engine_destroy(engine_);
    engine_ = nullptr;
    options_.runner = second_host_.runner();
    Create();
  }
  const pagemill_request* Like(const std::vector<int32_t>& prompt) {
    request_.prompt_token_ids = prompt.data();
    request_.num_prompt_tokens = prompt.size();
    return &request_;
  }
  Answer Ask(const std::vector<int32_t>& prompt) {
    Answer answer;
    ++request_.request_id;
    if (pagemill_engine_submit_request(engine_, Like(prompt)) != PAGEMILL_OK) {
      ADD_FAILURE() << pagemill_last_error();
      return answer;
    }
    pagemill_output out;
    pagemill_output_init(&out, sizeof(out));
    do {
      if (pagemill_engine_next(engine_, 20.0, &out) != PAGEMILL_OK) {
        ADD_FAILURE() << pagemill_last_error();
        return answer;
      }
      answer.tokens.insert(answer.tokens.end(), out.token_ids, out.token_ids + out.num_tokens);
      for (size_t i = 0; i < out.num_logprobs; ++i) {
        const pagemill_token_logprobs& entry = out.logprobs[i];
        answer.logprobs.push_back(entry.logprob);
        answer.top.insert(answer.top.end(), entry.top, entry.top + entry.num_top);
      }
      for (size_t i = 0; i < out.num_prompt_logprobs; ++i) {
        answer.prompt_logprob_tokens.push_back(out.prompt_logprobs[i].token_id);
      }
      answer.pooled.insert(answer.pooled.end(), out.pooled, out.pooled + out.num_pooled);
      answer.finish_reason = out.finish_reason;
      answer.num_cached_tokens = out.num_cached_tokens;
      answer.error = out.error_message;
    } while (out.finish_reason == PAGEMILL_NOT_FINISHED);
    return answer;
  }
  void ExpectContinued(const std::vector<int32_t>& prompt, const Answer& answer) const {
    EXPECT_EQ(answer.tokens,
              FakeModel::Continue(prompt, answer.tokens.size(), FakeHostRunner::kVocab));
    EXPECT_EQ(answer.tokens.size(), static_cast<size_t>(sampling_.max_tokens)) << answer.error;
  }

  FakeHostRunner host_;
  FakeHostRunner second_host_;
  pagemill_engine_options options_;
  pagemill_sampling_params sampling_;
  pagemill_request request_;
  pagemill_engine* engine_ = nullptr;
};

TEST_F(CapiRunnerTest, RunsTheHostsModel) {
  Create();
  const std::vector<int32_t> prompt = Prompt(50);  // two steps
  ExpectContinued(prompt, Ask(prompt));
  const Answer again = Ask(prompt);
  ExpectContinued(prompt, again);
  EXPECT_EQ(again.num_cached_tokens, 48);
}

TEST_F(CapiRunnerTest, LogprobsOfOutputAndPrompt) {
  Create();
  sampling_.logprobs = 3;
  sampling_.prompt_logprobs = 1;
  const std::vector<int32_t> prompt = Prompt(9);
  const Answer answer = Ask(prompt);
  ExpectContinued(prompt, answer);
  EXPECT_EQ(answer.prompt_logprob_tokens, std::vector<int32_t>(prompt.begin() + 1, prompt.end()));
  ASSERT_EQ(answer.logprobs.size(), answer.tokens.size());
  std::vector<int32_t> context = prompt;
  for (size_t i = 0; i < answer.tokens.size(); ++i) {
    const auto want = FakeModel::Logprobs(context, answer.tokens[i], 3);
    EXPECT_EQ(answer.logprobs[i], want.logprob);
    for (size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(answer.top[3 * i + k].token_id, want.top[k].first);
      EXPECT_EQ(answer.top[3 * i + k].value, want.top[k].second);
    }
    context.push_back(answer.tokens[i]);
  }
}

TEST_F(CapiRunnerTest, Pools) {
  host_.runner()->pooling = 1;
  Create();
  request_.pooling = 1;
  const std::vector<int32_t> prompt = Prompt(20);
  const Answer answer = Ask(prompt);
  EXPECT_EQ(answer.pooled, FakeModel::Pool(prompt)) << answer.error;
  EXPECT_EQ(answer.finish_reason, PAGEMILL_FINISH_STOP);
  request_.second_text_start = 7;
  EXPECT_EQ(Ask(prompt).pooled, answer.pooled);
  EXPECT_EQ(host_.second_text_start, 7);
}

TEST_F(CapiRunnerTest, AFailureOfTheRunnerIsThatOfTheStepsRequests) {
  Create();
  host_.on_collect = [](pagemill_step_result*) {
    pagemill_set_last_error("the device is on fire");
    return PAGEMILL_UNAVAILABLE;
  };
  const Answer failed = Ask(Prompt(5));
  EXPECT_EQ(failed.finish_reason, PAGEMILL_FINISH_ERROR);
  EXPECT_EQ(failed.error, "the device is on fire");
}

TEST_F(CapiRunnerTest, MistakesInCollectFailTheStep) {
  Create();
  pagemill_step_result* kept = nullptr;
  const struct {
    std::function<pagemill_status(pagemill_step_result*)> collect;
    const char* message;
  } cases[] = {
      {[](pagemill_step_result*) -> pagemill_status { throw 3; }, "threw an exception"},
      {[](pagemill_step_result*) { return static_cast<pagemill_status>(77); }, "returned 77"},
      {[](pagemill_step_result* to) {
         pagemill_request_result result;
         pagemill_request_result_init(&result, sizeof(result));
         result.num_sampled_token_ids = 1;  // without an array
         return pagemill_step_result_add(to, &result);
       },
       "sampled_token_ids is NULL"},
      {[](pagemill_step_result* to) { return pagemill_step_result_add(to, nullptr); },
       "result is NULL"},
      {[](pagemill_step_result* to) {  // then the fake adds a second one
         pagemill_request_result result;
         pagemill_request_result_init(&result, sizeof(result));
         return pagemill_step_result_add(to, &result);
       },
       "have a result"},
      {[&](pagemill_step_result* to) {
         kept = to;
         return pagemill_engine_pause(engine_, PAGEMILL_PAUSE_KEEP);  // would wait for itself
       },
       "let another thread call the engine"},
  };
  for (const auto& c : cases) {
    host_.on_collect = c.collect;
    const Answer failed = Ask(Prompt(5));
    EXPECT_EQ(failed.finish_reason, PAGEMILL_FINISH_ERROR) << c.message;
    EXPECT_NE(failed.error.find(c.message), std::string::npos) << failed.error;
  }
  pagemill_request_result late;
  pagemill_request_result_init(&late, sizeof(late));
  EXPECT_EQ(pagemill_step_result_add(kept, &late), PAGEMILL_FAILED_PRECONDITION);
  EXPECT_EQ(pagemill_step_result_add(nullptr, &late), PAGEMILL_INVALID_ARGUMENT);
}

TEST_F(CapiRunnerTest, OneRequestFailsAndOthersGoOn) {
  Create();
  host_.on_collect = [](pagemill_step_result* to) {
    pagemill_request_result result;
    pagemill_request_result_init(&result, sizeof(result));
    result.error = PAGEMILL_DATA_LOSS;
    result.error_message = "its KV is gone";
    EXPECT_EQ(pagemill_step_result_add(to, &result), PAGEMILL_OK);
    return PAGEMILL_UNAVAILABLE;
  };
  EXPECT_EQ(Ask(Prompt(5)).finish_reason, PAGEMILL_FINISH_ERROR);
}

TEST_F(CapiRunnerTest, IncompleteRunnersAreRefused) {
  const auto refused = [&](const char* message, auto change) {
    FakeHostRunner host;
    change(host.runner());
    options_.runner = host.runner();
    EXPECT_EQ(pagemill_engine_create(&options_, &engine_), PAGEMILL_INVALID_ARGUMENT) << message;
    EXPECT_NE(std::string(pagemill_last_error()).find(message), std::string::npos)
        << pagemill_last_error();
    EXPECT_EQ(engine_, nullptr);
  };
  refused("collect is NULL", [](pagemill_runner* r) { r->collect = nullptr; });
  refused("all three or none", [](pagemill_runner* r) { r->read_page = nullptr; });
  refused("both or none", [](pagemill_runner* r) { r->wake = nullptr; });
  refused("vocab_size is 0", [](pagemill_runner* r) { r->vocab_size = 0; });
  refused("chunked_prefill", [](pagemill_runner* r) { r->chunked_prefill = 2; });
  refused("struct_size", [](pagemill_runner* r) { r->struct_size = 8; });
  refused("kv_groups is NULL", [](pagemill_runner* r) { r->num_kv_groups = 1; });
  pagemill_kv_group group;
  pagemill_kv_group_init(&group, sizeof(group));
  const pagemill_kv_group* groups[] = {&group};
  const auto grouped = [&](pagemill_runner* r) {
    r->kv_groups = groups;
    r->num_kv_groups = 1;
  };
  group.checkpoints = 9;
  refused("checkpoints is 9", grouped);
  group.checkpoints = PAGEMILL_CHECKPOINTS_NONE;
  group.recent_states = 2;
  refused("recent_states is 2", grouped);
  group.recent_states = 0;
  group.kind = "spiral";
  refused("spiral", grouped);
}

TEST_F(CapiRunnerTest, TheDescriptorIsReadableWhileOutputsWait) {
  Create();
  int32_t fd = -1;
  ASSERT_EQ(pagemill_engine_output_fd(engine_, &fd), PAGEMILL_OK) << pagemill_last_error();
  const auto readable = [&](int seconds) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    timeval timeout = {.tv_sec = seconds, .tv_usec = 0};
    return select(fd + 1, &set, nullptr, nullptr, &timeout) == 1;
  };
  EXPECT_FALSE(readable(0));
  const std::vector<int32_t> prompt = Prompt(5);
  ASSERT_EQ(pagemill_engine_submit_request(engine_, Like(prompt)), PAGEMILL_OK);
  ASSERT_EQ(pagemill_engine_wait_idle(engine_, 20.0), PAGEMILL_OK);
  EXPECT_TRUE(readable(20));
  pagemill_output out;
  pagemill_output_init(&out, sizeof(out));
  while (pagemill_engine_next(engine_, 0, &out) == PAGEMILL_OK) {
  }
  EXPECT_EQ(out.finish_reason, PAGEMILL_FINISH_LENGTH);
  EXPECT_FALSE(readable(0));
}

struct Lines {
  std::mutex mutex;
  std::string text;
  int32_t worst = 0;
  pagemill_engine** engine = nullptr;
  pagemill_status of_call = PAGEMILL_OK;
};

TEST_F(CapiRunnerTest, LogLinesReachTheHostWhoseCallsFromThereAreRefused) {
  Lines lines;
  lines.engine = &engine_;
  options_.log_context = &lines;
  options_.log = [](void* context, int32_t severity, const char* line) {
    auto* to = static_cast<Lines*>(context);
    const std::lock_guard lock(to->mutex);
    to->text += line;
    to->worst = std::max(to->worst, severity);
    to->of_call = pagemill_engine_reset_prefix_cache(*to->engine);
    pagemill_engine_destroy(*to->engine);  // ignored
  };
  Create();
  host_.on_collect = [](pagemill_step_result*) { return PAGEMILL_INTERNAL; };
  EXPECT_EQ(Ask(Prompt(5)).finish_reason, PAGEMILL_FINISH_ERROR);
  const std::lock_guard lock(lines.mutex);
  EXPECT_NE(lines.text.find("the runner's function collect failed"), std::string::npos)
      << lines.text;
  EXPECT_EQ(lines.worst, PAGEMILL_LOG_WARNING);
  EXPECT_EQ(lines.of_call, PAGEMILL_FAILED_PRECONDITION);
}

TEST_F(CapiRunnerTest, PinsAndEvents) {
  options_.max_pinned_blocks = 8;
  options_.max_kv_events = 100;
  Create();
  const std::vector<int32_t> prompt = Prompt(10);
  uint64_t pin = 0;
  int32_t num_tokens = 0;
  EXPECT_EQ(pagemill_engine_pin_prefix(engine_, Like(prompt), &pin, &num_tokens),
            PAGEMILL_NOT_FOUND);
  Ask(prompt);
  ASSERT_EQ(pagemill_engine_pin_prefix(engine_, Like(prompt), &pin, &num_tokens), PAGEMILL_OK)
      << pagemill_last_error();
  EXPECT_EQ(num_tokens, 8);
  EXPECT_EQ(pagemill_engine_unpin_prefix(engine_, pin), PAGEMILL_OK);
  EXPECT_EQ(pagemill_engine_unpin_prefix(engine_, pin), PAGEMILL_NOT_FOUND);
  pagemill_kv_events events;
  pagemill_kv_events_init(&events, sizeof(events));
  ASSERT_EQ(pagemill_engine_kv_events(engine_, 1, &events), PAGEMILL_OK) << pagemill_last_error();
  ASSERT_GT(events.num_events, 0u);
  const pagemill_kv_event& first = *events.events[0];
  EXPECT_EQ(first.sequence, 1u);
  EXPECT_EQ(first.type, PAGEMILL_KV_STORED);
  EXPECT_EQ(std::string(first.medium), "pool");
  EXPECT_EQ(first.parent.size, 0u);
  EXPECT_EQ(first.block_size, 4);
  ASSERT_EQ(first.num_token_ids, 4 * first.num_hashes);
  EXPECT_EQ(std::vector<int32_t>(first.token_ids, first.token_ids + 8),
            std::vector<int32_t>(prompt.begin(), prompt.begin() + 8));
  EXPECT_EQ(first.hashes[0].size, 32u);
  EXPECT_EQ(events.next, events.events[events.num_events - 1]->sequence + 1);
  EXPECT_EQ(pagemill_engine_kv_events(engine_, events.next + 1, &events),
            PAGEMILL_INVALID_ARGUMENT);
  EXPECT_EQ(pagemill_engine_kv_events(engine_, 1, nullptr), PAGEMILL_INVALID_ARGUMENT);
}

TEST_F(CapiRunnerTest, ASessionOutlivesTheEngine) {
  Create();
  const std::string path = testing::TempDir() + "/capi.session";
  const std::vector<int32_t> prompt = Prompt(22);
  const Answer first = Ask(prompt);
  int32_t num_saved = 0;
  ASSERT_EQ(pagemill_engine_save_session(engine_, path.c_str(), Like(prompt), &num_saved),
            PAGEMILL_OK)
      << pagemill_last_error();
  EXPECT_EQ(num_saved, 20);
  Recreate();
  std::vector<int32_t> tokens(64);
  size_t count = 0;
  int32_t num_cached = 0;
  EXPECT_EQ(pagemill_engine_restore_session(engine_, path.c_str(), nullptr, tokens.data(), 3,
                                            &count, &num_cached),
            PAGEMILL_RESOURCE_EXHAUSTED);
  EXPECT_EQ(count, 22u);
  ASSERT_EQ(pagemill_engine_restore_session(engine_, path.c_str(), nullptr, tokens.data(),
                                            tokens.size(), &count, &num_cached),
            PAGEMILL_OK)
      << pagemill_last_error();
  tokens.resize(count);
  EXPECT_EQ(tokens, prompt);
  EXPECT_EQ(num_cached, 20);
  const Answer again = Ask(prompt);
  EXPECT_EQ(again.num_cached_tokens, 20);
  EXPECT_EQ(again.tokens, first.tokens);
  EXPECT_EQ(pagemill_engine_restore_session(engine_, "/does/not/exist", nullptr, tokens.data(),
                                            tokens.size(), &count, &num_cached),
            PAGEMILL_NOT_FOUND);
}

TEST_F(CapiRunnerTest, ATierHoldsWhatThePoolHasNoRoomFor) {
  options_.kv_host_bytes = 1 << 20;
  options_.num_blocks = 20;
  Create();
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < 4; ++i) prompts.push_back(Prompt(30, 11 * i + 1));
  for (int round = 0; round < 2; ++round) {
    for (const auto& prompt : prompts) ExpectContinued(prompt, Ask(prompt));
  }
  pagemill_stats stats;
  pagemill_stats_init(&stats, sizeof(stats));
  ASSERT_EQ(pagemill_engine_stats(engine_, &stats), PAGEMILL_OK);
  EXPECT_GT(stats.kv_loaded_tokens, 0u);
}

TEST_F(CapiRunnerTest, SleepsAndWakes) {
  Create();
  ASSERT_EQ(pagemill_engine_sleep(engine_, 1, 20.0), PAGEMILL_OK) << pagemill_last_error();
  EXPECT_TRUE(host_.asleep);
  const std::vector<int32_t> prompt = Prompt(5);
  EXPECT_EQ(pagemill_engine_submit_request(engine_, Like(prompt)), PAGEMILL_UNAVAILABLE);
  EXPECT_EQ(pagemill_engine_sleep(engine_, 2, 20.0), PAGEMILL_INVALID_ARGUMENT);
  ASSERT_EQ(pagemill_engine_wake(engine_, 20.0), PAGEMILL_OK) << pagemill_last_error();
  ExpectContinued(prompt, Ask(prompt));
  EXPECT_EQ(pagemill_engine_update_weights(engine_, "x", 1.0), PAGEMILL_UNIMPLEMENTED);
}

}  // namespace
