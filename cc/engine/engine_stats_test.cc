#include "cc/engine/engine_stats.h"

#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

#include "gtest/gtest.h"

namespace pagemill::engine {
namespace {

// Bytes of the visited members of `T`.
template <typename T>
size_t VisitedBytes() {
  size_t bytes = 0;
  T::Visit([&](const char*, auto member, const FieldInfo&) {
    bytes += sizeof(std::declval<T>().*member);
  });
  return bytes;
}

TEST(EngineStats, EveryMemberIsVisited) {
  using scheduler::SchedulerStats;
  const SchedulerStats s;
  EXPECT_EQ(VisitedBytes<SchedulerStats>() + sizeof(s.num_parked) + sizeof(s.num_started) +
                sizeof(s.finished),
            sizeof(SchedulerStats));
  EXPECT_EQ(VisitedBytes<kv_cache::KvConnectorStats>(), sizeof(kv_cache::KvConnectorStats));
  EXPECT_EQ(VisitedBytes<kv_cache::BlockAgeStats>(), sizeof(kv_cache::BlockAgeStats));
  const size_t own = VisitedBytes<EngineStats>() - VisitedBytes<SchedulerStats>() -
                     VisitedBytes<kv_cache::KvConnectorStats>() -
                     VisitedBytes<kv_cache::BlockAgeStats>();
  const size_t flags_and_padding = 8;
  EXPECT_EQ(own - 3 * sizeof(bool) + flags_and_padding + sizeof(SchedulerStats) +
                sizeof(kv_cache::KvConnectorStats) + sizeof(kv_cache::BlockAgeStats),
            sizeof(EngineStats));
}

TEST(EngineStats, NamesAndFamiliesAreUniqueAndSayWhatTheyMean) {
  std::set<std::string> names, families;
  EngineStats::Visit([&](const char* name, auto, const FieldInfo& info) {
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_TRUE(*info.metric == '\0' || families.insert(info.metric).second) << info.metric;
    EXPECT_NE(std::string(info.help), "") << name;
    EXPECT_NE(std::string(info.help).back(), '.') << name;
    EXPECT_NE(info.kind, FieldKind::kValue) << name;
  });
}

TEST(EngineStats, MembersAreTheOnesThatAreNamed) {
  EngineStats stats;
  stats.num_preemptions = 7;
  stats.kv_blocks_dropped = 8;
  stats.progress_age_s = 9;
  std::map<std::string, double> values;
  EngineStats::Visit([&](const char* name, auto member, const FieldInfo& info) {
    constexpr bool is_number = std::is_arithmetic_v<std::remove_cvref_t<decltype(stats.*member)>>;
    const bool is_alone = info.kind == FieldKind::kGauge || info.kind == FieldKind::kCounter;
    EXPECT_EQ(is_number, is_alone) << name;
    if constexpr (is_number) values[name] = static_cast<double>(stats.*member);
  });
  EXPECT_EQ(values["num_preemptions"], 7);
  EXPECT_EQ(values["kv_blocks_dropped"], 8);
  EXPECT_EQ(values["progress_age_s"], 9);
  EXPECT_EQ(values["num_steps"], 0);
}

}  // namespace
}  // namespace pagemill::engine
