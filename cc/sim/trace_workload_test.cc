#include "cc/sim/trace_workload.h"

#include "gtest/gtest.h"

namespace pagemill::sim {
namespace {

constexpr int32_t kVocab = 100000;

TraceRequest Request(int64_t time_ns, uint64_t session, std::vector<Segment> content,
                     int32_t num_prompt_tokens, int32_t num_output_tokens) {
  return {time_ns, session, std::move(content), num_prompt_tokens, num_output_tokens};
}

std::unique_ptr<TraceWorkload> Make(std::vector<TraceRequest> trace, int32_t concurrency = 0) {
  TraceOptions options;
  options.vocab_size = kVocab;
  options.concurrency = concurrency;
  options.think_ns = 5;
  auto workload = TraceWorkload::Create(std::move(trace), options);
  EXPECT_TRUE(workload.ok()) << workload.status().message();
  return *std::move(workload);
}

TEST(TraceWorkload, APromptIsTheStartOfItsContentAndTheAnswerGoesOn) {
  auto workload = Make({Request(0, 0, {{7, 16, 0}, {8, 16, 0}}, 20, 30)});
  const Arrival arrival = workload->Take();
  ASSERT_EQ(arrival.prompt.size(), 20u);
  EXPECT_EQ(arrival.prompt[15], PseudoToken(7, 15, kVocab));
  EXPECT_EQ(arrival.prompt[19], PseudoToken(8, 3, kVocab));
  ASSERT_EQ(arrival.output.size(), 2u);
  EXPECT_EQ(arrival.output[0].content, 8u);
  EXPECT_EQ(arrival.output[0].first, 4);
  EXPECT_EQ(arrival.output[0].num_tokens, 12);
  EXPECT_EQ(arrival.output[1].num_tokens, 18);
  EXPECT_EQ(arrival.num_output_tokens, 30);
}

TEST(TraceWorkload, RequestsComeWhenTheTraceSaysAndAfterTheirSession) {
  auto workload = Make({Request(10, 1, {{1, 4, 0}}, 4, 1), Request(20, 1, {{1, 8, 0}}, 8, 1),
                        Request(30, 0, {{2, 4, 0}}, 4, 1), Request(200, 1, {{1, 9, 0}}, 9, 1)});
  EXPECT_EQ(workload->NextTime(), 10);
  EXPECT_EQ(workload->Take().ticket, 0u);
  EXPECT_EQ(workload->NextTime(), 30);  // the second one waits for the first
  EXPECT_EQ(workload->Take().ticket, 2u);
  EXPECT_EQ(workload->NextTime(), std::nullopt);
  workload->Finish(0, 100);
  EXPECT_EQ(workload->NextTime(), 105);
  EXPECT_EQ(workload->Take().ticket, 1u);
  workload->Finish(1, 110);
  EXPECT_EQ(workload->NextTime(), 200);
}

TEST(TraceWorkload, ASessionBeginsWhenAnotherEnds) {
  auto workload = Make({Request(0, 1, {{1, 4, 0}}, 4, 1), Request(0, 2, {{2, 4, 0}}, 4, 1),
                        Request(0, 1, {{1, 8, 0}}, 8, 1)},
                       1);
  EXPECT_EQ(workload->Take().ticket, 0u);
  EXPECT_EQ(workload->NextTime(), std::nullopt);
  workload->Finish(0, 50);
  EXPECT_EQ(workload->NextTime(), 55);
  EXPECT_EQ(workload->Take().ticket, 2u);
  workload->Finish(2, 70);
  EXPECT_EQ(workload->NextTime(), 70);
  EXPECT_EQ(workload->Take().ticket, 1u);
  workload->Finish(1, 80);
  EXPECT_EQ(workload->NextTime(), std::nullopt);
}

TEST(TraceWorkload, RefusesRequestsThatMakeNoSense) {
  const auto message = [](TraceRequest first, TraceRequest second) {
    return TraceWorkload::Create({first, second}, {}).status().message();
  };
  const TraceRequest good = Request(10, 0, {{1, 4, 0}}, 4, 1);
  EXPECT_NE(message(good, Request(5, 0, {{1, 4, 0}}, 4, 1)).find("request 1 is at 5 ns"),
            std::string::npos);
  EXPECT_NE(message(good, Request(10, 0, {{1, 4, 0}}, 5, 1)).find("content for 4 tokens"),
            std::string::npos);
  EXPECT_NE(message(good, Request(10, 0, {{1, 4, 0}}, 4, 0)).find("0 output tokens"),
            std::string::npos);
  constexpr int32_t kMost = INT32_MAX;
  EXPECT_NE(message(good, Request(10, 0, {{1, 4, 0}}, 4, kMost)).find("at most 2147483647 can"),
            std::string::npos);
  EXPECT_NE(message(good, Request(10, 0, {{1, kMost, 0}, {2, 1, 0}}, 4, 1)).find("at most"),
            std::string::npos);
}

}  // namespace
}  // namespace pagemill::sim
