#include "cc/scheduler/admission/admission.h"

#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

class AdmissionTest : public testing::Test {
 protected:
  static SchedulerOptions Options() {
    SchedulerOptions options;
    options.max_num_tokens = 16;
    options.max_num_seqs = 1;
    options.max_waiting_requests = 1;
    options.max_model_len = 32;
    options.kv_cache.num_blocks = 17;
    options.kv_cache.block_size = 4;
    return options;
  }
  static RequestState Make(uint64_t id) {
    step::Request request;
    request.id = step::RequestId(id);
    request.prompt_token_ids = {1, 2, 3};
    request.start_deadline_us = 100;
    request.deadline_us = 200;
    RequestState state(std::move(request));
    state.arrival = id;
    return state;
  }

  kv_cache::KvCacheManager cache_{Options().kv_cache};
  Admission admission_{Options(), cache_};
};

TEST_F(AdmissionTest, ARequestCountsFromItsEntryToItsEnd) {
  RequestState a = Make(1), b = Make(2);
  admission_.Enter(&a, std::nullopt);
  EXPECT_EQ(admission_.queue().num_waiting(), 1);
  EXPECT_EQ(admission_.next_deadline_us(), 100);
  admission_.Start(&a);
  EXPECT_EQ(admission_.queue().num_waiting(), 0);
  EXPECT_EQ(admission_.num_started(), 1);
  EXPECT_EQ(admission_.Expired(150), nullptr) << "it started in time";
  EXPECT_EQ(admission_.Expired(200), &a);
  admission_.Enter(&b, std::nullopt);
  EXPECT_EQ(admission_.Check(*b.request, false).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(admission_.CheckIntegrity(2, 1).ok());
  admission_.Leave(&a);
  admission_.Leave(&b);
  EXPECT_TRUE(admission_.CheckIntegrity(0, 0).ok());
  EXPECT_EQ(admission_.next_deadline_us(), std::nullopt);
}

TEST_F(AdmissionTest, ATicketIsCountedOnce) {
  RequestState a = Make(1), b = Make(2);
  const QueueTicket ticket = admission_.queue().Enter(*a.request);
  admission_.queue().Enter(*b.request);
  EXPECT_TRUE(admission_.Check(*a.request, /*entered=*/true).ok());
  EXPECT_FALSE(admission_.Check(*a.request, /*entered=*/false).ok());
  admission_.Enter(&a, ticket);
  EXPECT_EQ(admission_.queue().num_waiting(), 2);
  admission_.Leave(&a);
  EXPECT_EQ(admission_.queue().num_waiting(), 1);
}

}  // namespace
}  // namespace pagemill::scheduler
