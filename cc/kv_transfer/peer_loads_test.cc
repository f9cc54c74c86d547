// Loads from a segment, as a connection makes them, which has room for so many bytes.
#include "cc/kv_transfer/peer_loads.h"

#include <cstdint>
#include <span>
#include <vector>

#include "cc/kv_transfer/handover_test_engine.h"
#include "gtest/gtest.h"

namespace pagemill::kv_transfer {
namespace {

using kv_cache::KvTransfer;
using kv_cache::KvTransferResult;

TEST(PeerLoads, LoadsTakeTurnsWithinTheBytesThatTheyMayLoad) {
  TestEngine sender({});
  sender.Send(1, 0, 6);
  ASSERT_EQ(sender.Wait().status, OkStatus());
  std::vector<uint64_t> loaded;  // by which load
  PeerLoads loads({.fingerprint = {.low = 1, .high = 2}, .page_bytes = kTestPageBytes},
                  &sender.pages,
                  [&loaded](const KvTransfer& load, size_t, std::span<const std::byte>) {
                    loaded.push_back(load.id.value());
                    return OkStatus();
                  });
  for (const uint64_t id : {1, 2, 3}) {
    const int begin = 2 * (static_cast<int>(id) - 1);
    KvTransfer load = TestEngine::Make(KvTransfer::Direction::kLoad, id, begin, begin + 2, 0);
    load.handover = sender.Handover(1);
    loads.Add(load);
  }
  std::vector<KvTransferResult> ended;
  EXPECT_TRUE(loads.Advance(&ended, 2 * kTestPageBytes));
  EXPECT_EQ(loaded, (std::vector<uint64_t>{1, 2}));
  EXPECT_TRUE(loads.Advance(&ended, kTestPageBytes + 1));
  EXPECT_EQ(loaded, (std::vector<uint64_t>{1, 2, 3, 1}));
  while (loads.Advance(&ended, kTestPageBytes)) {
  }
  EXPECT_EQ(loaded, (std::vector<uint64_t>{1, 2, 3, 1, 2, 3}));
  ASSERT_EQ(ended.size(), 3u);
  for (const KvTransferResult& result : ended) EXPECT_EQ(result.status, OkStatus());
}

}  // namespace
}  // namespace pagemill::kv_transfer
