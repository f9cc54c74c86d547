// File: cc/scheduler/admission/queue_ticket.h
// A request's entry in the account of a QueueAdmission. Cheap to copy.
#ifndef PAGEMILL_CC_SCHEDULER_ADMISSION_QUEUE_TICKET_H_
#define PAGEMILL_CC_SCHEDULER_ADMISSION_QUEUE_TICKET_H_

#include <cstdint>
#include <string>

namespace pagemill::scheduler {

// Which account of the queue counts a request.
enum class QueueAccount {
  kScheduler,  // the scheduler's, which refuses what is too much
  kHost,       // one that its host keeps, which has taken the request
};

struct QueueTicket {
  bool waits = true;  // has not started
  int32_t prompt_tokens = 0;
  int32_t priority = 0;
  const std::string* tenant = nullptr;  // in the account, which keeps it until the request leaves
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_ADMISSION_QUEUE_TICKET_H_
