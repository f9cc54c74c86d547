// File: cc/sim/request_table.h
// The simulator's records of unfinished requests: the times of their events, and their answers.
// Memory: O(unfinished requests).
//
//   RequestTable table(vocab_size);
//   step::RequestId id = table.Add(arrival);
//   table[id].first_token_ns = now;
//   table.Remove(id);
#ifndef PAGEMILL_CC_SIM_REQUEST_TABLE_H_
#define PAGEMILL_CC_SIM_REQUEST_TABLE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "cc/sim/workload.h"
#include "cc/step/request.h"

namespace pagemill::sim {

struct RequestRecord {
  uint64_t ticket = 0;
  int64_t arrival_ns = 0;
  std::optional<int64_t> start_ns;       // of the first step with tokens of this request
  std::optional<int64_t> last_token_ns;  // of its latest token
  std::vector<Segment> output;
  int32_t prompt_size = 0;
};

class RequestTable {
 public:
  explicit RequestTable(int32_t vocab_size) : vocab_size_(vocab_size) {}

  // Moves everything but the prompt out of `arrival`. The id is unique.
  step::RequestId Add(Arrival* arrival);
  RequestRecord& operator[](step::RequestId id) { return records_[IndexOf(id)].record; }
  void Remove(step::RequestId id);

  // The token at this position of the answer, which may be past its stated length.
  int32_t OutputToken(step::RequestId id, int32_t position) const;
  size_t size() const { return records_.size() - free_.size(); }

 private:
  struct Row {
    RequestRecord record;
    uint32_t uses = 0;  // makes ids unique
  };
  static size_t IndexOf(step::RequestId id) { return static_cast<uint32_t>(id.value()); }

  const int32_t vocab_size_;
  std::vector<Row> records_;
  std::vector<uint32_t> free_;  // a stack
};

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_REQUEST_TABLE_H_
