// File: cc/kv_cache/testing/kv_cache_simulation.h
// A KvCacheManager driven at random, as a scheduler would, only less wisely: requests whose prompts
// come from a tree with few branches start, plan steps ahead, commit, load, go back, give up;
// blocks are held and pinned, content is forgotten. After each operation the cache must be whole,
// and agree with references that know nothing of it: the pages that only requests write, the
// listeners that only hear events, and counts over the block tables.
//
//   KvCacheSimulation::Counts counts;
//   Simulate(options, seed, 3000, &counts);   // fails the test that calls it
//   EXPECT_GT(counts.hit_tokens, 0);
//
// Tests only. Thread safety: none.
#ifndef PAGEMILL_CC_KV_CACHE_TESTING_KV_CACHE_SIMULATION_H_
#define PAGEMILL_CC_KV_CACHE_TESTING_KV_CACHE_SIMULATION_H_

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "cc/kv_cache/kv_cache_manager.h"
#include "cc/kv_cache/testing/event_mirror.h"
#include "cc/kv_cache/testing/fake_pages.h"

namespace pagemill::kv_cache {

class KvCacheSimulation {
 public:
  // How often the operations reached what they are to test.
  struct Counts {
    int64_t hit_tokens = 0, loads = 0, rewinds = 0, pins = 0, refused_pins = 0;
    int64_t evictions = 0, lost_events = 0, common_blocks = 0, rejected_tokens = 0;
  };

  // Adds to `counts`.
  KvCacheSimulation(const KvCacheOptions& options, uint32_t seed, Counts* counts);

  // Then gives everything back.
  void Run(int num_operations);

 private:
  using Iterator = std::list<FakeRequest>::iterator;

  uint32_t Draw(uint32_t below) { return static_cast<uint32_t>(random_()) % below; }
  Iterator Pick() {
    return std::next(running_.begin(), Draw(static_cast<uint32_t>(running_.size())));
  }
  FakeRequest MakeRequest();

  void RunOne();
  void Add();
  void Load(Iterator request, const PrefixMatch& match, int32_t num_tokens);
  void Plan(Iterator request, const PrefixMatch* match);
  void Complete(Iterator request);
  void Rewind(Iterator request);
  void Remove(Iterator request);
  void HoldOrUnhold();
  void PinOrUnpin();
  void Forget();

  void Check();
  void CheckMatch(const FakeRequest& request, const PrefixMatch& match);
  void CheckHeld(const FakeRequest& request);
  void CheckCommonPrefix();
  void CheckPins();

  const KvCacheOptions options_;
  KvCacheManager cache_;
  FakePages pages_;
  EventMirror listener_, slow_listener_;
  std::mt19937 random_;
  bool can_load_ = true;  // do all groups have content that others can use?
  std::list<FakeRequest> running_;
  std::deque<std::vector<BlockId>> holds_;
  struct Pinned {
    PinId id;
    std::vector<std::pair<GroupId, BlockHash>> contents;
  };
  std::deque<Pinned> pins_;
  uint64_t version_ = 0;  // of the weights: content of another one must not be found
  Counts* counts_;
};

void Simulate(const KvCacheOptions& options, uint32_t seed, int num_operations,
              KvCacheSimulation::Counts* counts);

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_TESTING_KV_CACHE_SIMULATION_H_
