// Proposer, draft length and sampler together, as in a runner: the text of a request is the same as
// without drafts, in fewer steps if it is predictable, and in hardly more time if not.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/sampling/draft_length.h"
#include "cc/sampling/draft_proposer.h"
#include "cc/sampling/ngram_proposer.h"
#include "cc/sampling/sampler.h"
#include "cc/sampling/testing/hash_model.h"
#include "cc/sampling/testing/scripted_proposer.h"

namespace pagemill::sampling {
namespace {

constexpr int32_t kVocab = 50;
constexpr size_t kTokens = 400;
const std::vector<double> kStepCosts = {1.0, 1.1, 1.2, 1.3, 1.4};  // with 0, 1, ... drafts
const step::RequestIndex kIndex(0);

struct Text {
  std::vector<int32_t> outputs;
  double time = 0.0;
};

class Speculation {
 public:
  Speculation(const HashModel* model, float temperature) : model_(model) {
    auto request = std::make_shared<step::Request>();
    request->prompt_token_ids = {1, 2, 3};
    request->sampling.temperature = temperature;
    request->sampling.seed = 11;
    text_ = request->prompt_token_ids.ToVector();
    sampler_.Start(kIndex, std::move(request), {});
  }

  Text Run(DraftProposer* proposer) {
    Text result;
    proposer->Start(kIndex, text_);
    while (result.outputs.size() < kTokens) {
      std::vector<int32_t> drafts;
      proposer->Propose(kIndex, length_.Next(kStepCosts), &drafts);
      const std::vector<int32_t> tokens = Verify(drafts);
      length_.Observe(kStepCosts, static_cast<int32_t>(drafts.size()),
                      static_cast<int32_t>(tokens.size()) - 1);
      proposer->Observe(kIndex, tokens);
      text_.insert(text_.end(), tokens.begin(), tokens.end());
      result.outputs.insert(result.outputs.end(), tokens.begin(), tokens.end());
      result.time += kStepCosts[drafts.size()];
    }
    result.outputs.resize(kTokens);
    return result;
  }

 private:
  // One step: the accepted drafts and one more token.
  std::vector<int32_t> Verify(const std::vector<int32_t>& drafts) {
    std::vector<int32_t> text = text_;
    std::vector<std::vector<float>> logits;
    std::vector<LogitsRow> rows;
    for (size_t i = 0; i <= drafts.size(); ++i) {
      logits.push_back(model_->Logits(text));
      rows.push_back({.index = kIndex, .logits = logits.back().data()});
      if (i == drafts.size()) break;
      rows.back().draft_token_id = drafts[i];
      text.push_back(drafts[i]);
    }
    std::vector<RowOutput> outputs(rows.size());
    sampler_.Run(rows, outputs);
    std::vector<int32_t> tokens;
    for (const RowOutput& output : outputs) {
      if (output.token_id < 0) break;
      tokens.push_back(output.token_id);
    }
    return tokens;
  }

  const HashModel* model_;
  device::ThreadPool pool_{{.num_threads = 1}};
  Sampler sampler_{{.max_num_seqs = 1, .vocab_size = kVocab}, &pool_};
  DraftLength length_;
  std::vector<int32_t> text_;
};

Text WithoutDrafts(const HashModel& model, float temperature) {
  ScriptedProposer none([](std::span<const int32_t>) { return -1; });
  return Speculation(&model, temperature).Run(&none);
}

int32_t MostLikely(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST(SpeculationTest, NgramsGuessATextThatRepeats) {
  const HashModel model({.vocab_size = kVocab, .context_tokens = 2});
  const Text without = WithoutDrafts(model, 0.0f);
  NgramProposer proposer({.max_num_seqs = 1});
  const Text with = Speculation(&model, 0.0f).Run(&proposer);
  EXPECT_EQ(with.outputs, without.outputs);
  EXPECT_LT(with.time, 0.6 * without.time);
}

TEST(SpeculationTest, ADraftThatIsOftenRightSavesTime) {
  const HashModel model({.vocab_size = kVocab, .scale = 6.0f});
  ScriptedProposer proposer([&](std::span<const int32_t> text) {
    const bool right = text.size() % 4 != 0;
    return right ? MostLikely(model.Logits(text)) : 0;
  });
  for (float temperature : {0.0f, 0.3f}) {
    const Text without = WithoutDrafts(model, temperature);
    const Text with = Speculation(&model, temperature).Run(&proposer);
    EXPECT_EQ(with.outputs, without.outputs);
    EXPECT_LT(with.time, 0.8 * without.time);
  }
}

TEST(SpeculationTest, ADraftThatIsNeverRightCostsLittle) {
  const HashModel model({.vocab_size = kVocab, .scale = 6.0f});
  ScriptedProposer proposer(
      [&](std::span<const int32_t> text) { return (MostLikely(model.Logits(text)) + 1) % kVocab; });
  const Text without = WithoutDrafts(model, 0.0f);
  const Text with = Speculation(&model, 0.0f).Run(&proposer);
  EXPECT_EQ(with.outputs, without.outputs);
  EXPECT_LT(with.time, 1.02 * without.time);
}

}  // namespace
}  // namespace pagemill::sampling
