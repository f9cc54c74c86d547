// File: cc/step/token_list.h
// Tokens that a request gets in one step. A few lie in the list itself, so that a step of many
// requests allocates nothing for them: most get one token.
//
//   TokenList tokens;
//   tokens.push_back(7);
//   tokens = {1, 2, 3, 4, 5};  // more than kNumInside are on the heap
//   std::span<const int32_t> all = tokens;
//
// References to tokens are valid until the list is changed or moved. A list that was moved from is
// empty. Thread safety: as a vector's.
#ifndef PAGEMILL_CC_STEP_TOKEN_LIST_H_
#define PAGEMILL_CC_STEP_TOKEN_LIST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

namespace pagemill::step {

class TokenList {
 public:
  using value_type = int32_t;
  using iterator = int32_t*;
  using const_iterator = const int32_t*;
  static constexpr size_t kNumInside = 4;  // as large as a vector

  TokenList() = default;
  TokenList(std::initializer_list<int32_t> ids) { Append({ids.begin(), ids.size()}); }
  TokenList(const std::vector<int32_t>& ids) { Append(ids); }
  TokenList(const TokenList& other) { Append(other); }
  TokenList(TokenList&& other) noexcept : store_(std::exchange(other.store_, Store())) {}
  TokenList& operator=(TokenList other) noexcept {
    std::swap(store_, other.store_);
    return *this;
  }
  ~TokenList() {
    if (on_heap()) delete[] store_.heap;
  }

  size_t size() const { return store_.size; }
  bool empty() const { return store_.size == 0; }
  int32_t* data() { return on_heap() ? store_.heap : store_.inside; }
  const int32_t* data() const { return on_heap() ? store_.heap : store_.inside; }
  int32_t* begin() { return data(); }
  int32_t* end() { return data() + size(); }
  const int32_t* begin() const { return data(); }
  const int32_t* end() const { return data() + size(); }
  int32_t& operator[](size_t i) { return data()[i]; }
  const int32_t& operator[](size_t i) const { return data()[i]; }
  const int32_t& back() const { return data()[size() - 1]; }
  std::vector<int32_t> ToVector() const { return {begin(), end()}; }

  void push_back(int32_t id) {
    if (store_.size == store_.capacity) Reserve(size_t{2} * store_.size);
    data()[store_.size++] = id;
  }
  // `ids` are not of this list.
  void Append(std::span<const int32_t> ids) {
    if (size() + ids.size() > store_.capacity) Reserve(size() + ids.size());
    std::copy(ids.begin(), ids.end(), end());
    store_.size += static_cast<uint32_t>(ids.size());
  }
  // Keeps the first `size` tokens, of at least as many.
  void Truncate(size_t size) { store_.size = static_cast<uint32_t>(size); }
  void clear() { Truncate(0); }

  friend bool operator==(const TokenList& a, const TokenList& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend bool operator==(const TokenList& a, const std::vector<int32_t>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  struct Store {
    uint32_t size = 0;
    uint32_t capacity = kNumInside;  // more: on the heap
    union {
      int32_t inside[kNumInside];
      int32_t* heap;
    };
  };

  bool on_heap() const { return store_.capacity > kNumInside; }
  void Reserve(size_t capacity) {
    auto* larger = new int32_t[capacity];
    std::copy(begin(), end(), larger);
    if (on_heap()) delete[] store_.heap;
    store_.heap = larger;
    store_.capacity = static_cast<uint32_t>(capacity);
  }

  Store store_;
};

}  // namespace pagemill::step

#endif  // PAGEMILL_CC_STEP_TOKEN_LIST_H_
