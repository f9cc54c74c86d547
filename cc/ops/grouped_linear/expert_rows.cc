#include "cc/ops/grouped_linear/expert_rows.h"

#include <algorithm>

namespace pagemill::ops::grouped_linear {
namespace {

constexpr int64_t kAlignment = 64;

int64_t RoundUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Allocates consecutive arrays in the workspace.
class Arrays {
 public:
  explicit Arrays(std::byte* at) : at_(at) {}

  template <class T>
  T* Take(int64_t count) {
    T* const array = reinterpret_cast<T*>(at_);
    at_ += RoundUp(count * static_cast<int64_t>(sizeof(T)));
    return array;
  }

 private:
  std::byte* at_;
};

}  // namespace

int64_t MaxChunks(int64_t rows, int64_t experts, int64_t max_rows) {
  return std::min(rows, rows / max_rows + std::min(experts, rows));
}

int64_t ExpertRowsBytes(int64_t rows, int64_t experts, int64_t max_rows) {
  return RoundUp((experts + 2) * int64_t{sizeof(int64_t)}) +
         RoundUp(std::min(experts, rows) * int64_t{sizeof(ExpertGroup)}) +
         RoundUp(MaxChunks(rows, experts, max_rows) * int64_t{sizeof(Chunk)}) +
         RoundUp(rows * int64_t{sizeof(int32_t)});
}

ExpertRows SortRows(const TensorView& ids, int64_t experts, int64_t max_rows,
                    std::span<std::byte> workspace) {
  const int64_t tokens = ids.shape[0], choices = ids.RowElements(), rows = tokens * choices;
  Arrays arrays(workspace.data());
  // Begins of each expert's rows in `order`, which become ends as rows are added. Rows without an
  // expert come last.
  int64_t* const ends = arrays.Take<int64_t>(experts + 2);
  ExpertGroup* const groups = arrays.Take<ExpertGroup>(std::min(experts, rows));
  Chunk* const chunks = arrays.Take<Chunk>(MaxChunks(rows, experts, max_rows));
  int32_t* const order = arrays.Take<int32_t>(rows);

  const auto for_each_row = [&](const auto& f) {
    for (int64_t token = 0; token < tokens; ++token) {
      const int32_t* const of_token = ids.Row<const int32_t>(token);
      for (int64_t j = 0; j < choices; ++j) {
        const int64_t id = of_token[j];
        f(token * choices + j, id >= 0 && id < experts ? id : experts);
      }
    }
  };
  std::fill_n(ends, experts + 2, int64_t{0});
  for_each_row([&](int64_t, int64_t expert) { ++ends[expert + 1]; });
  for (int64_t e = 0; e < experts; ++e) ends[e + 1] += ends[e];
  for_each_row(
      [&](int64_t row, int64_t expert) { order[ends[expert]++] = static_cast<int32_t>(row); });

  int64_t num_groups = 0, num_chunks = 0, begin = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t count = ends[e] - begin, pieces = (count + max_rows - 1) / max_rows;
    if (count == 0) continue;
    groups[num_groups++] = {e, num_chunks, num_chunks + pieces};
    for (int64_t i = 0; i < pieces; ++i) {
      const int64_t first = i * count / pieces;
      chunks[num_chunks++] = {order + begin + first, (i + 1) * count / pieces - first};
    }
    begin = ends[e];
  }
  return {{groups, static_cast<size_t>(num_groups)},
          {chunks, static_cast<size_t>(num_chunks)},
          {order + begin, static_cast<size_t>(rows - begin)}};
}

}  // namespace pagemill::ops::grouped_linear
