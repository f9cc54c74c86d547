#include "cc/program/kv/kv_layout.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "cc/ops/kv_page.h"
#include "cc/ops/latent_write/latent_f8_row.h"

namespace pagemill::program {
namespace {

// Kernels read whole cache lines.
constexpr int64_t kAlignment = 64;
// Tokens of the largest block of a group whose rows stand for several tokens, unless one row has
// more. Their few bytes would fill a page with thousands of tokens, and prefixes match in multiples
// of every block.
constexpr int64_t kMostTokensOfRows = 128;
// Tokens of the request whose bytes are compared between layouts: short enough that a layout with
// blocks of thousands of tokens is charged for the partly used last block.
constexpr int64_t kTypicalTokens = 1024;

int64_t Align(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// A latent cache in fp8 all of whose elements stay in bf16 is one in bf16.
DType TypeOf(const CacheSpec& cache, DType kv) {
  const DType dtype = cache.dtype.value_or(kv);
  const bool is_bf16 = dtype == DType::kF8E4M3 && cache.Bf16Elements() == cache.dims[0];
  return is_bf16 ? DType::kBF16 : dtype;
}

int64_t LatentRowWidth(const CacheSpec& cache, DType dtype) {
  const int64_t width = cache.dims[0], rest = cache.Bf16Elements();
  if (dtype != DType::kF8E4M3) return width;
  return ops::LatentF8Row{.codes = width - rest, .rest = rest}.bytes();
}

// Dimensions of a block after the page's.
std::vector<int64_t> BlockDims(const CacheSpec& cache, DType kv, int64_t block_size) {
  switch (cache.layout) {
    case CacheLayout::kKv:
      return {ops::KvBlockElements(TypeOf(cache, kv), {cache.dims[0], cache.dims[1]}, block_size)};
    case CacheLayout::kLatent:
      return {block_size / cache.TokensOfRow(), LatentRowWidth(cache, TypeOf(cache, kv))};
    case CacheLayout::kState:
      break;
  }
  return cache.dims;
}

int64_t BlockBytes(const CacheSpec& cache, DType kv, int64_t block_size) {
  int64_t elements = 1;
  for (int64_t dim : BlockDims(cache, kv, block_size)) elements *= dim;
  return Align(RowBytes(TypeOf(cache, kv), elements));
}

// The caches of one group.
struct Members {
  std::vector<size_t> values;  // indices into Program::values()
  bool holds_states = false;   // block size is independent of the tokens per block
  bool has_long_rows = false;  // some that stand for several tokens
  int32_t smallest_block = 0;  // tokens: a multiple of the geometry's, and of those of each row
};

class Planner {
 public:
  Planner(const Program& program, const CacheGeometry& geometry)
      : program_(program), geometry_(geometry), members_(program.groups().size()) {
    for (Members& group : members_) group.smallest_block = geometry.block_size;
    for (size_t i = 0; i < program.values().size(); ++i) {
      const Value& v = program.values()[i];
      if (v.kind != ValueKind::kCache) continue;
      Members& group = members_[static_cast<size_t>(v.cache.group)];
      group.values.push_back(i);
      group.holds_states |= v.cache.layout == CacheLayout::kState;
      group.has_long_rows |= v.cache.TokensOfRow() > 1;
      group.smallest_block = static_cast<int32_t>(
          std::lcm(int64_t{group.smallest_block}, v.cache.TokensOfRow()));
    }
  }

  // The largest cache block of one layer, in bytes, with the smallest blocks.
  int64_t LargestCacheBytes() const {
    int64_t largest = 0;
    for (const Members& group : members_) {
      for (size_t value : group.values) {
        largest = std::max(largest, BlockBytes(Spec(value), geometry_.dtype, group.smallest_block));
      }
    }
    return largest;
  }

  KvLayout Plan() const {
    KvLayout best;
    int64_t best_cost = std::numeric_limits<int64_t>::max();
    for (int64_t page_bytes : PageSizes()) {
      KvLayout layout = Place(page_bytes);
      const int64_t cost = BytesOfRequest(layout);
      if (cost >= best_cost) continue;
      best = std::move(layout);
      best_cost = cost;
    }
    best.geometry = geometry_;
    best.caches.resize(program_.values().size());
    return best;
  }

 private:
  const CacheSpec& Spec(size_t value) const { return program_.values()[value].cache; }

  int64_t GroupBytes(const Members& group, int64_t block_size) const {
    int64_t bytes = 0;
    for (size_t value : group.values) {
      bytes += BlockBytes(Spec(value), geometry_.dtype, block_size);
    }
    return bytes;
  }

  // Candidate page sizes, ascending: each group's block on a page of its own, times the blocks that
  // the largest cache of one layer needs.
  std::vector<int64_t> PageSizes() const {
    if (geometry_.page_bytes > 0) return {geometry_.page_bytes};
    const int64_t largest = LargestCacheBytes();
    std::vector<int64_t> sizes;
    for (const Members& group : members_) {
      const int64_t bytes = GroupBytes(group, group.smallest_block);
      if (bytes > 0) sizes.push_back((largest + bytes - 1) / bytes * bytes);
    }
    std::sort(sizes.begin(), sizes.end());
    return sizes;
  }

  // The tokens per block of `group` with pages of this size.
  int32_t BlockSize(const Members& group, int64_t page_bytes) const {
    const int64_t bytes = GroupBytes(group, group.smallest_block);
    int64_t times = group.holds_states ? 1 : std::max<int64_t>(1, page_bytes / bytes);
    if (group.has_long_rows) {
      // A power of two, so that blocks have a small common multiple.
      const int64_t most = std::max<int64_t>(1, kMostTokensOfRows / group.smallest_block);
      times = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::min(times, most))));
    }
    return static_cast<int32_t>(times) * group.smallest_block;
  }

  KvLayout Place(int64_t page_bytes) const {
    KvLayout layout;
    layout.page_bytes = page_bytes;
    layout.caches.resize(program_.values().size());
    int32_t largest_block = geometry_.block_size;
    for (const Members& group : members_) {
      largest_block = std::max(largest_block, BlockSize(group, page_bytes));
    }
    std::vector<int64_t> used;  // bytes used in each table's page
    for (size_t g = 0; g < members_.size(); ++g) {
      const bool states = members_[g].holds_states;
      const int32_t block_size = states ? largest_block : BlockSize(members_[g], page_bytes);
      const size_t first = used.size();
      for (size_t value : members_[g].values) {
        const int64_t size = BlockBytes(Spec(value), geometry_.dtype, block_size);
        size_t table = first;
        while (table < used.size() && used[table] + size > page_bytes) ++table;
        if (table == used.size()) {
          layout.tables.push_back({.group = static_cast<int32_t>(g),
                                   .block_size = block_size,
                                   .recent_states = states ? geometry_.recent_states : 0});
          used.push_back(0);
        }
        layout.caches[value] = {.table = static_cast<int32_t>(table), .offset_bytes = used[table]};
        used[table] += size;
      }
    }
    return layout;
  }

  // The bytes of kTypicalTokens tokens, with one state in each table that holds states, and of a
  // window the blocks that it touches.
  int64_t BytesOfRequest(const KvLayout& layout) const {
    int64_t pages = 0;
    for (const KvLayout::Table& table : layout.tables) {
      const auto group = static_cast<size_t>(table.group);
      const int64_t window = program_.groups()[group].window_tokens, size = table.block_size;
      const int64_t tokens = window > 0 && window + size < kTypicalTokens ? window + size
                                                                          : kTypicalTokens;
      pages += members_[group].holds_states ? 1 : (tokens + size - 1) / size;
    }
    return pages * layout.page_bytes;
  }

  const Program& program_;
  const CacheGeometry geometry_;
  std::vector<Members> members_;  // per group
};

}  // namespace

std::vector<int32_t> KvLayout::TableBlockSizes() const {
  std::vector<int32_t> sizes;
  for (const Table& table : tables) sizes.push_back(table.block_size);
  return sizes;
}

StatusOr<KvLayout> PlanKvLayout(const Program& program, const CacheGeometry& geometry) {
  const Planner planner(program, geometry);
  const int64_t largest = planner.LargestCacheBytes();
  if (geometry.page_bytes > 0 && largest > geometry.page_bytes) {
    return InvalidArgument("KV pages have " + std::to_string(geometry.page_bytes) +
                           " bytes, but a block of one layer has " + std::to_string(largest) +
                           "; use a draft model with smaller layers, or fewer ranks");
  }
  KvLayout layout = planner.Plan();
  for (const KvLayout::Table& table : layout.tables) {
    if (int64_t{geometry.num_blocks} * table.block_size <= std::numeric_limits<int32_t>::max()) {
      continue;
    }
    return InvalidArgument(std::to_string(geometry.num_blocks) + " KV pages with blocks of " +
                           std::to_string(table.block_size) +
                           " tokens have more slots than 2^31 - 1; use fewer or smaller blocks");
  }
  return layout;
}

std::vector<step::KvGroupOptions> KvGroupsOf(const Program& program, const KvLayout& layout) {
  std::vector<step::KvGroupOptions> groups;
  for (const KvLayout::Table& table : layout.tables) {
    const KvGroup& group = program.groups()[static_cast<size_t>(table.group)];
    groups.push_back({.kind = group.kind,
                      .block_size = table.block_size,
                      .window_tokens = group.window_tokens,
                      .checkpoints = layout.geometry.state_checkpoints
                                         ? step::StateCheckpoints::kLastBoundary
                                         : step::StateCheckpoints::kNone,
                      .recent_states = table.recent_states});
  }
  return groups;
}

TensorView CacheView(const Value& cache, const KvLayout::Cache& place, const KvLayout& layout,
                     std::byte* arena) {
  TensorView view;
  view.data = arena + place.offset_bytes;
  view.dtype = TypeOf(cache.cache, layout.geometry.dtype);
  view.shape[static_cast<size_t>(view.rank++)] = layout.geometry.num_blocks;
  for (int64_t dim : BlockDims(cache.cache, layout.geometry.dtype, layout.BlockSizeOf(place))) {
    view.shape[static_cast<size_t>(view.rank++)] = dim;
  }
  view.row_stride_bytes = layout.page_bytes;
  return view;
}

}  // namespace pagemill::program
