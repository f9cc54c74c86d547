#include "cc/scheduler/admission/queue_admission.h"

#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

SchedulerOptions Options() {
  SchedulerOptions options;
  options.max_num_seqs = 2;
  options.max_waiting_requests = 3;
  return options;
}

step::Request MakeRequest(size_t prompt_size, const std::string& tenant = "",
                          int32_t priority = 0) {
  step::Request request;
  request.prompt_token_ids = std::vector<int32_t>(prompt_size, 1);
  request.tenant = tenant;
  request.priority = priority;
  return request;
}

void ExpectExhausted(const Status& status, const std::string& part, int32_t retry_after_s) {
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  EXPECT_EQ(status.retry_after_s(), retry_after_s);
  const std::string retry = "retry in about " + std::to_string(retry_after_s) + " s";
  EXPECT_NE(status.message().find(retry), std::string::npos) << status.message();
}

TEST(QueueAdmission, AFullQueueIsRefused) {
  QueueAdmission queue(Options());
  std::vector<QueueTicket> tickets;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(queue.CheckRoom().ok());
    EXPECT_TRUE(queue.Check(MakeRequest(4), std::nullopt).ok());
    tickets.push_back(queue.Enter(MakeRequest(4)));
  }
  ExpectExhausted(queue.Check(MakeRequest(4), std::nullopt),
                  "3 requests are waiting already (--max-num-queued-reqs)", 1);
  // 30 tokens an end at 10 tokens a second.
  queue.estimator().ObserveStep(10, 1'000'000);
  queue.estimator().ObserveOutput(30);
  ExpectExhausted(queue.Check(MakeRequest(4), std::nullopt), "--max-num-queued-reqs", 3);
  EXPECT_EQ(queue.CheckRoom(), queue.Check(MakeRequest(4), std::nullopt));
  queue.Leave(tickets[4]);
  EXPECT_TRUE(queue.CheckRoom().ok());
  EXPECT_TRUE(queue.Check(MakeRequest(4), std::nullopt).ok());
}

TEST(QueueAdmission, AStartDeadlineMayLieAsLongAgoAsAnIntegerSays) {
  QueueAdmission queue(Options());
  for (int i = 0; i < 3; ++i) queue.Enter(MakeRequest(40));
  queue.estimator().ObserveStep(10, 1'000'000);
  step::Request late = MakeRequest(4);
  late.start_deadline_us = std::numeric_limits<int64_t>::min();
  const Status status = queue.Check(late, /*now_us=*/5);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("its start deadline in 0 ms"), std::string::npos)
      << status.message();
}

TEST(QueueAdmission, TooManyWaitingTokensAreRefused) {
  SchedulerOptions options = Options();
  options.max_waiting_tokens = 100;
  QueueAdmission queue(options);
  queue.estimator().ObserveStep(10, 1'000'000);
  EXPECT_TRUE(queue.Check(MakeRequest(500), std::nullopt).ok()) << "none waits";
  QueueTicket first = queue.Enter(MakeRequest(70));
  EXPECT_TRUE(queue.Check(MakeRequest(30), std::nullopt).ok());
  // 20 of the waiting tokens must have run: 2 seconds.
  ExpectExhausted(
      queue.Check(MakeRequest(50), std::nullopt),
      "prompts of 70 tokens are waiting already, and this one has 50: more than the 100 "
      "tokens that may wait (--max-waiting-tokens)",
      2);
  EXPECT_EQ(queue.num_waiting_tokens(), 70);
  queue.Start(&first);
  EXPECT_EQ(queue.num_waiting_tokens(), 0);
  EXPECT_TRUE(queue.Check(MakeRequest(50), std::nullopt).ok());
}

TEST(QueueAdmission, ATenantsPartOfTheQueueIsBounded) {
  SchedulerOptions options = Options();
  options.max_waiting_per_tenant = 1;
  QueueAdmission queue(options);
  queue.Enter(MakeRequest(4, "a"));
  EXPECT_TRUE(queue.Check(MakeRequest(4, "a"), std::nullopt).ok()) << "a slot is free";
  QueueTicket second = queue.Enter(MakeRequest(4, "a"));
  ExpectExhausted(queue.Check(MakeRequest(4, "a"), std::nullopt),
                  "1 requests of tenant \"a\" are waiting already (--max-waiting-per-tenant)", 1);
  EXPECT_TRUE(queue.Check(MakeRequest(4, "b"), std::nullopt).ok());
  queue.Start(&second);
  queue.Leave(second);
  EXPECT_TRUE(queue.Check(MakeRequest(4, "a"), std::nullopt).ok());
}

TEST(QueueAdmission, ARequestThatWouldStartTooLateIsRefused) {
  QueueAdmission queue(Options());
  for (int i = 0; i < 3; ++i) queue.Enter(MakeRequest(100));
  step::Request request = MakeRequest(4);
  request.start_deadline_us = 5'000'000;
  EXPECT_TRUE(queue.Check(request, 4'999'999).ok()) << "no speed is known";
  queue.estimator().ObserveStep(100, 1'000'000);
  // 300 tokens are ahead: 3 seconds.
  EXPECT_EQ(queue.WaitMicros(request), 3'000'000);
  EXPECT_TRUE(queue.Check(request, 2'000'000).ok());
  ExpectExhausted(queue.Check(request, 3'600'000),
                  "the request would start in about 3 s, after its start deadline in 1400 ms", 2);
  ExpectExhausted(queue.Check(request, 6'000'000), "deadline in 0 ms", 3);
  EXPECT_TRUE(queue.Check(request, std::nullopt).ok()) << "without a time it is not checked";
  request.start_deadline_us.reset();
  EXPECT_TRUE(queue.Check(request, 6'000'000).ok());
}

TEST(QueueAdmission, BetterPriorityWaitsForLess) {
  SchedulerOptions options = Options();
  options.policy = "priority";
  options.max_waiting_requests = 100;
  QueueAdmission queue(options);
  queue.estimator().ObserveStep(100, 1'000'000);
  queue.estimator().ObserveOutput(200);
  for (int i = 0; i < 2; ++i) {
    QueueTicket running = queue.Enter(MakeRequest(10, "", 5));
    queue.Start(&running);
  }
  for (int32_t priority : {1, 1, 3}) queue.Enter(MakeRequest(100, "", priority));
  EXPECT_EQ(queue.WaitMicros(MakeRequest(4, "", 0)), 0);
  EXPECT_EQ(queue.WaitMicros(MakeRequest(4, "", 1)), 2'000'000 + 2'000'000);
  EXPECT_EQ(queue.WaitMicros(MakeRequest(4, "", 9)), 3'000'000 + 4 * 2'000'000);
}

TEST(QueueAdmission, AQuietTenantDoesNotWaitForAFlood) {
  SchedulerOptions options = Options();
  options.policy = "fair";
  options.tenant_weights = {{"quiet", 3}};
  options.max_waiting_requests = 2000;
  QueueAdmission queue(options);
  queue.estimator().ObserveStep(100, 1'000'000);
  for (int i = 0; i < 1000; ++i) queue.Enter(MakeRequest(100, "flood"));
  EXPECT_EQ(queue.WaitMicros(MakeRequest(4, "flood")), 1'000'000'000);
  EXPECT_EQ(queue.WaitMicros(MakeRequest(4, "quiet")), 0);
  queue.Enter(MakeRequest(300, "quiet"));
  EXPECT_EQ(queue.WaitMicros(MakeRequest(4, "quiet")), 4'000'000);  // 300 x (1 + 3) / 3 tokens
}

TEST(QueueAdmission, RetryAfterIsBounded) {
  QueueAdmission queue(Options());
  for (int i = 0; i < 5; ++i) queue.Enter(MakeRequest(4));
  queue.estimator().ObserveStep(1, 10'000'000);
  queue.estimator().ObserveOutput(100'000);
  ExpectExhausted(queue.Check(MakeRequest(4), std::nullopt), "--max-num-queued-reqs", 600);
}

TEST(QueueAdmission, TheAccountAddsUpUnderRandomChanges) {
  QueueAdmission queue(Options());
  std::mt19937 random(3);
  std::vector<QueueTicket> tickets;
  for (int i = 0; i < 20'000; ++i) {
    const uint32_t dice = random() % 3;
    if (dice == 0) {
      tickets.push_back(queue.Enter(MakeRequest(random() % 9, std::string(1, 'a' + random() % 5),
                                                static_cast<int32_t>(random() % 4))));
    } else if (!tickets.empty()) {
      QueueTicket& ticket = tickets[random() % tickets.size()];
      if (dice == 1) {
        queue.Start(&ticket);
      } else {
        queue.Leave(ticket);
        ticket = tickets.back();
        tickets.pop_back();
      }
    }
    ASSERT_TRUE(queue.CheckIntegrity().ok());
  }
  for (const QueueTicket& ticket : tickets) queue.Leave(ticket);
  EXPECT_EQ(queue.num_waiting(), 0);
  EXPECT_EQ(queue.num_waiting_tokens(), 0);
  EXPECT_TRUE(queue.CheckIntegrity().ok());
}

}  // namespace
}  // namespace pagemill::scheduler
