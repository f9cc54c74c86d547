#include "cc/sim/request_table.h"

#include <utility>

namespace pagemill::sim {

step::RequestId RequestTable::Add(Arrival* arrival) {
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(records_.size()));
    records_.emplace_back();
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  Row& row = records_[index];
  row.record = RequestRecord();
  row.record.ticket = arrival->ticket;
  row.record.arrival_ns = arrival->time_ns;
  row.record.output = std::move(arrival->output);
  row.record.prompt_size = static_cast<int32_t>(arrival->prompt.size());
  return step::RequestId((static_cast<uint64_t>(++row.uses) << 32) | index);
}

void RequestTable::Remove(step::RequestId id) {
  free_.push_back(static_cast<uint32_t>(IndexOf(id)));
}

int32_t RequestTable::OutputToken(step::RequestId id, int32_t position) const {
  const std::vector<Segment>& output = records_[IndexOf(id)].record.output;
  size_t i = 0;
  while (i + 1 < output.size() && position >= output[i].num_tokens) {
    position -= output[i].num_tokens;
    ++i;
  }
  return PseudoToken(output[i].content, output[i].first + position, vocab_size_);
}

}  // namespace pagemill::sim
