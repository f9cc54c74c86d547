#include "cc/bindings/batch_arrays.h"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "cc/bindings/status_error.h"

namespace pagemill::bindings {

namespace nb = nanobind;

namespace {

// A read-only numpy array over memory of the batch. It has no owner: the batch outlives the call
// that it is passed to.
nb::object View(const int32_t* data, std::initializer_list<size_t> shape) {
  static constexpr int32_t kNothing = 0;  // numpy wants an address for an empty array too
  return nb::cast(nb::ndarray<nb::numpy, const int32_t>(data == nullptr ? &kNothing : data, shape),
                  nb::rv_policy::reference);
}

void Require(bool condition, const std::string& message) {
  if (!condition) ThrowIfError(InvalidArgument(message));
}

void RequireLength(const char* name, const Int32Vector& array, size_t length) {
  Require(array.size() == length, std::string(name) + " must have " + std::to_string(length) +
                                      " elements, got " + std::to_string(array.size()));
}

void RequireRange(const char* name, const int32_t* data, size_t size, int32_t low, int64_t high) {
  for (size_t i = 0; i < size; ++i) {
    Require(data[i] >= low && data[i] < high,
            std::string(name) + " must be from " + std::to_string(low) + " to " +
                std::to_string(high - 1) + ", got " + std::to_string(data[i]));
  }
}

}  // namespace

nb::dict BatchToArrays(const ops::BatchView& batch) {
  const size_t tokens = static_cast<size_t>(batch.num_tokens);
  const size_t requests = static_cast<size_t>(batch.num_requests);
  nb::dict arrays;
  arrays["token_ids"] = View(batch.token_ids, {tokens});
  arrays["positions"] = View(batch.positions, {tokens});
  arrays["slot_mapping"] = View(batch.slot_mapping, {tokens});
  arrays["query_start"] = View(batch.query_start, {requests + 1});
  arrays["seq_lens"] = View(batch.seq_lens, {requests});
  arrays["block_table"] =
      View(batch.block_table, {requests, static_cast<size_t>(batch.block_table_stride)});
  arrays["logits_rows"] = View(batch.logits_rows, {static_cast<size_t>(batch.num_logits_rows)});
  arrays["block_size"] = batch.block_size;
  return arrays;
}

ops::BatchView BatchArrays::ToBatchView(int32_t block_size, int32_t num_blocks) const {
  const size_t tokens = token_ids.size();
  const size_t requests = seq_lens.size();
  RequireLength("positions", positions, tokens);
  RequireLength("slot_mapping", slot_mapping, tokens);
  RequireLength("query_start", query_start, requests + 1);
  Require(block_table.shape(0) == requests, "block_table must have a row per request");
  const int64_t num_slots = int64_t{num_blocks} * block_size;
  RequireRange("slot_mapping", slot_mapping.data(), tokens, 0, num_slots);
  RequireRange("logits_rows", logits_rows.data(), logits_rows.size(), 0,
               static_cast<int64_t>(tokens));
  RequireRange("block_table", block_table.data(), block_table.size(), 0, num_blocks);
  const int64_t most_tokens = static_cast<int64_t>(block_table.shape(1)) * block_size;
  RequireRange("seq_lens", seq_lens.data(), requests, 1, most_tokens + 1);
  Require(query_start.data()[0] == 0 &&
              query_start.data()[requests] == static_cast<int32_t>(tokens) &&
              std::is_sorted(query_start.data(), query_start.data() + requests + 1),
          "query_start must ascend from 0 to the number of tokens");
  for (size_t r = 0; r < requests; ++r) {
    Require(query_start.data()[r + 1] - query_start.data()[r] <= seq_lens.data()[r],
            "a request runs more tokens than its seq_lens");
  }
  return {.num_tokens = static_cast<int32_t>(tokens),
          .num_requests = static_cast<int32_t>(requests),
          .num_logits_rows = static_cast<int32_t>(logits_rows.size()),
          .block_size = block_size,
          .token_ids = token_ids.data(),
          .positions = positions.data(),
          .slot_mapping = slot_mapping.data(),
          .query_start = query_start.data(),
          .seq_lens = seq_lens.data(),
          .block_table = block_table.data(),
          .block_table_stride = static_cast<int64_t>(block_table.shape(1)),
          .logits_rows = logits_rows.data()};
}

}  // namespace pagemill::bindings
