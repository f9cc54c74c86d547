// Both policies against simple models, and what ARC is for.
#include "cc/kv_cache/tiers/replacement.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cc/kv_cache/tiers/arc.h"
#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

ContentKey Key(int i) {
  ContentKey key;
  key.hash.words[0] = static_cast<uint64_t>(i) + 1;
  key.group = GroupId(static_cast<uint16_t>(i % 2));
  return key;
}

// Keys as numbers, lists as vectors (oldest first), and the rules as the paper writes them.
class Model {
 public:
  explicit Model(size_t capacity) : c_(capacity) {}
  virtual ~Model() = default;
  virtual bool Resident(int x) const = 0;
  virtual void Touch(int x) = 0;
  virtual void Erase(int x) = 0;
  // Admits x where some resident may leave; the victim, or -1.
  virtual bool Admit(int x, const std::set<int>& pinned, int* victim) = 0;

 protected:
  using List = std::vector<int>;
  static bool Has(const List& list, int x) {
    return std::find(list.begin(), list.end(), x) != list.end();
  }
  static void Remove(List* list, int x) {
    list->erase(std::remove(list->begin(), list->end(), x), list->end());
  }
  static int Oldest(const List& list, const std::set<int>& pinned) {
    for (int x : list) {
      if (!pinned.contains(x)) return x;
    }
    return -1;
  }
  const size_t c_;
};

class LruModel final : public Model {
 public:
  using Model::Model;
  bool Resident(int x) const override { return Has(list_, x); }
  void Touch(int x) override {
    Remove(&list_, x);
    list_.push_back(x);
  }
  void Erase(int x) override { Remove(&list_, x); }
  bool Admit(int x, const std::set<int>& pinned, int* victim) override {
    *victim = -1;
    if (list_.size() == c_) {
      *victim = Oldest(list_, pinned);
      if (*victim < 0) return false;
      Remove(&list_, *victim);
    }
    list_.push_back(x);
    return true;
  }

 private:
  List list_;
};

class ArcModel final : public Model {
 public:
  using Model::Model;
  bool Resident(int x) const override { return Has(t1_, x) || Has(t2_, x); }
  void Touch(int x) override {
    Erase(x);
    t2_.push_back(x);
  }
  void Erase(int x) override {
    Remove(&t1_, x);
    Remove(&t2_, x);
  }
  bool Admit(int x, const std::set<int>& pinned, int* victim) override {
    const bool in_b1 = Has(b1_, x), in_b2 = Has(b2_, x);
    size_t p = p_;
    if (in_b1) p = std::min(c_, p + std::max<size_t>(b2_.size() / b1_.size(), 1));
    if (in_b2) p -= std::min(p, std::max<size_t>(b1_.size() / b2_.size(), 1));
    *victim = -1;
    bool from_t1 = false;
    if (t1_.size() + t2_.size() == c_) {
      from_t1 = !t1_.empty() && ((in_b2 && t1_.size() == p) || t1_.size() > p);
      *victim = Oldest(from_t1 ? t1_ : t2_, pinned);
      if (*victim < 0) {
        from_t1 = !from_t1;
        *victim = Oldest(from_t1 ? t1_ : t2_, pinned);
      }
      if (*victim < 0) return false;
      Erase(*victim);
      (from_t1 ? b1_ : b2_).push_back(*victim);
    }
    p_ = p;
    Remove(&b1_, x);
    Remove(&b2_, x);
    (in_b1 || in_b2 ? t2_ : t1_).push_back(x);
    while (!b1_.empty() && t1_.size() + b1_.size() > c_) b1_.erase(b1_.begin());
    while (!b2_.empty() && t1_.size() + t2_.size() + b1_.size() + b2_.size() > 2 * c_) {
      b2_.erase(b2_.begin());
    }
    return true;
  }

 private:
  List t1_, t2_, b1_, b2_;
  size_t p_ = 0;
};

void Drive(const std::string& name, Model* model, int64_t capacity, uint32_t seed) {
  auto policy = *MakeReplacement(name, capacity);
  std::mt19937 random(seed);
  std::set<int> pinned;
  const int universe = static_cast<int>(capacity) * 3;
  int num_refused = 0, num_victims = 0;
  for (int i = 0; i < 6000; ++i) {
    const int x = static_cast<int>(random() % static_cast<uint32_t>(universe));
    const uint32_t dice = random() % 20;
    if (dice == 0) {
      pinned.clear();
    } else if (dice < 4 && model->Resident(x)) {
      pinned.insert(x);
    } else if (dice == 4 && model->Resident(x)) {
      pinned.erase(x);
      model->Erase(x);
      policy->Erase(Key(x));
    } else if (model->Resident(x)) {
      model->Touch(x);
      policy->Touch(Key(x));
    } else {
      int victim = -1;
      const bool admitted = model->Admit(x, pinned, &victim);
      const auto admission = policy->Admit(Key(x), [&](const ContentKey& key) {
        return !pinned.contains(static_cast<int>(key.hash.words[0]) - 1);
      });
      ASSERT_EQ(admission.admitted, admitted);
      ASSERT_EQ(admission.victim, victim < 0 ? std::nullopt : std::optional(Key(victim)));
      num_refused += !admitted;
      num_victims += victim >= 0;
    }
    ASSERT_EQ(policy->CheckIntegrity(), OkStatus());
  }
  EXPECT_GT(num_victims, 500);
  if (capacity > 4) return;
  EXPECT_GT(num_refused, 0);
}

TEST(Replacement, LruAgreesWithAModel) {
  for (int64_t capacity : {1, 2, 4, 13, 40}) {
    LruModel model(static_cast<size_t>(capacity));
    Drive("lru", &model, capacity, 7);
  }
}

TEST(Replacement, ArcAgreesWithAModel) {
  for (int64_t capacity : {1, 2, 4, 13, 40}) {
    ArcModel model(static_cast<size_t>(capacity));
    Drive("arc", &model, capacity, 8);
  }
}

int Hits(Replacement* policy, int64_t capacity) {
  // A working set of half the capacity, used again and again between scans that are never used
  // again.
  const auto any = [](const ContentKey&) { return true; };
  std::set<uint64_t> resident;
  int hits = 0, fresh = 1000;
  const auto use = [&](int x, bool count) {
    if (resident.contains(Key(x).hash.words[0])) {
      policy->Touch(Key(x));
      hits += count;
      return;
    }
    const auto admission = policy->Admit(Key(x), any);
    if (admission.victim) resident.erase(admission.victim->hash.words[0]);
    resident.insert(Key(x).hash.words[0]);
  };
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < capacity / 2; ++i) use(i, true);
    for (int i = 0; i < capacity / 2; ++i) use(i, true);
    for (int i = 0; i < 2 * capacity; ++i) use(fresh++, false);
  }
  return hits;
}

TEST(Replacement, ArcKeepsAWorkingSetThroughScansAndLruDoesNot) {
  constexpr int64_t kCapacity = 20;
  const int lru = Hits(MakeReplacement("lru", kCapacity)->get(), kCapacity);
  const int arc = Hits(MakeReplacement("arc", kCapacity)->get(), kCapacity);
  EXPECT_EQ(lru, 20 * 10);  // the second use in each round
  EXPECT_EQ(arc, 39 * 10);  // all uses but the first ones
}

TEST(Replacement, UnknownPolicyAndNoCapacityAreRefused) {
  EXPECT_EQ(MakeReplacement("fifo", 4).status(),
            InvalidArgument("KV tier policy \"fifo\" is not one of arc, lru"));
  EXPECT_EQ(MakeReplacement("lru", 0).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pagemill::kv_cache
