// File: cc/scheduler/internal/request_slots.h
// The slots of running requests, which runners know by their index (step::RequestIndex).
//
//   RequestSlots slots(max_num_seqs);
//   slots.Take(request);                                  // sets request->index
//   const uint32_t generation = slots.generation(request->index);
//   ... slots.Release(*request) ...
//   slots.Find(index, generation);                        // null: released since
//   slots.TakeReleased(&plan->released);
//
// A slot's generation changes when it is released, so that late results are recognized. Does not
// own the requests. Thread safety: none. Each call is O(1).
#ifndef PAGEMILL_CC_SCHEDULER_INTERNAL_REQUEST_SLOTS_H_
#define PAGEMILL_CC_SCHEDULER_INTERNAL_REQUEST_SLOTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/scheduler/request_state.h"

namespace pagemill::scheduler::internal {

class RequestSlots {
 public:
  explicit RequestSlots(int32_t num_slots) : slots_(static_cast<size_t>(num_slots)) {
    for (int32_t i = num_slots - 1; i >= 0; --i) free_.push_back(step::RequestIndex(i));
  }

  size_t size() const { return slots_.size(); }
  size_t num_free() const { return free_.size(); }
  bool full() const { return free_.empty(); }

  // A slot is free. The slot released last is taken first.
  void Take(RequestState* request) {
    request->index = free_.back();
    free_.pop_back();
    slot(request->index).holder = request;
  }
  void Release(const RequestState& request) {
    Slot& released = slot(request.index);
    released.holder = nullptr;
    ++released.generation;
    free_.push_back(request.index);
    released_.push_back(request.index);
  }

  uint32_t generation(step::RequestIndex index) const { return slot(index).generation; }
  bool Holds(const RequestState& request) const { return slot(request.index).holder == &request; }
  // The request that held the slot in this generation; null if it has released it.
  RequestState* Find(step::RequestIndex index, uint32_t generation) const {
    const Slot& found = slot(index);
    return found.generation == generation ? found.holder : nullptr;
  }
  // Swaps with the slots released since the last call; `released` is empty.
  void TakeReleased(std::vector<step::RequestIndex>* released) { released->swap(released_); }

 private:
  struct Slot {
    RequestState* holder = nullptr;
    uint32_t generation = 0;
  };
  Slot& slot(step::RequestIndex index) { return slots_[static_cast<size_t>(index.value())]; }
  const Slot& slot(step::RequestIndex index) const {
    return slots_[static_cast<size_t>(index.value())];
  }

  std::vector<Slot> slots_;
  std::vector<step::RequestIndex> free_;  // a stack
  std::vector<step::RequestIndex> released_;
};

}  // namespace pagemill::scheduler::internal

#endif  // PAGEMILL_CC_SCHEDULER_INTERNAL_REQUEST_SLOTS_H_
