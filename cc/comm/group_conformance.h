// File: cc/comm/group_conformance.h
// What every implementation of Group has to do (obligations 1 to 3 of group.h). Test code only.
//
//   for each rank, on a thread or in a process of its own:
//     CheckCollectives(group, /*seed=*/7, /*calls=*/200);
//     CheckSumsAreRoundedOnce(group);
//
// All ranks make the calls of one seed; each waits now and then at places of its own.
#ifndef PAGEMILL_CC_COMM_GROUP_CONFORMANCE_H_
#define PAGEMILL_CC_COMM_GROUP_CONFORMANCE_H_

#include <cstdint>

#include "cc/comm/group.h"

namespace pagemill::comm::conformance {

// Random calls of every kind, type and size, some of 0, each compared with what it has to give.
void CheckCollectives(Group& group, uint32_t seed, int calls);

// Sums of bf16 and f16 that differ if each addition rounds.
void CheckSumsAreRoundedOnce(Group& group);

}  // namespace pagemill::comm::conformance

#endif  // PAGEMILL_CC_COMM_GROUP_CONFORMANCE_H_
