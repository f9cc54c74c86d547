// File: cc/kv_transfer/copy_thread.h
// Threads that copy KV beside threads that compute steps: they yield to those.
//
//   std::thread thread([] { BecomeCopyThread(/*num_step_threads=*/2); ... });
#ifndef PAGEMILL_CC_KV_TRANSFER_COPY_THREAD_H_
#define PAGEMILL_CC_KV_TRANSFER_COPY_THREAD_H_

#include <cstdint>

namespace pagemill::kv_transfer {

// A tenth of the time of a busy core: steps are delayed little, and a request that waits for its
// blocks still gets them.
inline constexpr int kCopyThreadNiceness = 10;

// Names the calling thread, raises its nice value by kCopyThreadNiceness, and removes as many CPUs
// from its affinity as steps have threads, if that leaves any. Failure only costs speed.
void BecomeCopyThread(int32_t num_step_threads);

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_COPY_THREAD_H_
