#include "cc/kv_transfer/copy_thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

namespace pagemill::kv_transfer {
namespace {

// So many CPUs are free of this thread, whichever CPUs other threads choose.
void LeaveCpus(int32_t count) {
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0 || CPU_COUNT(&cpus) <= count) return;
  for (int cpu = 0; count > 0; ++cpu) {
    if (!CPU_ISSET(cpu, &cpus)) continue;
    CPU_CLR(cpu, &cpus);
    --count;
  }
  (void)sched_setaffinity(0, sizeof(cpus), &cpus);
}

}  // namespace

void BecomeCopyThread(int32_t num_step_threads) {
  pthread_setname_np(pthread_self(), "pm-kv-copy");
  LeaveCpus(num_step_threads);
  // Applies to this thread.
  (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kCopyThreadNiceness);
}

}  // namespace pagemill::kv_transfer
