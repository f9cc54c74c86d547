#include "cc/sim/request_table.h"

#include "gtest/gtest.h"

namespace pagemill::sim {
namespace {

Arrival MakeArrival(std::vector<Segment> output) {
  Arrival arrival;
  arrival.time_ns = 7;
  arrival.ticket = 3;
  arrival.prompt = {1, 2, 3, 4};
  arrival.output = std::move(output);
  return arrival;
}

TEST(RequestTable, RemembersAnArrival) {
  RequestTable table(100);
  Arrival arrival = MakeArrival({{5, 2, 0}});
  const step::RequestId id = table.Add(&arrival);
  EXPECT_EQ(table[id].arrival_ns, 7);
  EXPECT_EQ(table[id].ticket, 3u);
  EXPECT_EQ(table[id].prompt_size, 4);
  EXPECT_FALSE(table[id].start_ns.has_value());
  EXPECT_EQ(table.size(), 1u);
}

TEST(RequestTable, NeverGivesAnIdTwiceAndReusesMemory) {
  RequestTable table(100);
  Arrival arrival = MakeArrival({{5, 2, 0}});
  const step::RequestId first = table.Add(&arrival);
  table[first].start_ns = 9;
  table.Remove(first);
  EXPECT_EQ(table.size(), 0u);
  arrival = MakeArrival({{5, 2, 0}});
  const step::RequestId second = table.Add(&arrival);
  EXPECT_NE(first, second);
  EXPECT_FALSE(table[second].start_ns.has_value());
  EXPECT_EQ(table.size(), 1u);
}

TEST(RequestTable, AnswersWithTheTokensOfItsSegments) {
  RequestTable table(100000);
  Arrival arrival = MakeArrival({{5, 2, 14}, {6, 16, 0}});
  const step::RequestId id = table.Add(&arrival);
  EXPECT_EQ(table.OutputToken(id, 0), PseudoToken(5, 14, 100000));
  EXPECT_EQ(table.OutputToken(id, 1), PseudoToken(5, 15, 100000));
  EXPECT_EQ(table.OutputToken(id, 2), PseudoToken(6, 0, 100000));
  EXPECT_EQ(table.OutputToken(id, 40), PseudoToken(6, 38, 100000));
}

}  // namespace
}  // namespace pagemill::sim
