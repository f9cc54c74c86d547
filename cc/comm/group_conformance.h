// File: cc/comm/group_conformance.h
// Tests for every implementation of Group (obligations 1 to 3 of group.h). Test code only.
//
//   for each rank, on a thread or in a process of its own:
//     CheckCollectives(group, /*seed=*/7, /*calls=*/200);
//     CheckSumsAreRoundedOnce(group);
//
// All ranks make the same calls of one seed; each waits occasionally, at its own places.
#ifndef PAGEMILL_CC_COMM_GROUP_CONFORMANCE_H_
#define PAGEMILL_CC_COMM_GROUP_CONFORMANCE_H_

#include <cstdint>

#include "cc/comm/group.h"

namespace pagemill::comm::conformance {

// Compares random calls of every kind, type and size, including 0, with the expected results.
void CheckCollectives(Group& group, uint32_t seed, int calls);

// Sums of bf16 and f16 that differ if each addition rounds.
void CheckSumsAreRoundedOnce(Group& group);

}  // namespace pagemill::comm::conformance

#endif  // PAGEMILL_CC_COMM_GROUP_CONFORMANCE_H_
