#include "cc/comm/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace pagemill::comm {

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

void FutexWait(std::atomic<uint32_t>* word, uint32_t seen, std::chrono::milliseconds limit) {
  const timespec timeout = {.tv_sec = static_cast<time_t>(limit.count() / 1000),
                            .tv_nsec = static_cast<long>(limit.count() % 1000 * 1'000'000)};
  syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace pagemill::comm
