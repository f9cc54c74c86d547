// File: cc/comm/futex.h
// Sleeping on a word of memory that several processes map (man 2 futex).
//
//   while (word.load() == seen) FutexWait(&word, seen, std::chrono::milliseconds(20));
//   word.store(next); FutexWakeAll(&word);
//
// Thread-safe and process-safe.
#ifndef PAGEMILL_CC_COMM_FUTEX_H_
#define PAGEMILL_CC_COMM_FUTEX_H_

#include <atomic>
#include <chrono>
#include <cstdint>

namespace pagemill::comm {

// Sleeps while *word == seen, at most for `limit`; may return early (spuriously).
void FutexWait(std::atomic<uint32_t>* word, uint32_t seen, std::chrono::milliseconds limit);

void FutexWakeAll(std::atomic<uint32_t>* word);

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_FUTEX_H_
