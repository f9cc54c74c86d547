// File: cc/step/growing_list.h
// A list that grows at its end, and whose copies share its memory: the tokens of a conversation are
// handed to the runner again with each turn, and each turn copies only what is new.
//
//   GrowingList<int32_t> prompt = {1, 2, 3};
//   const GrowingList<int32_t> before = prompt;  // O(1): the same memory
//   prompt.Append(more);                         // O(more) on average; `before` has three items
//
// Items never change once they are in a list. Appending to a list leaves its copies as they are. If
// two copies are appended to, the second one copies its items first.
//
// Thread safety: copies may be read by other threads while one of them is appended to. Appending to
// two copies at the same time is a race.
#ifndef PAGEMILL_CC_STEP_GROWING_LIST_H_
#define PAGEMILL_CC_STEP_GROWING_LIST_H_

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace pagemill::step {

template <typename T>
class GrowingList {
 public:
  using value_type = T;
  using const_iterator = const T*;

  GrowingList() = default;
  GrowingList(std::initializer_list<T> items) : GrowingList(std::vector<T>(items)) {}
  // Takes over the memory.
  GrowingList(std::vector<T> items)
      : store_(std::make_shared<std::vector<T>>(std::move(items))),
        data_(store_->data()),
        size_(store_->size()) {}

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T* data() const { return data_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  const T& operator[](size_t i) const { return data_[i]; }
  const T& front() const { return data_[0]; }
  const T& back() const { return data_[size_ - 1]; }
  std::vector<T> ToVector() const { return {begin(), end()}; }

  // `items` are not of this list.
  void Append(std::span<const T> items) {
    if (items.empty()) return;
    Reserve(items.size());
    store_->insert(store_->end(), items.begin(), items.end());
    size_ = store_->size();
  }
  void push_back(T item) { Append({&item, 1}); }

  friend bool operator==(const GrowingList& a, const GrowingList& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  // Room for `more` items behind this list's: in the shared memory unless another list has grown
  // there.
  void Reserve(size_t more) {
    const size_t size = size_ + more;
    if (store_ != nullptr && store_->size() == size_ && store_->capacity() >= size) return;
    auto larger = std::make_shared<std::vector<T>>();
    larger->reserve(std::max(size, 2 * size_));
    larger->assign(begin(), end());
    store_ = std::move(larger);
    data_ = store_->data();
  }

  std::shared_ptr<std::vector<T>> store_;  // never beyond its capacity: `data_` stays valid
  const T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace pagemill::step

#endif  // PAGEMILL_CC_STEP_GROWING_LIST_H_
